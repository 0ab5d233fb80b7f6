package policy

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"
)

// Domain is a name of DNS as rules name it, in lower case and without a dot at its end: one name, or with *. before it
// all names below that one, and not itself.
type Domain string

var domainName = regexp.MustCompile(`^(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)+[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// maxDomain is how long a name of DNS can be.
const maxDomain = 253

// ParseDomain reads a Domain.
func ParseDomain(text string) (Domain, error) {
	d := CanonicalName(text)
	_, err := netip.ParseAddr(d)
	if len(d) > maxDomain || !domainName.MatchString(d) || err == nil {
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
