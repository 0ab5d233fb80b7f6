package nat

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/coreos/go-iptables/iptables"
)

// chain is one chain of ours, jumped to from a built-in one.
type chain struct {
	table, name, from string
	// rules in the words and order in which `iptables -S` prints them.
	rules []string
}

// Chains' names.
const (
	Postrouting = "GRAPEVINE-POSTROUTING"
	Forward     = "GRAPEVINE-FORWARD"
	Prerouting  = "GRAPEVINE-PREROUTING"
	Input       = "GRAPEVINE-INPUT"
)

// chainsFor returns the chains of a family; nil: it needs none. A chain without rules is
// not to be there.
func chainsFor(cfg Config, f iptables.Protocol) []chain {
	var masquerade []string
	for _, p := range slices.SortedFunc(slices.Values(cfg.CIDRs), netip.Prefix.Compare) {
		if p.Addr().Is4() == (f == iptables.ProtocolIPv4) {
			masquerade = append(masquerade, fmt.Sprintf("-s %v ! -o %s -j MASQUERADE", p.Masked(), cfg.Interface))
		}
	}
	if masquerade == nil {
		return nil
	}
	gw := cfg.Interface
	return []chain{
		{"nat", Postrouting, "POSTROUTING", slices.Compact(masquerade)},
		{"filter", Forward, "FORWARD", []string{
			// Answers, and published ports. What else comes from outside is for the
			// host's own rules to decide.
			"-o " + gw + " -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT",
			// Networks meet in the switch, which knows who may reach whom, not here.
			"-i " + gw + " -o " + gw + " -j DROP",
			"-i " + gw + " -j ACCEPT",
		}},
		{"nat", Prerouting, "PREROUTING", cfg.rulesIn("nat", "PREROUTING")},
		{"filter", Input, "INPUT", cfg.rulesIn("filter", "INPUT")},
	}
}

func (cfg Config) rulesIn(table, chain string) (rules []string) {
	for _, r := range cfg.Rules {
		if r.Table == table && r.Chain == chain {
			rules = append(rules, r.Text)
		}
	}
	return rules
}

func (c chain) jump() []string { return []string{"-j", c.name} }

// ensure makes chain, rules and jump what they should be. New rules go in front of
// the old ones before those go. The jump is put first, but left where it is if other
// programs have put theirs before it.
func (c chain) ensure(ipt *iptables.IPTables) error {
	have, err := c.list(ipt)
	if err != nil {
		return c.wrap(err)
	}
	if !slices.Equal(have, c.rules) {
		for i, r := range c.rules {
			if err := ipt.Insert(c.table, c.name, i+1, strings.Fields(r)...); err != nil {
				return c.wrap(err)
			}
		}
		for range have {
			if err := ipt.DeleteById(c.table, c.name, len(c.rules)+1); err != nil {
				return c.wrap(err)
			}
		}
	}
	return c.wrap(ipt.InsertUnique(c.table, c.from, 1, c.jump()...))
}

// list returns the rules, of a new chain if there was none.
func (c chain) list(ipt *iptables.IPTables) ([]string, error) {
	lines, err := ipt.List(c.table, c.name)
	if isGone(err) {
		return nil, ipt.NewChain(c.table, c.name)
	}
	var rules []string
	for _, l := range lines {
		if r, ok := strings.CutPrefix(l, "-A "+c.name+" "); ok {
			rules = append(rules, r)
		}
	}
	return rules, err
}

// remove removes jumps and chain.
func (c chain) remove(ipt *iptables.IPTables) error {
	exists, err := ipt.ChainExists(c.table, c.name)
	if err != nil || !exists {
		return c.wrap(err)
	}
	for {
		found, err := ipt.Exists(c.table, c.from, c.jump()...)
		if err != nil {
			return c.wrap(err)
		}
		if !found {
			return c.wrap(ipt.ClearAndDeleteChain(c.table, c.name))
		}
		if err := ipt.DeleteIfExists(c.table, c.from, c.jump()...); err != nil {
			return c.wrap(err)
		}
	}
}

func (c chain) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("chain %s of table %s: %w", c.name, c.table, err)
}

// isGone says whether iptables found no such chain.
func isGone(err error) bool {
	var e *iptables.Error
	if !errors.As(err, &e) || e.ExitStatus() != 1 {
		return false
	}
	// iptables-nft up to 1.8.9 calls a chain that is not there "incompatible".
	return e.IsNotExist() || strings.Contains(e.Error(), "No such file") || strings.Contains(e.Error(), "is incompatible, use 'nft' tool")
}
