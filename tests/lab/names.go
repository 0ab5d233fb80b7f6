package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// OutsideName is a name that the outside's name server, the one of all hosts, knows:
// it has the address OutsideAddr. It knows no other.
const OutsideName = "outside.example"

// namesMain serves OutsideName, for as long as the box lives.
func namesMain(listen string) error {
	server := &dns.Server{Addr: listen, Net: "udp", Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		r := new(dns.Msg).SetReply(q)
		ask := q.Question[0]
		switch {
		case !strings.EqualFold(ask.Name, dns.Fqdn(OutsideName)):
			r.Rcode = dns.RcodeNameError
		case ask.Qtype == dns.TypeA:
			hdr := dns.RR_Header{Name: ask.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}
			r.Answer = []dns.RR{&dns.A{Hdr: hdr, A: netip.MustParseAddr(OutsideAddr).AsSlice()}}
		}
		_ = w.WriteMsg(r)
	})}
	return server.ListenAndServe()
}

// dockersResolver is what a container's resolv.conf names.
const dockersResolver = "127.0.0.11:53"

// askMain prints what a server answers: askMain SERVER TYPE NAME. What comes is the
// code of the answer, then one address or name a line.
func askMain(args []string) error {
	if len(args) != 3 {
		return errors.New("usage: SERVER TYPE NAME")
	}
	q := new(dns.Msg).SetQuestion(dns.Fqdn(args[2]), dns.StringToType[args[1]])
	client := &dns.Client{Timeout: 5 * time.Second}
	r, _, err := client.Exchange(q, args[0])
	if err != nil {
		return fmt.Errorf("ask %s for %s: %w", args[0], args[2], err)
	}
	fmt.Println(dns.RcodeToString[r.Rcode])
	for _, rr := range r.Answer {
		switch rr := rr.(type) {
		case *dns.A:
			fmt.Println(rr.A)
		case *dns.AAAA:
			fmt.Println(rr.AAAA)
		case *dns.PTR:
			fmt.Println(rr.Ptr)
		}
	}
	return nil
}

// Lookup asks the container's resolver for the addresses of a name, as one of its
// programs would, of both families. A name that is not known has none.
func (c Container) Lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	var found []netip.Addr
	for _, family := range []string{"A", "AAAA"} {
		lines, err := c.ask(ctx, dockersResolver, family, name)
		if err != nil {
			return nil, err
		}
		for _, line := range lines {
			addr, err := netip.ParseAddr(line)
			if err != nil {
				return nil, err
			}
			found = append(found, addr)
		}
	}
	return found, nil
}

// LookupAddr asks the container's resolver for the names of an address.
func (c Container) LookupAddr(ctx context.Context, addr netip.Addr) ([]string, error) {
	name, err := dns.ReverseAddr(addr.String())
	if err != nil {
		return nil, err
	}
	names, err := c.ask(ctx, dockersResolver, "PTR", name)
	for i := range names {
		names[i] = strings.TrimSuffix(names[i], ".")
	}
	return names, err
}

// ask returns the lines of an answer; that there is no such name is an empty one,
// every other failure an error.
func (c Container) ask(ctx context.Context, server, rrtype, name string) ([]string, error) {
	out, err := c.exec(ctx, []string{roleVar + "=" + roleAsk}, []string{labhost, server, rrtype, name})
	if err != nil {
		return nil, fmt.Errorf("in %s on %s: %w", c.Name, c.Host.Name, err)
	}
	lines := strings.Fields(out)
	if code := lines[0]; code != "NOERROR" && code != "NXDOMAIN" {
		return nil, fmt.Errorf("in %s on %s: %s is answered with %s", c.Name, c.Host.Name, name, code)
	}
	return lines[1:], nil
}
