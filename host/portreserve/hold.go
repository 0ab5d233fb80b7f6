// Package portreserve keeps ports of this host from being used by others: with a socket that is
// bound to the port and receives nothing. Who else wants the port is refused by the
// kernel, Docker's own proxies as well, and who has it already is found.
//
// It works in the network namespace of the calling thread.
package portreserve

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

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

// Behind is how far the port lies behind the first of a run.
func (e *TakenError) Behind(first uint16) int { return int(e.at.Port() - first) }

type key struct {
	network string
	at      netip.AddrPort
}

// Sockets are the ports held. The zero value holds none. It is safe for concurrent use.
type Sockets struct {
	mu   sync.Mutex
	held map[key]int // file descriptor; -1: the kernel has no such sockets
	// limit is how many may be held; 0: three quarters of the files that this process may have
	// open, since without any it could do nothing else.
	limit int
}

func (s *Sockets) most() int {
	if s.limit == 0 {
		var r unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
			return 512
		}
		s.limit = int(min(r.Cur, 1<<20) / 4 * 3)
	}
	return s.limit
}

// With calls f with the socket that holds a port, which stays open meanwhile, and reports whether
// there is one.
func (s *Sockets) With(network string, at netip.AddrPort, f func(fd int) error) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fd, ok := s.held[key{network, at}]
	if !ok || fd < 0 {
		return false, nil
	}
	return true, f(fd)
}

// Hold holds a port of "tcp", "udp" or "sctp" at one address, or at all addresses of a
// family if it is the unspecified one. What is held is held still. A port that is in use
// is a *TakenError, an address that is not this host's one that says so. A kernel without
// SCTP has nobody else who could use such a port: that is no error.
func (s *Sockets) Hold(network string, at netip.AddrPort) error {
	firstStart()
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key{network, at}
	if _, ok := s.held[k]; ok {
		return nil
	}
	if most := s.most(); len(s.held) >= most {
		return fmt.Errorf("hold %s/%s: %d published ports are held, and of the files that the agent may have open no more are for that: "+
			"raise its limit (LimitNOFILE= of its unit, or of Docker's for the plugin), or publish fewer ports", at, network, len(s.held))
	}
	fd, err := open(network, at)
	if err != nil {
		return explain(k, err)
	}
	if s.held == nil {
		s.held = map[key]int{}
	}
	s.held[k] = fd
	return nil
}

// explain is why a port cannot be had.
func explain(k key, err error) error {
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return &TakenError{k}
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Errorf("hold %s/%s: this host has no address %s", k.at, k.network, k.at.Addr())
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("hold %s/%s: %w: the agent lacks CAP_NET_BIND_SERVICE; give it that, or publish a port above 1023", k.at, k.network, err)
	}
	return fmt.Errorf("hold %s/%s: %w", k.at, k.network, err)
}

// Wide is how many ports of a run are held at most: of a wider one it is only looked whether
// somebody else has one of them, since each socket costs memory of the kernel, and a file.
const Wide = 4096

// HoldRun holds a port and more behind it, all or none. Of a run of more than Wide it holds none,
// and says, whenever it is called, whether one of them is somebody else's.
func (s *Sockets) HoldRun(network string, at netip.AddrPort, more uint16) error {
	if int(more) >= Wide {
		return s.look(network, at, more)
	}
	var fresh []netip.AddrPort
	for n := range int(more) + 1 {
		one := netip.AddrPortFrom(at.Addr(), at.Port()+uint16(n))
		had := s.holds(network, one)
		if err := s.Hold(network, one); err != nil {
			for _, f := range fresh {
				s.Release(network, f)
			}
			return err
		}
		if !had {
			fresh = append(fresh, one)
		}
	}
	return nil
}

func (s *Sockets) holds(network string, at netip.AddrPort) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.held[key{network, at}]
	return ok
}

// look finds a port of a run that is somebody else's.
func (s *Sockets) look(network string, at netip.AddrPort, more uint16) error {
	suspects := []uint16{0} // any port: whether there is such an address
	for _, other := range tables(network) {
		port := other.local.Port()
		if port >= at.Port() && port-at.Port() <= more && inTheWay(other, netip.AddrPortFrom(at.Addr(), port)) {
			suspects = append(suspects, port)
		}
	}
	for _, port := range suspects {
		one := netip.AddrPortFrom(at.Addr(), port)
		if s.holds(network, one) {
			continue
		}
		fd, err := open(network, one)
		if err != nil {
			return explain(key{network, one}, err)
		}
		if fd >= 0 {
			letGo(network, one, fd)
		}
	}
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
		letGo(k.network, k.at, fd)
	}
	delete(s.held, k)
}

// firstStart has package os make its first process, which is to see what the kernel can do. That one is
// started without ForkLock: letGo could not keep it from having a copy of what it tries.
var firstStart = sync.OnceFunc(func() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Release()
	}
})

// forkPatience is how long a process may take, on a busy host, from its start to its exec.
const forkPatience = time.Second

// letGo closes a socket and waits until its port is free. A process that is being started has
// copies of all files of this one until it becomes the other program: whoever has the port next,
// as when it passes from one of a container's networks to another, was refused it meanwhile.
func letGo(network string, at netip.AddrPort, fd int) {
	syscall.ForkLock.RLock() // none is started now, so that nobody gets a copy of what is tried here
	defer syscall.ForkLock.RUnlock()
	_ = unix.Close(fd)
	for end := time.Now().Add(forkPatience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		fd, err := open(network, at)
		if err == nil && fd >= 0 {
			_ = unix.Close(fd)
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			return
		}
	}
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

// IPv6 reports whether sockets of this host can have IPv6 addresses, as Docker asks before it
// publishes at them.
func IPv6() bool {
	fd, err := bound(netip.AddrPortFrom(netip.IPv6Loopback(), 0), unix.SOCK_STREAM, unix.IPPROTO_TCP, false)
	if err != nil {
		return false
	}
	_ = unix.Close(fd)
	return true
}
