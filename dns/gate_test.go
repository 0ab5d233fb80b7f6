package dns

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/grapevine-net/grapevine/cluster"
)

// doorkeeper is a Gate: by these names the container app reaches others.
type doorkeeper struct {
	names []string

	mu    sync.Mutex
	open  []string
	fails error
}

func (d *doorkeeper) Covers(endpoint, name string) bool {
	return endpoint == container(1, hostA, "blue", "", nil).ID && slices.Contains(d.names, name)
}

func (d *doorkeeper) Open(_ context.Context, _, name string, list []Told) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range list {
		d.open = append(d.open, fmt.Sprint(name, " ", t.Addr, " ", t.TTL))
	}
	return d.fails
}

// at has a server ask it, and name servers of the host.
func (d *doorkeeper) at(servers ...netip.AddrPort) func(*Server) {
	return func(s *Server) {
		s.cfg.Gate = d
		s.host = resolvConf{path: "/nonexistent", servers: servers}
	}
}

// opened is what was opened since the last call.
func (d *doorkeeper) opened() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer func() { d.open = nil }()
	return strings.Join(d.open, ", ")
}

// zone answers with the records that a name has, in the form of a zone file.
func zone(t testing.TB, of map[string][]string) dns.HandlerFunc {
	return func(w dns.ResponseWriter, q *dns.Msg) {
		r := new(dns.Msg).SetReply(q)
		for _, line := range of[strings.ToLower(q.Question[0].Name)] {
			rr, err := dns.NewRR(line)
			if err != nil {
				t.Error(err)
			}
			r.Answer = append(r.Answer, rr)
		}
		_ = w.WriteMsg(r)
	}
}

// TestGate: by a name that is covered, over UDP and TCP, the host's server is asked and not the container's; each address
// that its answer has for that name is opened before the answer is there, and what belongs to others is not.
func TestGate(t *testing.T) {
	hosts := upstream(t, zone(t, map[string][]string{
		"api.example.com.":   {"API.example.com. 30 IN A 192.0.2.1", "evil.example.net. 30 IN A 10.1.0.9"},
		"chain.example.com.": {"b.cdn. 9 IN A 192.0.2.3", "b.cdn. 9 IN AAAA 2001:db8::3", "a.cdn. 5 IN CNAME b.cdn.", "chain.example.com. 0 IN CNAME a.cdn."},
		"svc.example.com.":   {`svc.example.com. 7 IN HTTPS 1 . alpn="h2" ipv4hint="192.0.2.4" ipv6hint="2001:db8::4"`},
		"loop.example.com.":  {"loop.example.com. 5 IN CNAME x.", "x. 5 IN CNAME loop.example.com."},
		"other.example.com.": {"other.example.com. 5 IN A 192.0.2.9"},
	}))
	d := &doorkeeper{names: []string{"api.example.com", "chain.example.com", "svc.example.com", "loop.example.com", "nobody.example.com"}}
	_, f := atLoopback(t, newSource(town(t)), direct(upstream(t, tells("203.0.113.66"))), d.at(hosts))
	for _, network := range []string{"udp", "tcp"} {
		for _, c := range []struct {
			name   string
			qtype  uint16
			answer string // "": whatever it is
			opened string
		}{
			{"Api.Example.com", dns.TypeA, "", "api.example.com 192.0.2.1 30s"},
			{"chain.example.com", dns.TypeA, "", "chain.example.com 192.0.2.3 9s, chain.example.com 2001:db8::3 9s"},
			{"svc.example.com", dns.TypeHTTPS, "", "svc.example.com 192.0.2.4 7s, svc.example.com 2001:db8::4 7s"},
			{"loop.example.com", dns.TypeA, "", ""},
			{"nobody.example.com", dns.TypeA, "NOERROR", ""},
			{"other.example.com", dns.TypeA, "NOERROR 203.0.113.66", ""}, // not covered: as ever
			{`api\.example.com`, dns.TypeA, "NOERROR 203.0.113.66", ""},
			{"db", dns.TypeA, "NOERROR 10.1.0.3", ""},
		} {
			answer := ask(t, network, f.addrOf(network), c.name, c.qtype)
			if got := d.opened(); got != c.opened || c.answer != "" && answer != c.answer {
				t.Errorf("%s over %s: %q was opened, want %q; the answer is %q, want %q", c.name, network, got, c.opened, answer, c.answer)
			}
		}
	}
	d.mu.Lock()
	d.fails = errors.New("the switch is down")
	d.mu.Unlock()
	if got := ask(t, "udp", f.addrOf("udp"), "api.example.com", dns.TypeA); got != "SERVFAIL" {
		t.Errorf("what cannot be opened is told: %q", got)
	}
}

// TestGateIsForExternalNetworks: an internal network leads nowhere, and so does no question from there.
func TestGateIsForExternalNetworks(t *testing.T) {
	d := &doorkeeper{names: []string{"api.example.com"}}
	src := newSource(town(t))
	_, f := atLoopback(t, src, route{denied: errors.New("nobody")}, d.at(upstream(t, tells("192.0.2.1"))))
	if got := ask(t, "udp", f.addrOf("udp"), "api.example.com", dns.TypeA); got != "NOERROR 192.0.2.1" {
		t.Fatal(got)
	}
	src.put(t, cluster.Network{Name: "blue", VNID: 1, Internal: true})
	until(t, func() bool { return ask(t, "udp", f.addrOf("udp"), "api.example.com", dns.TypeA) == "REFUSED" })
}

// TestLifetime: a time to live with the highest bit set is none.
func TestLifetime(t *testing.T) {
	for ttl, want := range map[uint32]time.Duration{0: 0, 60: time.Minute, math.MaxInt32: math.MaxInt32 * time.Second, math.MaxInt32 + 1: 0, math.MaxUint32: 0} {
		m := dns.Msg{Answer: []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: "api.example.com.", Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: ttl}, A: net.IPv4(192, 0, 2, 1)}}}
		if list := addressesOf(&m, "api.example.com"); len(list) != 1 || list[0].TTL != want {
			t.Errorf("time to live %d: %v, want %s", ttl, list, want)
		}
	}
}

// FuzzAddressesOf: whatever an answer has, what is opened is an address of it.
func FuzzAddressesOf(f *testing.F) {
	var m dns.Msg
	m.SetQuestion("api.example.com.", dns.TypeA)
	for _, line := range []string{"api.example.com. 5 IN CNAME b.cdn.", "b.cdn. 5 IN A 192.0.2.1", "x. 5 IN A 192.0.2.2", "b.cdn. 5 IN HTTPS 1 . ipv4hint=192.0.2.3"} {
		rr, err := dns.NewRR(line)
		if err != nil {
			f.Fatal(err)
		}
		m.Answer = append(m.Answer, rr)
	}
	wire, err := m.Pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(wire)
	f.Fuzz(func(t *testing.T, wire []byte) {
		var m dns.Msg
		if m.Unpack(wire) != nil {
			return
		}
		has := map[netip.Addr]bool{}
		see := func(ip net.IP) {
			a, _ := netip.AddrFromSlice(ip)
			has[a] = true
		}
		for _, rr := range m.Answer {
			switch r := rr.(type) {
			case *dns.A:
				see(r.A.To4())
			case *dns.AAAA:
				see(r.AAAA.To16())
			case *dns.HTTPS:
				hints(r.Value, see)
			case *dns.SVCB:
				hints(r.Value, see)
			}
		}
		for _, one := range addressesOf(&m, "api.example.com") {
			if !one.Addr.IsValid() || !has[one.Addr] || one.TTL < 0 {
				t.Errorf("%+v of %s", one, &m)
			}
		}
	})
}
