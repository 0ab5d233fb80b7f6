package dns

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/grapevine-net/grapevine/dns/names"
)

// Host has programs of the host itself ask, which containers' networks do not concern otherwise: one without Docker.
type Host struct {
	// At is the address, of the loopback network, and the port where they ask.
	At netip.AddrPort
	// Networks says which networks they may know the names of.
	Networks func(network string) bool
}

// HostAddress is where they ask, unless another resolver has it: an address that no other one uses, as systemd-resolved
// has 127.0.0.53 and Docker 127.0.0.11.
var HostAddress = netip.MustParseAddrPort("127.0.0.79:53")

// stubs are where systemd-resolved answers programs: it asks here, and is not asked back.
var stubs = []netip.Addr{netip.MustParseAddr("127.0.0.53"), netip.MustParseAddr("127.0.0.54")}

// hostFront is what became of the sockets for the host's own programs.
type hostFront struct{ trouble atomic.Pointer[string] }

// HostTrouble says why the host's own programs are not answered; "": they are, or none is to ask.
func (s *Server) HostTrouble() string {
	if why := s.own.trouble.Load(); why != nil {
		return *why
	}
	return ""
}

// listenHost answers the host's own programs for as long as ctx lasts, and tries again where it cannot.
func (s *Server) listenHost(ctx context.Context) {
	for ctx.Err() == nil {
		f, err := openFront(ctx, net.ListenConfig{}, "4", s.cfg.Host.At.String())
		if err == nil {
			s.own.trouble.Store(nil)
			f.identify = s.atHost
			err = s.serve(ctx, f)
			f.close()
		}
		if err != nil && ctx.Err() == nil {
			why := err.Error()
			s.own.trouble.Store(&why)
		}
		sleep(ctx, s.look)
	}
}

// atHost completes a question of one of the host's own programs.
func (s *Server) atHost(q *question, _, _ netip.AddrPort) {
	q.who = names.Asker{Networks: s.cfg.Host.Networks}
	q.asker = "the host"
	q.route = s.hostRoute
}

// asks reports whether a server's address is this resolver's own, or of one that asks it.
func (h *Host) asks(a netip.Addr) bool {
	return h != nil && (a == h.At.Addr() || slices.Contains(stubs, a))
}
