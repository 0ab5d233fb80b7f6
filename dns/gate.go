package dns

import (
	"context"
	"errors"
	"math"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/grapevine-net/grapevine/dns/names"
)

// Gate opens to containers what they may reach by name alone.
type Gate interface {
	// Covers reports whether an endpoint may reach others by this name: in lower case, without a dot at its end.
	Covers(endpoint, name string) bool
	// Open returns when the addresses that an endpoint is about to be told by a name are open to it. It is called before
	// the answer leaves; what was not opened is not told.
	Open(ctx context.Context, endpoint, name string, list []Told) error
}

// Told is an address of an answer.
type Told struct {
	Addr netip.Addr
	TTL  time.Duration
}

// maxChain is the longest chain of aliases that is followed, if it comes in the wrong order.
const maxChain = 16

// openBudget is how long it may take until an address is open.
const openBudget = time.Second

// gated is a question for a name by which its askers may reach others.
type gated struct {
	name      string
	endpoints []string
}

// gated says whether a question is for such a name. Of those only that the networks lead out of the cluster is any: the
// host is asked, and internal networks are to reach nothing by that.
func (s *Server) gated(q *question) (g gated) {
	if s.cfg.Gate == nil || q.wire[2]&opcodeMask != 0 {
		return g
	}
	var m dns.Msg
	if m.Unpack(q.wire) != nil || len(m.Question) != 1 || m.Question[0].Qclass != dns.ClassINET {
		return g
	}
	g.name = names.Canonical(m.Question[0].Name)
	if strings.Contains(g.name, "\\") {
		return gated{} // a dot within a label is none between labels
	}
	endpoints := q.who.Endpoints
	if q.who.Addr.IsValid() {
		id, here := s.index.At(q.who.Addr)
		if !here {
			return gated{}
		}
		endpoints = []string{id}
	}
	for _, e := range endpoints {
		if s.cfg.Gate.Covers(e, g.name) {
			g.endpoints = append(g.endpoints, e)
		}
	}
	if len(g.endpoints) == 0 {
		return gated{}
	}
	if v, known := s.index.View(q.who); !known || !v.External() {
		return gated{}
	}
	return g
}

// hostRoute is the route to the host's servers, from the host: what a container, or its namespace, says has no part in it.
func (s *Server) hostRoute() route {
	var d net.Dialer
	return route{servers: s.hostServers(), dial: d.DialContext, budget: budget, resend: resendAfter}
}

// open opens what an answer tells.
func (s *Server) open(ctx context.Context, g gated, wire []byte) error {
	var m dns.Msg
	if err := m.Unpack(wire); err != nil {
		return err
	}
	list := addressesOf(&m, g.name)
	if len(list) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, openBudget)
	defer cancel()
	var errs []error
	for _, e := range g.endpoints {
		errs = append(errs, s.cfg.Gate.Open(ctx, e, g.name, list))
	}
	return errors.Join(errs...)
}

// addressesOf are the addresses that an answer gives a name, at the end of whatever chain of aliases (CNAME), and those
// that it hints at (RFC 9460). What belongs to another name is not among them.
func addressesOf(m *dns.Msg, name string) (list []Told) {
	if m.Rcode != dns.RcodeSuccess {
		return nil
	}
	own := map[string]bool{name: true}
	for more, tries := true, 0; more && tries < maxChain; tries++ { // in whatever order
		more = false
		for _, rr := range m.Answer {
			if c, ok := rr.(*dns.CNAME); ok && own[names.Canonical(c.Hdr.Name)] && !own[names.Canonical(c.Target)] {
				own[names.Canonical(c.Target)], more = true, true
			}
		}
	}
	for _, rr := range m.Answer {
		h := rr.Header()
		if !own[names.Canonical(h.Name)] || h.Class != dns.ClassINET {
			continue
		}
		add := func(ip net.IP) {
			if a, ok := netip.AddrFromSlice(ip); ok {
				list = append(list, Told{a, lifetime(h.Ttl)})
			}
		}
		switch r := rr.(type) {
		case *dns.A:
			add(r.A.To4())
		case *dns.AAAA:
			add(r.AAAA.To16())
		case *dns.HTTPS:
			hints(r.Value, add)
		case *dns.SVCB:
			hints(r.Value, add)
		}
	}
	return list
}

// lifetime is a time to live: one with the highest bit set is 0 (RFC 2181 section 8).
func lifetime(ttl uint32) time.Duration {
	if ttl > math.MaxInt32 {
		return 0
	}
	return time.Duration(ttl) * time.Second
}

// hints are the addresses that go with a service.
func hints(pairs []dns.SVCBKeyValue, add func(net.IP)) {
	for _, p := range pairs {
		switch v := p.(type) {
		case *dns.SVCBIPv4Hint:
			for _, ip := range v.Hint {
				add(ip.To4())
			}
		case *dns.SVCBIPv6Hint:
			for _, ip := range v.Hint {
				add(ip.To16())
			}
		}
	}
}
