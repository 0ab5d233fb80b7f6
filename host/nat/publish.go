package nat

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/coreos/go-iptables/iptables"
)

// Published leads a port of this host to one of a container, of one family, or a run of ports
// to a run of the same length.
type Published struct {
	Proto string // "tcp", "udp" or "sctp"
	// Host is what is connected to; of the unspecified address, all of the host's.
	Host netip.AddrPort
	To   netip.AddrPort // the container's
	More uint16         // ports behind these two lead there as well
}

// ErrStale says that the rules are in place, while flows from before them may go on as
// they were for up to two minutes after their last packet.
var ErrStale = errors.New("old flows of published ports are not forgotten")

// Publish declares all ports that are published, in any order, and applies what is
// missing; after an error other than ErrStale, what was published before is so still.
// Before the first Set they are only noted, so that an agent that starts finds the rules
// of the one before as they should be. What conntrack remembers of ports that come or go
// is forgotten, but for TCP, whose connections end by themselves.
func (n *NAT) Publish(_ context.Context, all []Published) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.published
	n.published = slices.Clone(all)
	if !n.set {
		return nil
	}
	if err := n.applyPorts(); err != nil {
		n.published = before
		return errors.Join(err, n.applyPorts())
	}
	if err := forget(difference(all, before), difference(before, all)); err != nil {
		return fmt.Errorf("%w: %w", ErrStale, err)
	}
	return nil
}

// applyPorts makes the chains that depend on what is published.
func (n *NAT) applyPorts() error {
	var errs []error
	for _, f := range families {
		chains := slices.DeleteFunc(chainsFor(n.cfg, n.published, n.here, f), func(c chain) bool {
			return c.name != Ports && c.name != Hairpin && c.name != Postrouting
		})
		if len(chains) > 0 {
			errs = append(errs, n.applyChains(f, chains, look(f)))
		}
	}
	return errors.Join(errs...)
}

// difference returns what of a is not in b.
func difference(a, b []Published) (out []Published) {
	in := make(map[Published]bool, len(b))
	for _, p := range b {
		in[p] = true
	}
	for _, p := range a {
		if !in[p] {
			out = append(out, p)
		}
	}
	return out
}

// portJumps lead what is for the host itself to the published ports. Addresses of the
// loopback interface are the host's own business: nobody else may use them to get at
// what is published for the host alone.
func portJumps(f iptables.Protocol) []jump {
	const local = "-m addrtype --dst-type LOCAL"
	return []jump{{from: "PREROUTING", match: fmt.Sprintf("! -d %v %s", loopback(f), local)}, {from: "OUTPUT", match: local}}
}

func loopback(f iptables.Protocol) netip.Prefix {
	if f == iptables.ProtocolIPv6 {
		return netip.PrefixFrom(netip.IPv6Loopback(), 128)
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8)
}

// portRules are those of one family. Internal networks have no way to the host's ports
// either.
func portRules(cfg Config, published []Published, f iptables.Protocol) (rules []string) {
	for _, p := range sorted(published, f) {
		rules = append(rules, p.rule())
	}
	if rules == nil {
		return nil
	}
	var returns []string
	for _, p := range outermost(cfg.Internal, f) {
		returns = append(returns, fmt.Sprintf("-s %v -i %s -j RETURN", p, cfg.Interface))
	}
	return append(returns, rules...)
}

func (p Published) rule() string {
	to := ""
	if a := p.Host.Addr(); !a.IsUnspecified() {
		to = fmt.Sprintf("-d %v ", netip.PrefixFrom(a, a.BitLen()))
	}
	if p.Host.Addr().Is6() {
		// Linux forwards nothing that comes from a link-local address (RFC 4291, 2.5.6): the host
		// itself answers that.
		to = "! -s fe80::/10 " + to
	}
	return fmt.Sprintf("%s-p %s -m %s --dport %s -j DNAT --to-destination %s", to, p.Proto, p.Proto, span(p.Host.Port(), p.More, ":"), p.target())
}

// target is the container's, in iptables' words: alone, or its address if its ports are those of
// the host, or else its ports by those of the host (iptables-extensions(8), DNAT; Linux 4.18).
func (p Published) target() string {
	switch {
	case p.More == 0:
		return p.To.String()
	case p.To.Port() == p.Host.Port():
		return p.To.Addr().String()
	}
	a := p.To.Addr().String()
	if p.To.Addr().Is6() {
		a = "[" + a + "]"
	}
	return fmt.Sprintf("%s:%s/%d", a, span(p.To.Port(), p.More, "-"), p.Host.Port())
}

func span(first, more uint16, sep string) string {
	if more == 0 {
		return strconv.Itoa(int(first))
	}
	return fmt.Sprintf("%d%s%d", first, sep, first+more)
}

func sorted(published []Published, f iptables.Protocol) (out []Published) {
	for _, p := range published {
		if is(f, p.To.Addr()) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b Published) int {
		if a.Host.Port() != b.Host.Port() {
			return int(a.Host.Port()) - int(b.Host.Port())
		}
		if c := a.Host.Addr().Compare(b.Host.Addr()); c != 0 {
			return c
		}
		return len(a.Proto) - len(b.Proto) + 2*(int(a.Proto[0])-int(b.Proto[0]))
	})
	return out
}

// hairpinRules give connections of the host itself to
// published ports, and of other hosts to containers, the address of the gateway: a container could not
// answer 127.0.0.1 or ::1, nor, if it has no default route or several networks, another
// host. Of all gateways it is
// that of the container's own subnet, whose answer takes the same way whatever other
// networks the container is on.
func hairpinRules(cfg Config, published []Published, f iptables.Protocol) (rules []string) {
	gateways := slices.SortedFunc(slices.Values(cfg.Gateways), func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	for _, g := range gateways {
		used := slices.ContainsFunc(published, func(p Published) bool { return g.Contains(p.To.Addr()) })
		if (used || len(cfg.Hosts) > 0) && is(f, g.Addr()) {
			rules = append(rules, fmt.Sprintf("-d %v -j SNAT --to-source %v", g.Masked(), g.Addr()))
		}
	}
	return rules
}
