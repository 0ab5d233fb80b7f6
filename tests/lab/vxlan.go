package lab

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Wrapping is how forged packets are wrapped: by which UDP port, 0 for GRE, and with what before the number of the network.
type Wrapping struct {
	port   int
	before []byte
	after  []byte
}

// Wrappings are those that there are.
var Wrappings = map[string]Wrapping{
	"vxlan":  {4789, []byte{0x08, 0, 0, 0}, nil}, // it has a VNI (RFC 7348)
	"geneve": {6081, []byte{0, 0, 0x65, 0x58}, nil},
	// An option of 4 bytes that nobody has to understand (RFC 8926).
	"geneve-option": {6081, []byte{1, 0, 0x65, 0x58}, []byte{0xff, 0xff, 0, 0}},
	"gre":           {0, []byte{0x20, 0, 0x65, 0x58}, nil}, // with a key (RFC 2890)
	"bare":          {bare, nil, nil},
}

// bare is in place of a port: the datagram itself is on the wire, from the sender's own MAC address.
const bare = -1

// Forge has a host, or a container of it if one is named, send n packets that are wrapped so to
// an address of the host of the container to, with a datagram in each that seems to be from an
// address of the network that both are on. It returns how many of them arrived in the
// container, where nobody waits for them. No agent is asked.
func Forge(ctx context.Context, h *Host, w Wrapping, container string, at netip.Addr, n int, vnid uint32, from netip.Addr, network string, to Container) (arrived int, err error) {
	mac, err := net.ParseMAC(to.MACs[network])
	if err != nil || len(to.Addrs[network]) == 0 {
		return 0, fmt.Errorf("%s on %s is not on %s: %w", to.Name, to.Host.Name, network, err)
	}
	number := vnid << 8
	if w.port == 0 {
		number = vnid
	}
	packet := slices.Concat(w.before, binary.BigEndian.AppendUint32(nil, number), w.after, datagramFrame(mac, net.HardwareAddr{2, 0x42, 10, 1, 2, 3}, from, to.Addrs[network][0], []byte("forged")))
	var text strings.Builder
	for _, b := range packet {
		fmt.Fprintf(&text, `\%03o`, b)
	}
	before, err := to.unwanted(ctx)
	if err != nil {
		return 0, err
	}
	// printf writes line by line, dd all at once: one datagram.
	script := fmt.Sprintf("set -e; for n in $(seq %d); do printf '%s' | dd bs=2000 iflag=fullblock status=none > /dev/udp/%s/%d; sleep 0.05; done", n, text.String(), at, w.port)
	if w.port == bare {
		if !at.Is4() {
			return 0, fmt.Errorf("%s: the MAC address of only a host with an address of IPv4 is known", at)
		}
		wire := net.HardwareAddr(append([]byte{2, 0}, at.AsSlice()...))
		script = fmt.Sprintf("GVLAB_ROLE=%s %s bare %s %x %d", roleCast, labhost, "eth0", datagramFrame(wire, make(net.HardwareAddr, 6), from, to.Addrs[network][0], []byte("forged")), n)
	}
	if w.port == 0 {
		script = fmt.Sprintf("GVLAB_ROLE=%s %s gre %s %x %d", roleCast, labhost, at, packet, n)
	}
	command := []string{"bash", "-c", script}
	if container != "" {
		command = []string{"sh", "-c", `exec nsenter --net --target "$(docker inspect -f "{{.State.Pid}}" "$1")" bash -c "$2"`, "sh", container, script}
	}
	if _, err := h.Exec(ctx, command...); err != nil {
		return 0, err
	}
	after, err := to.unwanted(ctx)
	return after - before, err
}

// castBare sends a frame, in hexadecimal, by an interface and with its MAC address, so many times.
func castBare(device, packet, count string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	frame, err := hex.DecodeString(packet)
	if err != nil {
		return err
	}
	nic, err := net.InterfaceByName(device)
	if err != nil {
		return err
	}
	copy(frame[6:12], nic.HardwareAddr)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for range n {
		if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: nic.Index}); err != nil {
			return err
		}
	}
	return nil
}

// castGRE sends what is behind an IP header of GRE, in hexadecimal, so many times.
func castGRE(to, packet, count string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	b, err := hex.DecodeString(packet)
	if err != nil {
		return err
	}
	c, err := net.Dial("ip:47", to)
	if err != nil {
		return err
	}
	defer c.Close()
	for range n {
		if _, err := c.Write(b); err != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

// unwanted counts the datagrams that came to ports of the container where nobody listens.
func (c Container) unwanted(ctx context.Context) (int, error) {
	text, err := c.Exec(ctx, "cat", "/proc/net/snmp")
	if err != nil {
		return 0, err
	}
	var names []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if words[0] != "Udp:" {
			continue
		}
		for i, name := range names {
			if name == "NoPorts" {
				return strconv.Atoi(words[i])
			}
		}
		names = words
	}
	return 0, fmt.Errorf("no count of datagrams in\n%s", text)
}
