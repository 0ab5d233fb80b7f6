package probe

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// send sends probes of the sizes to a host. A size that cannot even leave this host
// (EMSGSIZE) does not arrive, which is all that matters.
func (p *Prober) send(node string, session uint64, kind Kind, sizes []int) error {
	return p.sendSome(node, session, kind, sizes, copies)
}

// sendSome sends so many of each.
func (p *Prober) sendSome(node string, session uint64, kind Kind, sizes []int, copies int) error {
	self, known := p.cfg.Find(p.cfg.Self)
	to, found := p.cfg.Find(node)
	if !known || !found {
		return fmt.Errorf("send probes to host %s: its address is not known yet", node)
	}
	for _, size := range sizes {
		if size < smallest || size > largest {
			return fmt.Errorf("a probe of %d bytes is none of %d to %d", size, smallest, largest)
		}
	}
	var one func(size int) error
	switch kind.way() {
	case Gossip:
		s, err := newDatagrams(self.Address, to.Gossip)
		if err != nil {
			return fmt.Errorf("send probes to %v: %w", to.Gossip, err)
		}
		defer func() { _ = s.Close() }()
		over := ipUDP(to.Gossip.Addr())
		one = func(size int) error { return s.write(encode(session, kind, size, size-over)) }
	case Tunnel:
		f, err := listen(p.cfg.Device)
		if err != nil {
			return err
		}
		defer f.close()
		mac := pipeline.ProbeMAC(to.VTEP.Unmap().WithZone(""))
		one = func(size int) error { return f.send(mac, encode(session, kind, size, size)) }
	default:
		return fmt.Errorf("probes of kind %d are unknown", kind)
	}
	for range copies {
		for _, size := range sizes {
			if err := one(size); err != nil && !errors.Is(err, unix.EMSGSIZE) {
				return fmt.Errorf("send a probe: %w", err)
			}
		}
	}
	return nil
}

// ipUDP is the size of the headers before a datagram's payload.
func ipUDP(to netip.Addr) int {
	if to.Is4() {
		return 20 + 8
	}
	return 40 + 8
}

// datagrams is a UDP socket whose packets are not fragmented, by anybody.
type datagrams struct{ *net.UDPConn }

func newDatagrams(from netip.Addr, to netip.AddrPort) (datagrams, error) {
	local := net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	if from.Is4() != to.Addr().Is4() {
		local = nil
	}
	c, err := net.DialUDP("udp", local, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return datagrams{}, err
	}
	raw, err := c.SyscallConn()
	if err == nil {
		// PROBE: DF is set, and what the kernel believes of the path's MTU does not count.
		ctl := raw.Control(func(fd uintptr) {
			if to.Addr().Is4() {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
			} else {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE)
			}
		})
		err = errors.Join(err, ctl)
	}
	if err != nil {
		_ = c.Close()
		return datagrams{}, fmt.Errorf("forbid fragments: %w", err)
	}
	return datagrams{c}, nil
}

// write sends one packet. An ICMP error that an earlier one met is none of this one's:
// whether it arrives is what counts.
func (d datagrams) write(b []byte) error {
	_, err := d.Write(b)
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EPERM) {
		return nil
	}
	return err
}

// frames is a packet socket for probes on the gateway port. It sees what comes in, and
// not what it or others send (packet(7): that is for ETH_P_ALL only).
type frames struct {
	file *os.File
	mac  net.HardwareAddr
}

func listen(device string) (*frames, error) {
	fd, dev, err := open(device)
	if err != nil {
		return nil, err
	}
	return &frames{os.NewFile(uintptr(fd), device), dev.MAC}, nil
}

// open opens a packet socket for probes on the gateway port.
func open(device string) (fd int, dev link.Link, err error) {
	if dev, err = link.Get(device); err != nil {
		return 0, dev, fmt.Errorf("the gateway port: %w", err)
	}
	if !dev.Up {
		return 0, dev, fmt.Errorf("the gateway port %s is down", device)
	}
	fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(bigEndian(pipeline.ProbeEtherType)))
	if err != nil {
		return 0, dev, fmt.Errorf("open a packet socket on %s: %w", device, err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: bigEndian(pipeline.ProbeEtherType), Ifindex: dev.Index}); err != nil {
		_ = unix.Close(fd)
		return 0, dev, fmt.Errorf("listen on %s: %w", device, err)
	}
	return fd, dev, nil
}

func bigEndian(v uint16) uint16 { return v<<8 | v>>8 }

const ethernet = 14

// each hands on the probes' payloads, until close.
func (f *frames) each(take func([]byte)) {
	buf := make([]byte, ethernet+largest)
	for {
		n, err := f.file.Read(buf)
		switch {
		case errors.Is(err, unix.ENETDOWN): // told once; it may come up again
		case err != nil:
			return
		case n > ethernet && whole(buf[ethernet:n]):
			take(buf[ethernet:n])
		}
	}
}

// whole says whether the frame has the size that it claims.
func whole(b []byte) bool {
	_, _, size, ok := decode(b)
	return ok && len(b) >= size
}

func (f *frames) send(to net.HardwareAddr, payload []byte) error {
	_, err := f.file.Write(frame(f.mac, to, payload))
	return unlessFull(err)
}

// frame is the frame of a probe.
func frame(from, to net.HardwareAddr, payload []byte) []byte {
	b := append(append(make([]byte, 0, ethernet+len(payload)), to...), from...)
	b = append(b, pipeline.ProbeEtherType>>8, pipeline.ProbeEtherType&0xff)
	return append(b, payload...)
}

// unlessFull is err, or nil where there was no room for a frame.
func unlessFull(err error) error {
	if errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EAGAIN) {
		return nil // as if lost
	}
	return err
}

// close ends each. Of no frames it does nothing.
func (f *frames) close() {
	if f != nil {
		f.file.Close()
	}
}
