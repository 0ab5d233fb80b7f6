package nat

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/coreos/go-iptables/iptables"
)

// Forbid gives the chain FORWARD of a family the policy DROP, as Docker does when it turns
// forwarding on: what no rule accepts is not forwarded.
func (n *NAT) Forbid(v6 bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forbidden[familyOf(v6)] = true
	return n.policy(familyOf(v6), "DROP")
}

// Forbidden says that Forbid was called by an agent before this one. Whoever changed the
// policy since had a reason; but when all rules have gone, it is set again with ours.
func (n *NAT) Forbidden(v6 bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forbidden[familyOf(v6)] = true
}

// Allow takes Forbid back.
func (n *NAT) Allow(v6 bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	f := familyOf(v6)
	delete(n.forbidden, f)
	delete(n.elsewhere, f)
	err := n.policy(f, "ACCEPT")
	drops, ours, err2 := n.former(f)
	if drops && ours {
		var ipt *iptables.IPTables
		if ipt, err2 = n.other(f); err2 == nil {
			err2 = ipt.ChangePolicy("filter", "FORWARD", "ACCEPT")
		}
	}
	return errors.Join(err, err2)
}

// Bridges are Docker's own. Where Docker makes no rules of a family (IPv6 before Engine 27, or
// as daemon.json has it) what they send and get passes all the same while the policy is
// ours: Docker would not have set it.
func (n *NAT) Bridges(names []string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if slices.Equal(n.bridges, names) {
		return nil
	}
	n.bridges = slices.Clone(names)
	if !n.set || len(n.forbidden) == 0 {
		return nil
	}
	return n.apply()
}

// chains are those of a family: chainsFor's, with what depends on Docker's.
func (n *NAT) chains(f iptables.Protocol, have saved) ([]chain, error) {
	chains := chainsFor(n.cfg, n.published, n.here, f)
	if chains == nil {
		return nil, nil
	}
	ipt, err := n.tables(f)
	if err != nil {
		return nil, err
	}
	if n.forbidden[f] && len(n.bridges) > 0 {
		switch there, err := have.exists(ipt, "filter", "DOCKER"); {
		case err != nil:
			return nil, err
		case !there:
			for _, b := range n.bridges {
				appendTo(chains, Forward, "-i "+b+" -j ACCEPT", "-o "+b+" -j ACCEPT")
			}
		}
	}
	return chains, nil
}

func appendTo(chains []chain, name string, rules ...string) {
	for i := range chains {
		if chains[i].name == name {
			chains[i].rules = append(chains[i].rules, rules...)
		}
	}
}

func familyOf(v6 bool) iptables.Protocol {
	if v6 {
		return iptables.ProtocolIPv6
	}
	return iptables.ProtocolIPv4
}

func (n *NAT) policy(f iptables.Protocol, policy string) error {
	ipt, err := n.tables(f)
	if err == nil {
		err = ipt.ChangePolicy("filter", "FORWARD", policy)
	}
	if err != nil {
		return fmt.Errorf("set the policy of %s' chain FORWARD to %s: %w", command(f), policy, err)
	}
	return nil
}

// keepPolicy sets the policy again when our chain has gone, and so, all the others: unless somebody
// has only chosen the other framework (update-alternatives). What the former one drops stays dropped, and
// a policy in this one would stop what others' rules in the former let pass. Once the former has lost its
// rules as well, the policy is this one's.
func (n *NAT) keepPolicy(f iptables.Protocol, ipt *iptables.IPTables, have saved) error {
	if !n.forbidden[f] {
		return nil
	}
	there, err := have.exists(ipt, "filter", Forward)
	if err != nil || there && !n.elsewhere[f] {
		return err
	}
	drops, ours, err := n.former(f)
	if err != nil {
		return err
	}
	if n.elsewhere[f] = drops || there && ours; n.elsewhere[f] {
		return nil
	}
	return n.policy(f, "DROP")
}

// former says whether the chain FORWARD of the other framework has the policy DROP, and leads to ours.
func (n *NAT) former(f iptables.Protocol) (drops, ours bool, err error) {
	ipt, err := n.other(f)
	if ipt == nil {
		return false, false, err
	}
	rules, err := ipt.List("filter", "FORWARD")
	if err != nil {
		return false, false, fmt.Errorf("look at the other framework of %s: %w", command(f), err)
	}
	return slices.Contains(rules, "-P FORWARD DROP"), slices.Contains(rules, "-A FORWARD -j "+Forward), nil
}

// dockerUser is the chain for rules that are to come before Docker's: people's own.
const dockerUser = "DOCKER-USER"

// put puts the jump into its place: first, or behind the one to another chain, so that
// what that drops is not accepted before. It is added before an earlier one is removed.
func (c chain) put(ipt *iptables.IPTables, j jump) error {
	if j.behind == "" && !j.first {
		return ipt.InsertUnique(c.table, j.from, 1, j.spec(c.name)...)
	}
	lines, err := ipt.List(c.table, j.from)
	if err != nil {
		return err
	}
	rules := chain{name: j.from}.parse(lines)
	ours, other := slices.Index(rules, "-j "+c.name), slices.Index(rules, "-j "+j.behind)
	if j.first && ours == 0 || !j.first && ours > other {
		return nil
	}
	if err := ipt.Insert(c.table, j.from, other+2, j.spec(c.name)...); err != nil || ours < 0 {
		return err
	}
	if j.first {
		ours++ // the one that is new is before it
	}
	return ipt.Delete(c.table, j.from, strconv.Itoa(ours+1))
}
