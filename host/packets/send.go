package packets

import (
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/netns"
)

// Send sends one packet from the namespace of file sandbox, as a program there would: by its routes and through its
// rules. body is what stands behind the header of IP.
func Send(sandbox string, from, to netip.Addr, proto uint8, body []byte) error {
	ns, err := os.Open(sandbox)
	if err != nil {
		return fmt.Errorf("open the sandbox: %w", err)
	}
	defer ns.Close()
	if err := netns.Do(ns, func() error { return send(from, to, proto, body) }); err != nil {
		return fmt.Errorf("send a packet from %s to %s in %s: %w", from, to, sandbox, err)
	}
	return nil
}

func send(from, to netip.Addr, proto uint8, body []byte) error {
	family := unix.AF_INET
	if to.Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(proto))
	if err != nil {
		return fmt.Errorf("open a raw socket: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, sockaddr(from)); err != nil {
		return fmt.Errorf("take the address %s: %w", from, err)
	}
	return unix.Sendto(fd, body, 0, sockaddr(to))
}

func sockaddr(a netip.Addr) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Addr: a.As4()}
	}
	return &unix.SockaddrInet6{Addr: a.As16()}
}

// Routed fails if a sandbox's own routes lead nowhere for what is sent from one address to another. It sends nothing.
func Routed(sandbox string, from, to netip.Addr) error {
	ns, err := os.Open(sandbox)
	if err != nil {
		return fmt.Errorf("open the sandbox: %w", err)
	}
	defer ns.Close()
	if err := netns.Do(ns, func() error { return routed(from, to) }); err != nil {
		return fmt.Errorf("look for a route from %s to %s in %s: %w", from, to, sandbox, err)
	}
	return nil
}

// routed connects a socket of UDP, which is a question for a route alone.
func routed(from, to netip.Addr) error {
	family := unix.AF_INET
	if to.Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, sockaddr(from)); err != nil {
		return fmt.Errorf("take the address %s: %w", from, err)
	}
	const discard = 9
	at := sockaddr(to)
	switch a := at.(type) {
	case *unix.SockaddrInet4:
		a.Port = discard
	case *unix.SockaddrInet6:
		a.Port = discard
	}
	return unix.Connect(fd, at)
}
