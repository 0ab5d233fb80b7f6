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

// Probes are sent some times, with pauses. RFC 5227 and RFC 4862 have longer ones, for hosts that boot: here packets are
// lost meanwhile, and a machine that answers at all does so within milliseconds.
const (
	probes     = 3
	probePause = 100 * time.Millisecond
)

// Probe asks on an interface who has an address (RFC 5227, 2.1.1; of IPv6 RFC 4862, 5.4), and returns the MAC of who
// answers; nil: nobody. Of an address on no LAN the routers are asked (Ping).
func Probe(ctx context.Context, nic string, a netip.Addr) (net.HardwareAddr, error) {
	if nic == Loopback {
		return Ping(ctx, a)
	}
	s, err := open(nic, a.Is6())
	if err != nil {
		return nil, fmt.Errorf("ask on %s who has %v: %w", nic, a, err)
	}
	defer s.file.Close()
	for range probes {
		if err := s.ask(a); err != nil {
			return nil, fmt.Errorf("ask on %s who has %v: %w", nic, a, err)
		}
		who, err := s.hear(ctx, a, time.Now().Add(probePause))
		if who != nil || err != nil {
			return who, err
		}
	}
	return nil, nil
}

// Announce tells everybody on an interface's LAN that an address is there (RFC 5227, 2.3; of IPv6 RFC 4861, 7.2.6).
func Announce(nic string, a netip.Addr) error {
	if nic == Loopback {
		return nil // routers are told (package bgp)
	}
	s, err := open(nic, a.Is6())
	if err == nil {
		defer s.file.Close()
		err = s.tell(a)
	}
	if err != nil {
		return fmt.Errorf("tell on %s that %v is here: %w", nic, a, err)
	}
	return nil
}

// socket sends and hears ARP, or neighbour discovery, on one interface.
type socket struct {
	file *os.File
	nic  *net.Interface
}

func open(nic string, v6 bool) (*socket, error) {
	var filter []unix.SockFilter
	if v6 {
		filter = advertisements
	}
	return openFiltered(nic, v6, filter)
}

func openFiltered(nic string, v6 bool, filter []unix.SockFilter) (*socket, error) {
	i, err := net.InterfaceByName(nic)
	if err != nil {
		return nil, err
	}
	if len(i.HardwareAddr) != 6 {
		return nil, errors.New("it has no Ethernet address")
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open a packet socket: %w", err)
	}
	protocol := uint16(unix.ETH_P_ARP)
	if v6 {
		protocol = unix.ETH_P_IPV6
	}
	if len(filter) > 0 {
		err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: inNetworkOrder(protocol), Ifindex: i.Index})
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("bind a packet socket: %w", err)
	}
	return &socket{os.NewFile(uintptr(fd), "lan"), i}, nil
}

func inNetworkOrder(n uint16) uint16 {
	return binary.NativeEndian.Uint16([]byte{byte(n >> 8), byte(n)})
}

// ask sends the question who has an address, in nobody's name.
func (s *socket) ask(a netip.Addr) error {
	if a.Is6() {
		return s.send(solicitation(s.nic.HardwareAddr, a))
	}
	return s.send(arp(s.nic.HardwareAddr, request, netip.IPv4Unspecified(), a))
}

// tell says that an address is here: by ARP as a question and as an answer, since some heed only the one, some only the other.
func (s *socket) tell(a netip.Addr) error {
	if a.Is6() {
		return s.send(advertisement(s.nic.HardwareAddr, a))
	}
	return errors.Join(s.send(arp(s.nic.HardwareAddr, request, a, a)), s.send(arp(s.nic.HardwareAddr, reply, a, a)))
}

func (s *socket) send(frame []byte) error {
	_, err := s.file.Write(frame)
	return err
}

// hear returns the MAC of another interface that says it has the address; nil: none does until then.
func (s *socket) hear(ctx context.Context, a netip.Addr, until time.Time) (net.HardwareAddr, error) {
	if err := s.file.SetReadDeadline(until); err != nil {
		return nil, err
	}
	says := holder
	if a.Is6() {
		says = advertiser
	}
	buf := make([]byte, 128)
	for ctx.Err() == nil {
		n, err := s.file.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("hear who has it: %w", err)
		}
		if who := says(buf[:n], a); who != nil && !bytes.Equal(who, s.nic.HardwareAddr) {
			return who, nil
		}
	}
	return nil, ctx.Err()
}
