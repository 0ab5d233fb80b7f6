package nat

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/coreos/go-iptables/iptables"
)

// chain is one chain of ours.
type chain struct {
	table, name string
	jumps       []jump
	// rules in the words and order in which `iptables -S` prints them.
	rules []string
}

// jump leads from a built-in chain to one of ours: all packets, or those that match. Its
// place is behind the jump to another chain, if that is there; or it is to stay first.
type jump struct {
	from, match, behind string
	first               bool
}

func (j jump) spec(to string) []string {
	return append(Words(j.match), "-j", to)
}

// ensure makes chain, rules and jumps what they should be; rules change all at once. A
// jump is put first, but left where it is if other programs have put theirs before it, unless it is to stay first.
func (c chain) ensure(ipt *iptables.IPTables) error {
	have, err := c.list(ipt)
	if noTable(err) {
		name := command(ipt.Proto())
		return fmt.Errorf("this kernel has no table %s of %s, without which containers reach neither the outside nor published ports by that family: "+
			"load its module (%s_%s), or use networks of the other family only: %w", c.table, name, strings.TrimSuffix(name, "s"), c.table, err)
	}
	if err != nil {
		return c.wrap(err)
	}
	if have == nil || !slices.Equal(have, c.rules) {
		if err := c.replace(ipt.Proto()); err != nil {
			return c.wrap(err)
		}
	}
	var errs []error
	for _, j := range c.jumps {
		errs = append(errs, c.wrap(c.put(ipt, j)))
	}
	return errors.Join(errs...)
}

// list returns the rules, nil if there is no such chain.
func (c chain) list(ipt *iptables.IPTables) ([]string, error) {
	lines, err := ipt.List(c.table, c.name)
	if isGone(err) {
		return nil, nil
	}
	return c.parse(lines), err
}

// parse returns the rules of the chain, not nil, in lines of `iptables -S`.
func (c chain) parse(lines []string) []string {
	rules := []string{}
	for _, l := range lines {
		if r, ok := strings.CutPrefix(l, "-A "+c.name+" "); ok {
			rules = append(rules, r)
		}
	}
	return rules
}

// replace makes the chain with its rules, or gives them to the one that is there, in
// one transaction of the kernel.
func (c chain) replace(f iptables.Protocol) error {
	var script bytes.Buffer
	fmt.Fprintf(&script, "*%s\n:%s - [0:0]\n", c.table, c.name)
	for _, r := range c.rules {
		fmt.Fprintf(&script, "-A %s %s\n", c.name, r)
	}
	script.WriteString("COMMIT\n")
	cmd := exec.Command(command(f)+"-restore", "--noflush", "-w", "5")
	cmd.Stdin = &script
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd, err, bytes.TrimSpace(out))
	}
	return nil
}

// remove removes jumps and chain.
func (c chain) remove(ipt *iptables.IPTables) error {
	exists, err := ipt.ChainExists(c.table, c.name)
	if noTable(err) {
		return nil
	}
	if err != nil || !exists {
		return c.wrap(err)
	}
	for _, j := range c.jumps {
		if err := c.removeJump(ipt, j); err != nil {
			return c.wrap(err)
		}
	}
	if err := ipt.ClearChain(c.table, c.name); err != nil {
		return c.wrap(err)
	}
	err = ipt.DeleteChain(c.table, c.name)
	if err != nil && c.leftTo(ipt) {
		return nil
	}
	return c.wrap(err)
}

// leftTo reports whether a rule of somebody else's leads to the chain. The kernel keeps such a chain, and
// the rule is not ours to remove: the empty chain does nothing.
func (c chain) leftTo(ipt *iptables.IPTables) bool {
	chains, err := ipt.ListChains(c.table)
	if err != nil {
		return false
	}
	for _, from := range chains {
		rules, err := ipt.List(c.table, from)
		if err == nil && slices.ContainsFunc(rules, func(r string) bool { return leads(Words(r), c.name) }) {
			return true
		}
	}
	return false
}

func (c chain) removeJump(ipt *iptables.IPTables, j jump) error {
	for {
		found, err := ipt.Exists(c.table, j.from, j.spec(c.name)...)
		if err != nil || !found {
			return err
		}
		if err := ipt.DeleteIfExists(c.table, j.from, j.spec(c.name)...); err != nil {
			return err
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

// noTable says whether the kernel has no such table at all: it was built without the
// family's iptables, or started with ipv6.disable=1.
func noTable(err error) bool {
	var e *iptables.Error
	return errors.As(err, &e) && e.ExitStatus() == 3 && strings.Contains(e.Error(), "can't initialize")
}
