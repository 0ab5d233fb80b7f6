package speaker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/config"
)

// dial calls the router.
func (p *peer) dial(ctx context.Context) (net.Conn, error) {
	var password []byte
	if file := p.router.PasswordFile; file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the password of the session: %w", err)
		}
		if password = bytes.TrimSpace(text); len(password) == 0 {
			return nil, fmt.Errorf("the file %s with the password of the session is empty", file)
		}
	}
	d := net.Dialer{Timeout: greeting, Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = prepare(int(fd), p.router, password) })
		return errors.Join(err, failed)
	}}
	return d.DialContext(ctx, "tcp", p.router.Addr.String())
}

// farthest is the TTL of what has passed no router.
const farthest = 255

// prepare has a socket sign what it sends, and send as far as can be, so that a router that wants to be near can tell.
func prepare(fd int, r config.Router, password []byte) error {
	level, ttl, least := unix.IPPROTO_IP, unix.IP_TTL, unix.IP_MINTTL
	if r.Addr.Addr().Is6() {
		level, ttl, least = unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, unix.IPV6_MINHOPCOUNT
	}
	if err := unix.SetsockoptInt(fd, level, ttl, farthest); err != nil {
		return fmt.Errorf("set the TTL of packets to the router: %w", err)
	}
	if r.Near {
		if err := unix.SetsockoptInt(fd, level, least, farthest); err != nil {
			return fmt.Errorf("take packets of the near alone: %w", err)
		}
	}
	if len(password) == 0 {
		return nil
	}
	var sig unix.TCPMD5Sig
	if len(password) > len(sig.Key) {
		return fmt.Errorf("the password of the session has %d bytes, and TCP MD5 takes %d at most", len(password), len(sig.Key))
	}
	sig.Keylen = uint16(copy(sig.Key[:], password))
	sig.Addr.Family = unix.AF_INET
	at := 2 // behind the port
	if r.Addr.Addr().Is6() {
		sig.Addr.Family, at = unix.AF_INET6, 6 // and the flow label
	}
	copy(sig.Addr.Data[at:], r.Addr.Addr().AsSlice())
	if err := unix.SetsockoptTCPMD5Sig(fd, unix.IPPROTO_TCP, unix.TCP_MD5SIG, &sig); err != nil {
		return fmt.Errorf("sign packets to the router (TCP MD5): %w", err)
	}
	return nil
}

// hopsOf are the addresses to which a router sends what is for this host: that of the session and, of the other family, one
// of the same interface.
func hopsOf(local net.Addr) (h hops) {
	at, err := netip.ParseAddrPort(local.String())
	if err != nil {
		return h
	}
	own := at.Addr().Unmap().WithZone("")
	take := func(a netip.Addr) {
		if a.Is4() && !h.v4.IsValid() {
			h.v4 = a
		}
		if a.Is6() && !h.v6.IsValid() {
			h.v6 = a
		}
	}
	take(own)
	all, err := net.Interfaces()
	if err != nil {
		return h
	}
	for _, i := range all {
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		var list []netip.Prefix
		here := false
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				list = append(list, p)
				here = here || p.Addr() == own
			}
		}
		for _, p := range list {
			if here && p.Addr().IsGlobalUnicast() && !p.IsSingleIP() { // one that is alone moves from host to host
				take(p.Addr())
			}
		}
	}
	return h
}
