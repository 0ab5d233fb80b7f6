package nat

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/coreos/go-iptables/iptables"
)

// Chains' names.
const (
	Postrouting = "GRAPEVINE-POSTROUTING"
	Forward     = "GRAPEVINE-FORWARD"
	Prerouting  = "GRAPEVINE-PREROUTING"
	Input       = "GRAPEVINE-INPUT"
	Ports       = "GRAPEVINE-PORTS"
	Hairpin     = "GRAPEVINE-HAIRPIN"
	Output      = "GRAPEVINE-OUTPUT"
)

// chainsFor returns the chains of a family, in an order in which they can be made; nil:
// it needs none. A chain without rules is not to be there.
func chainsFor(cfg Config, published []Published, here map[netip.Addr]bool, f iptables.Protocol) []chain {
	sources := outermost(cfg.CIDRs, f)
	if sources == nil {
		return nil
	}
	gw := cfg.Interface
	hairpin := hairpinRules(cfg, published, f)
	masquerade := append(cfg.servedRules(f), cfg.sourceRules(f, here)...)
	for _, p := range sources {
		masquerade = append(masquerade, cfg.masquerade(fmt.Sprintf("-s %v ! -o %s", p, gw))...)
	}
	forward := append(cfg.untranslated(f), cfg.shut(sources)...)
	for _, p := range outermost(cfg.Hosts, f) {
		// What this host itself sends from there goes to other hosts as it is.
		if hairpin != nil {
			masquerade = append(masquerade, fmt.Sprintf("-s %v -o %s -m addrtype ! --src-type LOCAL -j %s", p, gw, Hairpin))
		}
		forward = append(forward, fmt.Sprintf("-s %v -i %s -o %s -j ACCEPT", p, gw, gw))
	}
	for _, p := range outermost(cfg.Open, f) {
		forward = append(forward, fmt.Sprintf("-d %v ! -i %s -o %[2]s -j ACCEPT", p, gw))
	}
	if hairpin != nil {
		masquerade = append(masquerade, fmt.Sprintf("-s %v -o %s -m conntrack --ctstate DNAT -j %s", loopback(f), gw, Hairpin))
		masquerade = append(masquerade, callerRules(cfg, sources, f)...)
	}
	return []chain{
		{"nat", Hairpin, nil, hairpin},
		// What others masquerade first would leave by another address than it is to, or by an exposed port, or come to a
		// container as this host.
		{"nat", Postrouting, []jump{{from: "POSTROUTING", first: len(cfg.servedRules(f)) > 0 || len(cfg.Exposed) > 0 || hairpin != nil}}, masquerade},
		{"filter", Forward, []jump{{from: "FORWARD", behind: dockerUser}}, append(forward,
			// Answers, and published ports.
			"-o "+gw+" -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT",
			// Nothing else. (Package filter drops it whatever comes before this rule.)
			"-o "+gw+" -j DROP",
			"-i "+gw+" -j ACCEPT",
		)},
		{"nat", Ports, portJumps(f), portRules(cfg, published, f)},
		{"nat", Prerouting, []jump{{from: "PREROUTING"}}, cfg.rulesIn(f, "nat", "PREROUTING")},
		{"filter", Input, []jump{{from: "INPUT"}}, cfg.rulesIn(f, "filter", "INPUT")},
		{"filter", Output, []jump{{from: "OUTPUT"}}, nil}, // agents before this one had rules there
	}
}

func (cfg Config) rulesIn(f iptables.Protocol, table, chain string) (rules []string) {
	for _, r := range cfg.Rules {
		if familyOf(r.V6) == f && r.Table == table && r.Chain == chain {
			rules = append(rules, r.Text)
		}
	}
	return rules
}

// outermost returns the prefixes of a family that lie in no other one, in order.
func outermost(all []netip.Prefix, f iptables.Protocol) (out []netip.Prefix) {
	sorted := slices.SortedFunc(slices.Values(all), func(a, b netip.Prefix) int {
		if c := a.Masked().Addr().Compare(b.Masked().Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits() // the widest first
	})
	for _, p := range sorted {
		if is(f, p.Addr()) && (out == nil || !out[len(out)-1].Overlaps(p)) {
			out = append(out, p.Masked())
		}
	}
	return out
}

func is(f iptables.Protocol, a netip.Addr) bool { return a.Is4() == (f == iptables.ProtocolIPv4) }
