package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// OutsideName is a name that the outside's name server, the one of all hosts, knows:
// it has the address OutsideAddr. Beside it it knows what spelled knows.
const OutsideName = "outside.example"

// spelled are names that say their address: 192-0-2-1.addr.example, and whatever is before that, has 192.0.2.1; an
// address of IPv6 has hyphens for its colons. alias.192-0-2-1.addr.example is an alias of an alias of
// 192-0-2-1.cdn.example, which has it. Nothing of them may be kept (TTL 0), but for long.192-0-2-1.addr.example.
func spelled(ask dns.Question) (records []dns.RR, known bool) {
	labels := dns.SplitDomainName(strings.ToLower(ask.Name))
	n := len(labels)
	if n < 3 || labels[n-1] != "example" || labels[n-2] != "addr" && labels[n-2] != "cdn" {
		return nil, false
	}
	addr, err := netip.ParseAddr(strings.ReplaceAll(labels[n-3], "-", "."))
	if err != nil {
		addr, err = netip.ParseAddr(strings.ReplaceAll(labels[n-3], "-", ":"))
	}
	if err != nil {
		return nil, false
	}
	name, ttl := ask.Name, uint32(0)
	if labels[0] == "long" {
		ttl = 600
	}
	if labels[0] == "alias" {
		for _, target := range []string{"b." + labels[n-3] + ".cdn.example.", labels[n-3] + ".cdn.example."} {
			records = append(records, &dns.CNAME{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeCNAME, Class: dns.ClassINET}, Target: target})
			name = target
		}
	}
	switch {
	case addr.Is4() && ask.Qtype == dns.TypeA:
		records = append(records, &dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: ttl}, A: addr.AsSlice()})
	case addr.Is6() && ask.Qtype == dns.TypeAAAA:
		records = append(records, &dns.AAAA{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeAAAA, Class: dns.ClassINET, Ttl: ttl}, AAAA: addr.AsSlice()})
	}
	return records, true
}

// namesMain serves one name with one address, over UDP and TCP, for as long as the box
// lives: namesMain LISTEN [NAME ADDRESS]; OutsideName, if there is none.
func namesMain(args []string) error {
	if len(args) == 1 {
		args = append(args, OutsideName, OutsideAddr)
	}
	if len(args) != 3 {
		return errors.New("usage: LISTEN [NAME ADDRESS]")
	}
	addr, err := netip.ParseAddr(args[2])
	if err != nil {
		return err
	}
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		r := new(dns.Msg).SetReply(q)
		ask := q.Question[0]
		records, known := spelled(ask)
		switch {
		case known && args[1] == OutsideName:
			r.Answer = records
		case !strings.EqualFold(ask.Name, dns.Fqdn(args[1])):
			r.Rcode = dns.RcodeNameError
		case ask.Qtype == dns.TypeA:
			hdr := dns.RR_Header{Name: ask.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}
			r.Answer = []dns.RR{&dns.A{Hdr: hdr, A: addr.AsSlice()}}
		}
		_ = w.WriteMsg(r)
	})
	ended := make(chan error)
	for _, network := range []string{"udp", "tcp"} {
		go func() { ended <- (&dns.Server{Addr: args[0], Net: network, Handler: handler}).ListenAndServe() }()
	}
	return <-ended
}

// dockersResolver is what a container's resolv.conf names.
const dockersResolver = "127.0.0.11:53"

// ask asks a server as dig(1) does, and prints the answer in its words:
// ask [@SERVER] [+tcp] [+bufsize=N] TYPE[,TYPE] NAME. Without a size the question has no EDNS.
func ask(args []string, out io.Writer) error {
	server, client, edns := dockersResolver, &dns.Client{Timeout: 5 * time.Second}, uint16(0)
	for ; len(args) > 2; args = args[1:] {
		option, value, _ := strings.Cut(args[0], "=")
		size, err := strconv.ParseUint(value, 10, 16)
		switch {
		case strings.HasPrefix(option, "@"):
			server = net.JoinHostPort(option[1:], "53")
		case option == "+tcp":
			client.Net = "tcp"
		case option == "+bufsize" && err == nil:
			edns = uint16(size)
		default:
			return fmt.Errorf("%q is none of @SERVER, +tcp and +bufsize=N", args[0])
		}
	}
	if len(args) != 2 {
		return errors.New("usage: [@SERVER] [+tcp] [+bufsize=N] TYPE[,TYPE] NAME")
	}
	for rrtype := range strings.SplitSeq(args[0], ",") {
		if dns.StringToType[rrtype] == 0 {
			return fmt.Errorf("%q is no type of a record", rrtype)
		}
		q := new(dns.Msg)
		if edns > 0 {
			q.SetEdns0(edns, false)
		}
		q.SetQuestion(dns.Fqdn(args[1]), dns.StringToType[rrtype])
		r, _, err := client.Exchange(q, server)
		if err != nil {
			return fmt.Errorf("ask %s for %s: %w", server, args[1], err)
		}
		fmt.Fprint(out, r)
	}
	return nil
}

// Dig asks the container's resolver, or the server that is named, as one of its programs
// would: [@SERVER] [+tcp] [+bufsize=N] TYPE NAME, as dig(1) has them. It returns the
// answer in dig's form.
func (c Container) Dig(ctx context.Context, args ...string) (string, error) {
	out, err := c.inside(ctx, roleAsk, args...)
	if err != nil {
		return "", fmt.Errorf("in %s on %s: %w", c.Name, c.Host.Name, err)
	}
	return out, nil
}

// Lookup asks the container's resolver for the addresses of a name, as one of its
// programs would, of both families. A name that is not known has none.
func (c Container) Lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	lines, err := c.ask(ctx, name, "A", "AAAA")
	if err != nil {
		return nil, err
	}
	var found []netip.Addr
	for _, line := range lines {
		addr, err := netip.ParseAddr(line)
		if err != nil {
			return nil, err
		}
		found = append(found, addr)
	}
	return found, nil
}

// LookupAddr asks the container's resolver for the names of an address.
func (c Container) LookupAddr(ctx context.Context, addr netip.Addr) ([]string, error) {
	name, err := dns.ReverseAddr(addr.String())
	if err != nil {
		return nil, err
	}
	names, err := c.ask(ctx, name, "PTR")
	for i := range names {
		names[i] = strings.TrimSuffix(names[i], ".")
	}
	return names, err
}

// answerCode matches dig's first line: ";; opcode: QUERY, status: NOERROR, id: 4711".
var answerCode = regexp.MustCompile(`status: (\w+)`)

// ask returns the values of the answers' records of those types; that there is no such name
// is no record, every other failure an error.
func (c Container) ask(ctx context.Context, name string, types ...string) (values []string, err error) {
	out, err := c.Dig(ctx, strings.Join(types, ","), name)
	if err != nil {
		return nil, err
	}
	codes := answerCode.FindAllStringSubmatch(out, -1)
	wrong := slices.ContainsFunc(codes, func(c []string) bool { return c[1] != "NOERROR" && c[1] != "NXDOMAIN" })
	if len(codes) != len(types) || wrong {
		return nil, fmt.Errorf("in %s on %s: %s is answered with:\n%s", c.Name, c.Host.Name, name, out)
	}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 5 && slices.Contains(types, f[3]) { // name, TTL, IN, type, value
			values = append(values, f[4])
		}
	}
	return values, nil
}
