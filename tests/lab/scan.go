package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// firstScanned is the first port that is scanned: what serves has a lower one.
const firstScanned = 1024

// scanMain opens so many connections to an address, as a port scan does: scanMain ADDRESS COUNT. Each is one SYN to a
// port, or from a port, of its own. It prints how many packets have left the interface: when it succeeds, COUNT.
func scanMain(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: ADDRESS COUNT")
	}
	to, err := netip.ParseAddr(args[0])
	if err != nil || !to.Is4() {
		return fmt.Errorf("%s is no IPv4 address", args[0])
	}
	count, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	probe, err := net.Dial("udp4", netip.AddrPortFrom(to, firstScanned).String()) // sends nothing, and says from where
	if err != nil {
		return err
	}
	from := probe.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
	_ = probe.Close()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	before, err := droppedBy("eth0")
	if err != nil {
		return err
	}
	at := &unix.SockaddrInet4{Addr: to.As4()}
	for sent, next, lost := 0, 0, 0; ; sent = next - lost {
		if sent == count {
			fmt.Println(sent)
			return nil
		}
		for range count - sent {
			err := unix.Sendto(fd, synTo(from, to, next), 0, at)
			for errors.Is(err, unix.ENOBUFS) { // the interface's queue is full
				time.Sleep(time.Millisecond)
				err = unix.Sendto(fd, synTo(from, to, next), 0, at)
			}
			if err != nil {
				return fmt.Errorf("send a SYN: %w", err)
			}
			next++
		}
		if lost, err = droppedBy("eth0"); err != nil {
			return err
		}
		lost -= before
	}
}

// droppedBy is how many packets an interface has not passed on, which nobody else saw then.
func droppedBy(name string) (n int, err error) {
	text, err := os.ReadFile("/proc/thread-self/net/dev")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		const dropped = 11 // behind the eight of what came in: bytes, packets and errors
		if of, fields, _ := strings.Cut(line, ":"); strings.TrimSpace(of) == name {
			if f := strings.Fields(fields); len(f) > dropped {
				return strconv.Atoi(f[dropped])
			}
		}
	}
	return 0, fmt.Errorf("nothing is said of %s in %q", name, text)
}

// synTo is the nth SYN.
func synTo(from, to netip.Addr, n int) []byte {
	const ports = 1<<16 - firstScanned
	b := make([]byte, 20)
	binary.BigEndian.PutUint16(b, uint16(40000+n/ports))
	binary.BigEndian.PutUint16(b[2:], uint16(firstScanned+n%ports))
	binary.BigEndian.PutUint32(b[4:], uint32(n))
	b[12], b[13] = 5<<4, 2 // the header's length, and SYN
	binary.BigEndian.PutUint16(b[14:], 1024)
	sum := uint32(6 + len(b))
	for _, part := range [][]byte{from.AsSlice(), to.AsSlice(), b} {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(b[16:], ^uint16(sum))
	return b
}

// Scan has a program in the container send so many SYNs to an address, each to a port of its own, or from one.
func (c Container) Scan(ctx context.Context, to, count string) (string, error) {
	out, err := c.exec(ctx, []string{roleVar + "=" + roleScan}, []string{labhost, to, count})
	if err != nil {
		return "", fmt.Errorf("in %s on %s: %w", c.Name, c.Host.Name, err)
	}
	return out, nil
}
