package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// sctpPatience bounds one association.
const sctpPatience = 5 * time.Second

// sctpBytes is what fetch sends before the server answers: enough for retransmissions
// and for packets of all sizes.
const sctpBytes = 1 << 20

// sctpSocket makes an SCTP socket, one association on each (RFC 6458, 4), and has it
// connected or bound by use. The error wraps EPROTONOSUPPORT where the kernel has no SCTP.
func sctpSocket(addr string, use func(fd int, sa unix.Sockaddr) error) (*os.File, error) {
	to, err := net.ResolveTCPAddr("tcp", addr) // the same form
	if err != nil {
		return nil, err
	}
	at := netip.AddrPortFrom(to.AddrPort().Addr().Unmap(), uint16(to.Port))
	family, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: to.Port, Addr: at.Addr().As16()})
	if at.Addr().Is4() {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Port: to.Port, Addr: at.Addr().As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err != nil {
		return nil, fmt.Errorf("make an SCTP socket: %w", err)
	}
	limit := unix.NsecToTimeval(sctpPatience.Nanoseconds())
	err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit)
	if err == nil && family == unix.AF_INET6 && !at.Addr().IsUnspecified() {
		// Or the other side is told that IPv4 will do as well, and names addresses of it, which no NAT translates.
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
	}
	if err == nil {
		err = use(fd, sa)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("sctp://%s: %w", addr, err)
	}
	return os.NewFile(uintptr(fd), "sctp://"+addr), nil
}

// webSCTP serves the client's address by SCTP, for whom sends what fetchSCTP does; where
// the kernel has no SCTP it does nothing.
func webSCTP(listen string) error {
	file, err := sctpSocket(listen, func(fd int, sa unix.Sockaddr) error {
		return errors.Join(unix.Bind(fd, sa), unix.Listen(fd, 16))
	})
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	l, err := net.FileListener(file)
	if err != nil {
		return err
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return fmt.Errorf("accept an association: %w", err)
		}
		go func() {
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(sctpPatience))
			var sum [4]byte
			whole := crc32.NewIEEE()
			if _, err := io.ReadFull(conn, sum[:]); err != nil {
				return
			}
			if _, err := io.CopyN(whole, conn, sctpBytes); err != nil {
				return
			}
			said, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
			if whole.Sum32() != binary.BigEndian.Uint32(sum[:]) {
				said = "damaged on the way"
			}
			_, _ = io.WriteString(conn, said+"\n")
		}()
	}
}

// fetchSCTP sends bytes with their checksum before them, and prints the answer.
func fetchSCTP(addr string) error {
	file, err := sctpSocket(addr, unix.Connect)
	if err != nil {
		return err
	}
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(sctpPatience))
	data := []byte(strings.Repeat("by SCTP, ", sctpBytes/9+1))[:sctpBytes]
	message := append(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(data)), data...)
	const piece = 16 << 10 // one message of SCTP
	for len(message) > 0 {
		n := min(piece, len(message))
		if _, err := conn.Write(message[:n]); err != nil {
			return fmt.Errorf("sctp://%s: %w", addr, err)
		}
		message = message[n:]
	}
	answer, err := io.ReadAll(conn)
	if err == nil && len(answer) == 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("sctp://%s: %w", addr, err)
	}
	_, err = os.Stdout.Write(answer)
	return err
}
