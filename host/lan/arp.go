package lan

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ARP's operations (RFC 826).
const (
	request = 1
	reply   = 2
)

// Probes are sent some times, with pauses. RFC 5227 has longer ones, for hosts that boot: here packets are lost
// meanwhile, and a machine that answers at all does so within milliseconds.
const (
	probes     = 3
	probePause = 100 * time.Millisecond
)

// Probe asks on an interface who has an address (RFC 5227, 2.1.1), and returns the MAC of who answers; nil: nobody.
func Probe(ctx context.Context, nic string, a netip.Addr) (net.HardwareAddr, error) {
	s, err := open(nic)
	if err != nil {
		return nil, fmt.Errorf("ask on %s who has %v: %w", nic, a, err)
	}
	defer s.file.Close()
	for range probes {
		if err := s.send(request, netip.IPv4Unspecified(), a); err != nil {
			return nil, fmt.Errorf("ask on %s who has %v: %w", nic, a, err)
		}
		who, err := s.hear(ctx, a, time.Now().Add(probePause))
		if who != nil || err != nil {
			return who, err
		}
	}
	return nil, nil
}

// Announce tells everybody on an interface's LAN that an address is there (RFC 5227, 2.3), as a question and as an
// answer: some heed only the one, some only the other.
func Announce(nic string, a netip.Addr) error {
	s, err := open(nic)
	if err == nil {
		defer s.file.Close()
		err = errors.Join(s.send(request, a, a), s.send(reply, a, a))
	}
	if err != nil {
		return fmt.Errorf("tell on %s that %v is here: %w", nic, a, err)
	}
	return nil
}

// socket sends and hears ARP on one interface.
type socket struct {
	file *os.File
	nic  *net.Interface
}

func open(nic string) (*socket, error) {
	i, err := net.InterfaceByName(nic)
	if err != nil {
		return nil, err
	}
	if len(i.HardwareAddr) != 6 {
		return nil, errors.New("it has no Ethernet address")
	}
	arp := binary.NativeEndian.Uint16([]byte{unix.ETH_P_ARP >> 8, unix.ETH_P_ARP & 0xff}) // in network order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open a packet socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: arp, Ifindex: i.Index}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("bind a packet socket: %w", err)
	}
	return &socket{os.NewFile(uintptr(fd), "arp"), i}, nil
}

var everybody = []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// send sends an ARP packet to everybody.
func (s *socket) send(op uint16, from, about netip.Addr) error {
	target := make([]byte, 6)
	if op == reply {
		target = s.nic.HardwareAddr
	}
	frame := bytes.Join([][]byte{
		everybody, s.nic.HardwareAddr, {unix.ETH_P_ARP >> 8, unix.ETH_P_ARP & 0xff},
		{0, 1, 8, 0, 6, 4, 0, byte(op)}, s.nic.HardwareAddr, from.AsSlice(), target, about.AsSlice(),
	}, nil)
	_, err := s.file.Write(frame)
	return err
}

// hear returns the MAC of another interface that says it has the address; nil: none does until then.
func (s *socket) hear(ctx context.Context, a netip.Addr, until time.Time) (net.HardwareAddr, error) {
	if err := s.file.SetReadDeadline(until); err != nil {
		return nil, err
	}
	buf := make([]byte, 128)
	for ctx.Err() == nil {
		n, err := s.file.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("hear ARP: %w", err)
		}
		if who := holder(buf[:n], a); who != nil && !bytes.Equal(who, s.nic.HardwareAddr) {
			return who, nil
		}
	}
	return nil, ctx.Err()
}

// holder is the MAC of who says in an ARP frame that it has the address; nil: nobody does.
func holder(frame []byte, a netip.Addr) net.HardwareAddr {
	const header = 14
	if len(frame) < header+28 || !bytes.Equal(frame[12:14], []byte{unix.ETH_P_ARP >> 8, unix.ETH_P_ARP & 0xff}) ||
		!bytes.Equal(frame[header:header+6], []byte{0, 1, 8, 0, 6, 4}) || !bytes.Equal(frame[header+14:header+18], a.AsSlice()) {
		return nil
	}
	return bytes.Clone(frame[header+8 : header+14])
}
