package dns

import (
	"errors"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// OutsideMark is the mark (SO_MARK) of what the resolver sends to servers that containers
// named, for rules about what those may reach: it leaves by the host's OUTPUT, though the
// containers' own would be forwarded.
const OutsideMark = 0x67760036

// errMayNot is why a server is not asked.
var errMayNot = errors.New("the container may not reach that server")

// toServer is the route to a server that a container named: not there, if the container
// would not get there by itself.
func (s *Server) toServer(asker netip.Addr, server netip.AddrPort) route {
	if s.cfg.May != nil {
		if err := s.cfg.May(asker, server.Addr()); err != nil {
			s.cfg.Log.Debug("a server is not asked", "asker", asker, "server", server, "why", err)
			return route{denied: errMayNot}
		}
	}
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, OutsideMark) }); e != nil {
			return e
		}
		return err
	}}
	return route{servers: []netip.AddrPort{server}, dial: d.DialContext, budget: budget, resend: resendAfter}
}
