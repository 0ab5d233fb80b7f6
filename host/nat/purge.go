package nat

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/coreos/go-iptables/iptables"
)

// ours begins the names of all our chains.
const ours = "GRAPEVINE-"

// Purge removes the chains of any agent, of this release or another, and what leads to them, in
// both families and with each iptables that the host has: the agent may have used another one
// than the default. It returns what it has removed.
func Purge() (gone []string, err error) {
	var errs []error
	seen := map[string]bool{}
	for _, f := range families {
		for _, name := range []string{command(f), command(f) + "-nft", command(f) + "-legacy", "/usr/libexec/iptables-nft/" + command(f), "/usr/libexec/iptables-legacy/" + command(f)} {
			path, err := exec.LookPath(name)
			if err != nil {
				continue
			}
			ipt, err := iptables.New(iptables.IPFamily(f), iptables.Timeout(5), iptables.Path(path))
			if err != nil {
				errs = append(errs, fmt.Errorf("run %s: %w", path, err))
				continue
			}
			for _, table := range tablesOf(f, path) {
				found, err := purge(ipt, table)
				if err != nil {
					errs = append(errs, fmt.Errorf("table %s, with %s: %w", table, path, err))
				}
				for _, chain := range found {
					if what := command(f) + " " + table + " " + chain; !seen[what] {
						seen[what] = true
						gone = append(gone, what)
					}
				}
			}
		}
	}
	return gone, errors.Join(errs...)
}

// leaveFormer removes the chains that an agent left in the other framework of iptables, before
// somebody chose this one (update-alternatives): its ports and masquerading would hold on, ours
// being in place beside them. It returns what it has removed.
func (n *NAT) leaveFormer() (gone []string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.left {
		return nil, nil
	}
	var errs []error
	for f := range n.open {
		ipt, path, err := n.otherAt(f)
		if err != nil {
			return nil, err
		}
		const table = "nat"
		if ipt == nil || !slices.Contains(tablesOf(f, path), table) {
			continue
		}
		found, err := purge(ipt, table)
		if err != nil {
			errs = append(errs, fmt.Errorf("table %s, with %s: %w", table, path, err))
		}
		for _, chain := range found {
			gone = append(gone, table+" "+chain)
		}
	}
	err = errors.Join(errs...)
	n.left = err == nil
	return gone, err
}

// other is the iptables of the other framework if this host has it, and a table filter there; nil: it
// has not.
func (n *NAT) other(f iptables.Protocol) (*iptables.IPTables, error) {
	ipt, path, err := n.otherAt(f)
	if ipt == nil || !slices.Contains(tablesOf(f, path), "filter") {
		return nil, err
	}
	return ipt, nil
}

func (n *NAT) otherAt(f iptables.Protocol) (ipt *iptables.IPTables, path string, err error) {
	mode, err := n.mode(f)
	if err != nil {
		return nil, "", err
	}
	kind := "legacy"
	if mode == legacy {
		kind = "nft"
		if _, no := Generation(); no != nil {
			return nil, "", nil
		}
	}
	// The managed plugin has each framework's in a directory of its own.
	for _, name := range []string{command(f) + "-" + kind, "/usr/libexec/iptables-" + kind + "/" + command(f)} {
		if path, err = exec.LookPath(name); err == nil {
			if ipt, err = iptables.New(iptables.IPFamily(f), iptables.Timeout(5), iptables.Path(path)); err != nil {
				return nil, "", fmt.Errorf("run %s: %w", path, err)
			}
			return ipt, path, nil
		}
	}
	return nil, "", nil // there is no other
}

// tablesOf are the tables of that iptables. To look at a legacy table makes it: so only those
// that are there.
func tablesOf(f iptables.Protocol, path string) []string {
	all := []string{"filter", "nat", "mangle", "raw"}
	version, err := exec.Command(path, "--version").Output()
	if err == nil && strings.Contains(string(version), string(nfTables)) {
		return all
	}
	list := "/proc/thread-self/net/ip_tables_names"
	if f == iptables.ProtocolIPv6 {
		list = "/proc/thread-self/net/ip6_tables_names"
	}
	text, _ := os.ReadFile(list) // no such file: no tables
	there := strings.Fields(string(text))
	return slices.DeleteFunc(all, func(t string) bool { return !slices.Contains(there, t) })
}

// purge removes our chains from a table. What leads to them goes first.
func purge(ipt *iptables.IPTables, table string) (gone []string, err error) {
	chains, err := ipt.ListChains(table)
	if err != nil {
		return nil, nil //nolint:nilerr // the kernel has no such table, so there is nothing of ours
	}
	var mine []string
	for _, c := range chains {
		if strings.HasPrefix(c, ours) {
			mine = append(mine, c)
		}
	}
	if len(mine) == 0 {
		return nil, nil
	}
	var errs []error
	for _, c := range chains {
		if strings.HasPrefix(c, ours) {
			errs = append(errs, ipt.ClearChain(table, c))
			continue
		}
		rules, err := ipt.List(table, c)
		errs = append(errs, err)
		for _, r := range rules {
			spec, found := strings.CutPrefix(r, "-A "+c+" ")
			if words := Words(spec); found && leads(words, ours) {
				errs = append(errs, ipt.Delete(table, c, words...))
			}
		}
	}
	for _, c := range mine {
		if err := ipt.DeleteChain(table, c); err != nil {
			errs = append(errs, err)
			continue
		}
		gone = append(gone, c)
	}
	return gone, errors.Join(errs...)
}

// leads says whether a rule leads to a chain whose name begins so.
func leads(words []string, name string) bool {
	for i, w := range words {
		if (w == "-j" || w == "-g") && i+1 < len(words) && strings.HasPrefix(words[i+1], name) {
			return true
		}
	}
	return false
}
