package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link"
)

// arpPatience is how long another machine may take to answer.
const arpPatience = 300 * time.Millisecond

// twin asks the wire who else has this host's address (RFC 5227, an ARP probe) and
// returns the first MAC address that is not this interface's; nil: nobody answers.
func twin(device string, addr netip.Addr) (net.HardwareAddr, error) {
	dev, err := link.Get(device)
	if err != nil {
		return nil, err
	}
	if !addr.Is4() || len(dev.MAC) != 6 {
		return nil, nil
	}
	const protocol = unix.ETH_P_ARP>>8 | unix.ETH_P_ARP&0xff<<8
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, fmt.Errorf("open a packet socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: dev.Index}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("listen on %s: %w", device, err)
	}
	file := os.NewFile(uintptr(fd), device)
	defer file.Close()
	if err := file.SetDeadline(time.Now().Add(arpPatience)); err != nil {
		return nil, err
	}
	if _, err := file.Write(arpProbe(dev.MAC, addr)); err != nil {
		return nil, fmt.Errorf("send an ARP probe: %w", err)
	}
	frame := make([]byte, 1514)
	for {
		n, err := file.Read(frame)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if mac := arpSender(frame[:n], addr); mac != nil && !bytes.Equal(mac, dev.MAC) {
			return mac, nil
		}
	}
}

// arpProbe asks all (RFC 826) who has the address, without saying that we do.
func arpProbe(mac net.HardwareAddr, addr netip.Addr) []byte {
	f := bytes.Repeat([]byte{0xff}, 6)
	f = append(append(f, mac...), 0x08, 0x06) // Ethernet
	f = append(f, 0, 1, 0x08, 0, 6, 4, 0, 1)  // Ethernet, IPv4, lengths, request
	f = append(append(f, mac...), 0, 0, 0, 0) // sender
	f = append(f, 0, 0, 0, 0, 0, 0)           // target's MAC
	return append(f, addr.AsSlice()...)
}

// arpSender is the MAC address of a frame's sender if it claims the address.
func arpSender(frame []byte, addr netip.Addr) net.HardwareAddr {
	if len(frame) < 14+28 || !bytes.Equal(frame[28:32], addr.AsSlice()) {
		return nil
	}
	return bytes.Clone(frame[22:28])
}
