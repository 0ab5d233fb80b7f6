package dns

import (
	"math/rand/v2"
	"net/netip"
	"strings"

	"github.com/miekg/dns"

	"github.com/grapevine-net/grapevine/dns/names"
)

const (
	// ttl of an address, seconds: as long as a container that has gone may be
	// asked for by those who cache. Negative answers are not to be cached at all.
	ttl = 5
	// maxUDP is the largest answer over UDP, bytes: it fits one packet of every
	// underlay (RFC 6891 and the DNS flag day of 2020).
	maxUDP = 1232
)

// verdict says what is to become of a question.
type verdict int

const (
	answered verdict = iota // the reply is the answer
	forward                 // it is not ours
	refused                 // the reply says so
	dropped                 // no reply at all
)

// respond answers a question whose asker is known, or says what else is to be done.
// It is pure but for the order of the addresses, and takes any bytes.
func respond(q *question, x *names.Index, hosts names.Hosts) ([]byte, verdict) {
	if len(q.wire) < headerLen || q.wire[2]&flagQR != 0 {
		return nil, dropped
	}
	v, known := x.View(q.who)
	if q.wire[2]&opcodeMask != 0 {
		return q.pass(v, known) // an update, a notify: for others
	}
	var m dns.Msg
	if err := m.Unpack(q.wire); err != nil || len(m.Question) != 1 {
		return failure(q.wire, dns.RcodeFormatError), answered
	}
	udp := q.network == "udp"
	if opt := m.IsEdns0(); opt != nil && opt.Version() != 0 {
		return pack(&m, badVersion(&m), udp), answered
	}
	if !known {
		return q.pass(v, known)
	}
	if r := resolve(&m, v, hosts); r != nil {
		return pack(&m, r, udp), answered
	}
	return q.pass(v, known)
}

// pass forwards what may leave. From the gateway nothing does for an asker whom
// nobody knows, or all of whose networks are internal, not even a question. From
// inside a sandbox everything goes to Docker's resolver, which keeps rules of its own, and the
// host's own questions may go to its servers.
func (q *question) pass(v names.View, known bool) ([]byte, verdict) {
	if !q.inside && q.who.Networks == nil && (!known || !v.External()) {
		return refuse(q.wire, dns.RcodeRefused), refused
	}
	return nil, forward
}

// resolve returns the answer, or nil if the question is not ours.
func resolve(q *dns.Msg, v names.View, hosts names.Hosts) *dns.Msg {
	ask := q.Question[0]
	if ask.Qclass != dns.ClassINET && ask.Qclass != dns.ClassANY {
		return nil
	}
	if addr, ok := reverseAddr(ask.Name); ok {
		return resolveReverse(q, addr, v, hosts)
	}
	addrs, ok := v.Lookup(ask.Name, rand.IntN(1<<30), hosts)
	if !ok {
		return nil
	}
	r := reply(q)
	for _, a := range addrs {
		if rr := record(ask, a); rr != nil {
			r.Answer = append(r.Answer, rr)
		}
	}
	rand.Shuffle(len(r.Answer), func(i, j int) { r.Answer[i], r.Answer[j] = r.Answer[j], r.Answer[i] })
	return orNothing(r)
}

func resolveReverse(q *dns.Msg, addr netip.Addr, v names.View, hosts names.Hosts) *dns.Msg {
	name, ours := v.Reverse(addr, hosts)
	if !ours {
		return nil
	}
	r, ask := reply(q), q.Question[0]
	if name = dns.Fqdn(name); !printable(name) {
		r.Rcode = dns.RcodeNameError
		return orNothing(r)
	}
	if ask.Qtype == dns.TypePTR || ask.Qtype == dns.TypeANY {
		r.Answer = []dns.RR{&dns.PTR{Hdr: header(ask, dns.TypePTR), Ptr: name}}
	}
	return orNothing(r)
}

// printable reports whether a name can go on the wire and is not the root.
func printable(fqdn string) bool {
	_, ok := dns.IsDomainName(fqdn)
	return ok && fqdn != "."
}

func record(ask dns.Question, a netip.Addr) dns.RR {
	switch {
	case a.Is4() && (ask.Qtype == dns.TypeA || ask.Qtype == dns.TypeANY):
		return &dns.A{Hdr: header(ask, dns.TypeA), A: a.AsSlice()}
	case a.Is6() && (ask.Qtype == dns.TypeAAAA || ask.Qtype == dns.TypeANY):
		return &dns.AAAA{Hdr: header(ask, dns.TypeAAAA), AAAA: a.AsSlice()}
	}
	return nil
}

func header(ask dns.Question, rrtype uint16) dns.RR_Header {
	return dns.RR_Header{Name: ask.Name, Rrtype: rrtype, Class: dns.ClassINET, Ttl: ttl}
}

// reverseAddr returns the address whose reverse name (RFC 1035 section 3.5, RFC
// 3596 section 2.5) this is.
func reverseAddr(name string) (netip.Addr, bool) {
	name = names.Canonical(name)
	if octets, ok := strings.CutSuffix(name, ".in-addr.arpa"); ok {
		parts := strings.Split(octets, ".")
		if len(parts) != 4 {
			return netip.Addr{}, false
		}
		a, err := netip.ParseAddr(parts[3] + "." + parts[2] + "." + parts[1] + "." + parts[0])
		return a, err == nil
	}
	digits, ok := strings.CutSuffix(name, ".ip6.arpa")
	if !ok || len(digits) != 63 || dns.CountLabel(digits) != 32 {
		return netip.Addr{}, false
	}
	var text strings.Builder
	for i := 62; i >= 0; i -= 2 {
		text.WriteByte(digits[i])
		if i > 0 && i%8 == 0 {
			text.WriteByte(':')
		}
	}
	a, err := netip.ParseAddr(text.String())
	return a, err == nil
}
