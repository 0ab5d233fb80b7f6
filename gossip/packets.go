package gossip

import (
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// packets reads and writes a socket's packets by system calls of which Go's scheduler is not told. It would wake its monitor with
// each one after the process has slept, which then looks every 20 us whether the call has ended; these never wait in the kernel, and
// at rest a packet is most of what the process wakes for.
type packets struct {
	conn syscall.RawConn
	v6   bool // its addresses are IPv6, and IPv4 ones mapped

	// Of the one who reads, so that nothing is made for a packet.
	buf    []byte
	n      int
	from   unix.RawSockaddrInet6
	failed syscall.Errno
	try    func(fd uintptr) bool
}

func newPackets(udp *net.UDPConn) (*packets, error) {
	conn, err := udp.SyscallConn()
	if err != nil {
		return nil, err
	}
	p := &packets{conn: conn}
	p.try = p.receive
	var domain int
	if failed := conn.Control(func(fd uintptr) { domain, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DOMAIN) }); failed != nil {
		return nil, failed
	}
	p.v6 = domain == unix.AF_INET6
	return p, os.NewSyscallError("getsockopt", err)
}

// read waits for a packet, and may be called by one goroutine at a time.
func (p *packets) read(buf []byte) (n int, from netip.AddrPort, err error) {
	p.buf = buf
	if err := p.conn.Read(p.try); err != nil {
		return 0, from, err
	}
	if p.failed != 0 {
		return 0, from, os.NewSyscallError("recvfrom", p.failed)
	}
	return p.n, addrPort(&p.from), nil
}

func (p *packets) receive(fd uintptr) (done bool) {
	for {
		size := uint32(unsafe.Sizeof(p.from))
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p.buf))), uintptr(len(p.buf)), unix.MSG_DONTWAIT,
			uintptr(unsafe.Pointer(&p.from)), uintptr(unsafe.Pointer(&size)))
		if errno == unix.EINTR {
			continue
		}
		p.n, p.failed = int(n), errno
		return errno != unix.EAGAIN
	}
}

// write sends a packet, and waits for room in the socket. It may be called concurrently.
func (p *packets) write(b []byte, to netip.AddrPort) error {
	var at unix.RawSockaddrInet6
	size := uintptr(unsafe.Sizeof(at))
	if p.v6 {
		at.Family, at.Addr = unix.AF_INET6, to.Addr().As16()
		if zone := to.Addr().Zone(); zone != "" {
			if at.Scope_id = scope(zone); at.Scope_id == 0 {
				return &net.AddrError{Err: "no interface has this name", Addr: to.String()}
			}
		}
	} else {
		if !to.Addr().Unmap().Is4() {
			return &net.AddrError{Err: "an IPv4 socket sends to no IPv6 address", Addr: to.String()}
		}
		short := (*unix.RawSockaddrInet4)(unsafe.Pointer(&at))
		short.Family, short.Addr, size = unix.AF_INET, to.Addr().Unmap().As4(), unsafe.Sizeof(*short)
	}
	port := (*[2]byte)(unsafe.Pointer(&at.Port)) // at the same place in both
	port[0], port[1] = byte(to.Port()>>8), byte(to.Port())
	var errno syscall.Errno
	err := p.conn.Write(func(fd uintptr) (done bool) {
		for {
			_, _, errno = unix.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, uintptr(unsafe.Pointer(&at)), size)
			if errno != unix.EINTR {
				return errno != unix.EAGAIN
			}
		}
	})
	if err != nil {
		return err
	}
	if errno != 0 {
		return os.NewSyscallError("sendto", errno)
	}
	return nil
}

func scope(zone string) uint32 {
	if i, err := net.InterfaceByName(zone); err == nil {
		return uint32(i.Index)
	}
	n, _ := strconv.ParseUint(zone, 10, 32)
	return uint32(n)
}

// addrPort is the address that a packet came from.
func addrPort(at *unix.RawSockaddrInet6) netip.AddrPort {
	bytes := (*[2]byte)(unsafe.Pointer(&at.Port)) // at the same place in both
	port := uint16(bytes[0])<<8 | uint16(bytes[1])
	if at.Family == unix.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(at)).Addr), port)
	}
	a := netip.AddrFrom16(at.Addr).Unmap()
	if at.Scope_id != 0 && a.Is6() {
		a = a.WithZone(strconv.FormatUint(uint64(at.Scope_id), 10))
	}
	return netip.AddrPortFrom(a, port)
}
