// Package hold keeps ports of this host from being used by others: with a socket that is
// bound to the port and receives nothing. Who else wants the port is refused by the
// kernel, Docker's own proxies as well, and who has it already is found.
//
// It works in the network namespace of the calling thread.
package hold

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"
)

// TakenError says that a port is somebody else's.
type TakenError struct {
	key
}

// Error implements error.
func (e *TakenError) Error() string {
	return fmt.Sprintf("port %s/%s is in use", e.at, e.network)
}

// By names the program that has the port now, and its process; "" if they cannot be
// seen. It looks through all processes.
func (e *TakenError) By() string { return user(e.network, e.at) }

type key struct {
	network string
	at      netip.AddrPort
}

// Sockets are the ports held. The zero value holds none. It is safe for concurrent use.
type Sockets struct {
	mu   sync.Mutex
	held map[key]int // file descriptor; -1: the kernel has no such sockets
}

// Hold holds a port of "tcp", "udp" or "sctp" at one address, or at all addresses of a
// family if it is the unspecified one. What is held is held still. A port that is in use
// is a *TakenError, an address that is not this host's one that says so. A kernel without
// SCTP has nobody else who could use such a port: that is no error.
func (s *Sockets) Hold(network string, at netip.AddrPort) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key{network, at}
	if _, ok := s.held[k]; ok {
		return nil
	}
	fd, err := open(network, at)
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return &TakenError{k}
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Errorf("hold %s/%s: this host has no address %s", at, network, at.Addr())
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("hold %s/%s: %w: the agent lacks CAP_NET_BIND_SERVICE; give it that, or publish a port above 1023", at, network, err)
	case err != nil:
		return fmt.Errorf("hold %s/%s: %w", at, network, err)
	}
	if s.held == nil {
		s.held = map[key]int{}
	}
	s.held[k] = fd
	return nil
}

// Release lets go of a port; one that is not held is no error.
func (s *Sockets) Release(network string, at netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(key{network, at})
}

func (s *Sockets) release(k key) {
	if fd, ok := s.held[k]; ok && fd >= 0 {
		_ = unix.Close(fd)
	}
	delete(s.held, k)
}

// Close lets go of all ports.
func (s *Sockets) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.held {
		s.release(k)
	}
}

// open returns a socket that holds the port, or -1 if there can be none.
func open(network string, at netip.AddrPort) (int, error) {
	switch network {
	case "tcp":
		return openTCP(at)
	case "udp":
		return bound(at, unix.SOCK_DGRAM, unix.IPPROTO_UDP, false)
	case "sctp":
		fd, err := bound(at, unix.SOCK_STREAM, unix.IPPROTO_SCTP, false)
		if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.ESOCKTNOSUPPORT) {
			return -1, nil
		}
		return fd, err
	}
	return -1, fmt.Errorf("%q is none of tcp, udp and sctp", network)
}

// openTCP binds without SO_REUSEADDR, which nobody else's socket is a match for. If old
// connections of the port are in the way (in TIME-WAIT, say), it binds with it, and
// listens for a moment, which the kernel allows once per port; connections are refused
// before and after.
func openTCP(at netip.AddrPort) (int, error) {
	fd, err := bound(at, unix.SOCK_STREAM, unix.IPPROTO_TCP, false)
	if !errors.Is(err, unix.EADDRINUSE) || !remains(at.Port()) {
		return fd, err
	}
	fd, err = bound(at, unix.SOCK_STREAM, unix.IPPROTO_TCP, true)
	if err != nil {
		return -1, err
	}
	err = unix.Listen(fd, 1)
	if err == nil {
		err = unix.Shutdown(fd, unix.SHUT_RD)
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 0)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func bound(at netip.AddrPort, kind, proto int, reuse bool) (int, error) {
	family, addr := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()})
	if at.Addr().Is4() {
		family, addr = unix.AF_INET, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto)
	if err != nil {
		return -1, err
	}
	if family == unix.AF_INET6 {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
	}
	if err == nil && reuse {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	if err == nil && kind == unix.SOCK_DGRAM {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1) // the least: nobody reads
	}
	if err == nil {
		err = unix.Bind(fd, addr)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
