// Package linktest gives tests network namespaces of their own and raw packets in
// them. Tests that use it run as root.
package linktest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// NS is a network namespace without a name: it goes with the test.
type NS struct {
	t  testing.TB
	fd int
}

// New returns a new namespace, with lo up.
func New(t testing.TB) *NS {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here := current(t)
	defer unix.Close(here)
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("make a network namespace (tests run as root): %v", err)
	}
	n := &NS{t, current(t)}
	t.Cleanup(func() { _ = unix.Close(n.fd) })
	defer enter(here)
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatalf("set lo up: %v", err)
	}
	return n
}

// Key is a file by which the namespace can be opened, for as long as the test runs.
func (n *NS) Key() string { return fmt.Sprintf("/proc/self/fd/%d", n.fd) }

// Do runs f in the namespace, on the calling goroutine: f may call t.Fatal. What f
// starts in goroutines of its own is not in the namespace.
func (n *NS) Do(f func()) {
	n.t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here := current(n.t)
	defer unix.Close(here)
	enter(n.fd)
	defer enter(here)
	f()
}

// Wire joins two namespaces by a veth pair, its ends called name and up, with the
// addresses given for each ("10.0.0.1/24").
func Wire(t testing.TB, name string, a, b *NS, addrsA, addrsB []string) {
	t.Helper()
	a.Do(func() {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: name, PeerNamespace: netlink.NsFd(b.fd)})
		if err != nil {
			t.Fatalf("join namespaces by %s: %v", name, err)
		}
	})
	a.Do(func() { Up(t, name, addrsA...) })
	b.Do(func() { Up(t, name, addrsB...) })
	a.Do(func() { WaitUp(t, name) })
	b.Do(func() { WaitUp(t, name) })
}

// WaitUp waits for an interface of the present namespace to carry packets: the kernel
// gives it its queue some time after both ends of a veth pair are set up, and drops
// what is sent before.
func WaitUp(t testing.TB, name string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		l, err := netlink.LinkByName(name)
		if err == nil && l.Attrs().OperState == netlink.OperUp {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not come up: %v", name, err)
		}
	}
}

// Up sets an interface of the present namespace up and gives it addresses.
func Up(t testing.TB, name string, addrs ...string) {
	t.Helper()
	l, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetUp(l)
	}
	for _, a := range addrs {
		var parsed *netlink.Addr
		if err == nil {
			parsed, err = netlink.ParseAddr(a)
		}
		if err == nil {
			parsed.Flags = unix.IFA_F_NODAD
			err = netlink.AddrAdd(l, parsed)
		}
	}
	if err != nil {
		t.Fatalf("set up %s with %v: %v", name, addrs, err)
	}
}

func current(t testing.TB) int {
	t.Helper()
	fd, err := unix.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("open the network namespace: %v", err)
	}
	return fd
}

func enter(fd int) {
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		panic(fmt.Sprintf("enter a network namespace: %v", err)) // this thread is of no use any more
	}
}

// Socket sends and receives whole Ethernet frames on one interface, as the userspace
// datapath of Open vSwitch does.
type Socket struct {
	t  testing.TB
	fd int
}

// Open returns a Socket for an interface of the present namespace.
func Open(t testing.TB, ifname string) *Socket {
	t.Helper()
	all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("open a packet socket: %v", err)
	}
	s := &Socket{t, fd}
	t.Cleanup(s.Close)
	dev, err := net.InterfaceByName(ifname)
	if err == nil {
		err = errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: dev.Index}))
	}
	if err != nil {
		t.Fatalf("bind a packet socket to %s: %v", ifname, err)
	}
	return s
}

// OpenVNet is Open, and each frame has a struct virtio_net_hdr (10 bytes) in front.
func OpenVNet(t testing.TB, ifname string) *Socket {
	t.Helper()
	s := Open(t, ifname)
	if err := unix.SetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
		t.Fatalf("ask for virtio_net_hdr: %v", err)
	}
	return s
}

// Close closes the socket. Twice is once.
func (s *Socket) Close() {
	if s.fd >= 0 {
		_ = unix.Close(s.fd)
		s.fd = -1
	}
}

// Send sends one frame.
func (s *Socket) Send(frame []byte) {
	s.t.Helper()
	if _, err := unix.Write(s.fd, frame); err != nil {
		s.t.Fatalf("send a frame: %v", err)
	}
}

// Receive returns the next frame, nil if none comes in time.
func (s *Socket) Receive(timeout time.Duration) []byte {
	s.t.Helper()
	tv := unix.NsecToTimeval(max(timeout.Nanoseconds(), 1000))
	if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		s.t.Fatalf("set a timeout: %v", err)
	}
	buf := make([]byte, 1<<16)
	for {
		n, err := unix.Read(s.fd, buf)
		switch {
		case err == nil:
			return buf[:n]
		case errors.Is(err, unix.EAGAIN):
			return nil
		case !errors.Is(err, unix.EINTR):
			s.t.Fatalf("receive a frame: %v", err)
		}
	}
}

// ReceiveBuffer returns the size of the receive buffer as the kernel counts it, bytes.
func (s *Socket) ReceiveBuffer() int {
	n, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		s.t.Fatalf("read the size of the receive buffer: %v", err)
	}
	return n
}

// FD is the namespace's file descriptor, for as long as the test runs.
func (n *NS) FD() int { return n.fd }
