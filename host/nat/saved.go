package nat

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coreos/go-iptables/iptables"
)

// saved is what iptables-save tells of a family: of each table its chains, and of these their rules, in the words of
// `iptables -S`. It is had by one process, in place of one for each chain and each jump. nil: it is not known, and
// iptables has to be asked; the same is so of a table that is not in it.
type saved map[string]map[string][]string

// look asks iptables-save, if that is a name of the same program as iptables, and so of the same framework.
func look(f iptables.Protocol) saved {
	path, err := exec.LookPath(command(f) + "-save")
	if err != nil {
		return nil
	}
	if real, err := filepath.EvalSymlinks(path); err != nil || real != realPath(f) {
		return nil
	}
	out, err := exec.Command(path).Output()
	if err != nil {
		return nil
	}
	return parseSaved(string(out))
}

func parseSaved(text string) saved {
	s, table := saved{}, map[string][]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch words := strings.SplitN(line, " ", 3); {
		case strings.HasPrefix(line, "#") && strings.Contains(line, "incompatible"):
			return nil // somebody's nft put something into a table that iptables does not tell
		case strings.HasPrefix(line, "*"):
			table = map[string][]string{}
			s[line[1:]] = table
		case strings.HasPrefix(line, ":"):
			table[words[0][1:]] = []string{}
		case words[0] == "-A" && len(words) == 3:
			table[words[1]] = append(table[words[1]], words[2])
		}
	}
	return s
}

// exists is ipt.ChainExists, of what is known.
func (s saved) exists(ipt *iptables.IPTables, table, name string) (bool, error) {
	if chains, known := s[table]; known {
		_, is := chains[name]
		return is, nil
	}
	return ipt.ChainExists(table, name)
}

// has reports whether it is known that the chain, its rules and its jumps are what they should be.
func (s saved) has(c chain) bool {
	rules, is := s[c.table][c.name]
	return is && slices.Equal(rules, c.rules) && !slices.ContainsFunc(c.jumps, func(j jump) bool { return !s.leads(c, j) })
}

// leads reports whether it is known that the jump is in its place.
func (s saved) leads(c chain, j jump) bool {
	from := s[c.table][j.from]
	if j.first {
		return len(from) > 0 && from[0] == "-j "+c.name
	}
	if j.behind != "" {
		return slices.Index(from, "-j "+c.name) > slices.Index(from, "-j "+j.behind)
	}
	return slices.Contains(from, strings.TrimSpace(j.match+" -j "+c.name))
}

// lacks reports whether it is known that there is no such chain.
func (s saved) lacks(c chain) bool {
	chains, known := s[c.table]
	_, is := chains[c.name]
	return known && !is
}
