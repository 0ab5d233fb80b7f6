package policy

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Domain is a name of DNS as rules name it, in lower case and without a dot at its end: one name, or with *. before it
// all names below that one, and not itself.
type Domain string

var domainName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)+[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
})

// maxDomain is how long a name of DNS can be.
const maxDomain = 253

// isNumber reports whether a last label makes an address, or nothing, of a name (RFC 3696 section 2; WHATWG URL: ends in a number).
func isNumber(label string) bool {
	if hex, is := strings.CutPrefix(label, "0x"); is {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return label != "" && strings.Trim(label, "0123456789") == ""
}

// ParseDomain reads a Domain.
func ParseDomain(text string) (Domain, error) {
	d := CanonicalName(text)
	last := d[strings.LastIndex(d, ".")+1:]
	switch {
	case strings.ContainsFunc(d, func(r rune) bool { return r >= utf8.RuneSelf }):
		return "", fmt.Errorf("%.80q has letters that DNS has not; write the name as DNS has it, which begins with xn--", text)
	case strings.Contains(d, ".") && isNumber(last):
		return "", fmt.Errorf("%.80q is no name of DNS, since it ends in a number; write an address, or a prefix as 192.0.2.0/24", text)
	case len(d) > maxDomain || !domainName().MatchString(d):
		return "", fmt.Errorf("%.80q is no name with a dot in it, as api.github.com is, or *.pypi.org for all names below one", text)
	}
	return Domain(d), nil
}

// CanonicalName is a name of DNS in the one form in which names are compared.
func CanonicalName(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// Matches says whether a name, in its canonical form, is meant.
func (d Domain) Matches(name string) bool {
	if below, any := strings.CutPrefix(string(d), "*"); any {
		return len(name) > len(below) && strings.HasSuffix(name, below)
	}
	return string(d) == name
}

// matchesName says whether the rule's peers are known by a name.
func (r *Rule) matchesName(name string) bool {
	for _, d := range r.Domains {
		if name != "" && d.Matches(name) {
			return true
		}
	}
	return false
}

// Answer is an address that a local endpoint was told when it asked for a name. Only what the host's resolver has from the
// host's servers is one.
type Answer struct {
	Endpoint, Name string
	Addr           netip.Addr
	// Asked is when it was told last, Until when it is closed: new connections may begin before, and go on after.
	Asked, Until time.Time
	Past         bool // it is closed
}

// NamesOf are the names by which rules let an endpoint reach others, as far as it is certain.
func (w World) NamesOf(endpoint string) (list []Domain) {
	e, _ := w.find(Peer{Endpoint: endpoint})
	if e == nil {
		return nil
	}
	networks := knownNetworks(w.Networks)
	for i := range w.Policies {
		p := &w.Policies[i]
		for _, r := range p.Egress {
			if len(r.Domains) > 0 && (r.Action == Accept || r.Action == Pass) && p.Subject.matches(e, networks) == yes {
				list = append(list, r.Domains...)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// never are addresses that no name opens, whoever has it: what is near the container itself, or nobody's, or leads to an
// address of IPv4 by a way that has been given up (RFC 7526, RFC 6890, RFC 2765).
var never = []struct {
	prefix netip.Prefix
	is     string
}{
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"}, {netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"}, {netip.MustParsePrefix("fe80::/10"), "link-local"}, {netip.MustParsePrefix("fec0::/10"), "site-local"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"}, {netip.MustParsePrefix("ff00::/8"), "multicast"},
	{netip.MustParsePrefix("0.0.0.0/8"), "no host's"}, {netip.MustParsePrefix("240.0.0.0/4"), "no host's"}, {netip.MustParsePrefix("::/96"), "no host's"}, {netip.MustParsePrefix("::ffff:0:0/96"), "no host's"}, {netip.MustParsePrefix("::ffff:0:0:0/96"), "no host's"},
	{netip.MustParsePrefix("2002::/16"), "of 6to4"}, {netip.MustParsePrefix("192.88.99.0/24"), "of 6to4"}, {netip.MustParsePrefix("2001::/32"), "of Teredo"},
	{netip.MustParsePrefix("fd67:7261:7065::/64"), "a host's to its containers"}, {netip.MustParsePrefix("fd67:7261:7065:2::/112"), "a caller's of a published port"}, // as 240.0.0.0/4
	// Where clouds have what link-local 169.254.169.254 is elsewhere: who asks there is told its machine's secrets.
	{netip.MustParsePrefix("100.100.100.200/32"), metadata}, {netip.MustParsePrefix("168.63.129.16/32"), metadata}, {netip.MustParsePrefix("192.0.0.192/32"), metadata}, // Alibaba, Azure, Oracle
	{netip.MustParsePrefix("fd00:ec2::254/128"), metadata}, {netip.MustParsePrefix("fd20:ce::254/128"), metadata}, // Amazon, Google
}

const metadata = "where a cloud tells its machines of themselves"

// NeverByName says what an address is that no name opens, or nothing.
func NeverByName(a netip.Addr) (is string) {
	for _, n := range never {
		if n.prefix.Contains(a) {
			return n.is
		}
	}
	return ""
}

// Addresses of IPv6 that lead to one of IPv4: of the first kind by what they end with (RFC 6052), of the second by what
// whoever translates has chosen (RFC 8215): 32 bits at the end, or at one of the lengths of RFC 6052.
var (
	translated = netip.MustParsePrefix("64:ff9b::/96")
	locally    = netip.MustParsePrefix("64:ff9b:1::/48")
)

// Behind are an address, and those to which it may lead.
func Behind(a netip.Addr) []netip.Addr {
	b, list := a.As16(), []netip.Addr{a}
	add := func(at ...int) {
		if b[at[0]] != 0 { // 0.0.0.0/8 is what another reading has
			list = append(list, netip.AddrFrom4([4]byte{b[at[0]], b[at[1]], b[at[2]], b[at[3]]}))
		}
	}
	switch {
	case translated.Contains(a):
		add(12, 13, 14, 15)
	case locally.Contains(a):
		add(12, 13, 14, 15)
		add(6, 7, 9, 10)
		add(7, 9, 10, 11)
		add(9, 10, 11, 12)
	}
	return list
}
