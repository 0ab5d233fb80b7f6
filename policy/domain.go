package policy

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Domain is a name of DNS as rules name it, in lower case and without a dot at its end: one name, or with *. before it
// all names below that one, and not itself.
type Domain string

var domainName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)+[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
})

// maxDomain is how long a name of DNS can be.
const maxDomain = 253

// ParseDomain reads a Domain.
func ParseDomain(text string) (Domain, error) {
	d := CanonicalName(text)
	_, err := netip.ParseAddr(d)
	if len(d) > maxDomain || !domainName().MatchString(d) || err == nil {
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

// never are addresses that no name opens, whoever has it: what is near the container itself, or nobody's.
var never = []struct{ prefix, is string }{
	{"127.0.0.0/8", "loopback"}, {"::1/128", "loopback"}, {"169.254.0.0/16", "link-local"}, {"fe80::/10", "link-local"}, {"224.0.0.0/4", "multicast"}, {"ff00::/8", "multicast"},
	{"0.0.0.0/8", "no host's"}, {"240.0.0.0/4", "no host's"}, {"::/96", "no host's"}, {"::ffff:0:0/96", "no host's"},
}

// NeverByName says what an address is that no name opens, or nothing.
func NeverByName(a netip.Addr) (is string) {
	for _, n := range never {
		if netip.MustParsePrefix(n.prefix).Contains(a) {
			return n.is
		}
	}
	return ""
}

// translated are addresses of IPv6 that lead to one of IPv4, which they end with (RFC 6052).
var translated = netip.MustParsePrefix("64:ff9b::/96")

// Untranslated is the address to which one leads.
func Untranslated(a netip.Addr) netip.Addr {
	if b := a.As16(); translated.Contains(a) {
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return a
}
