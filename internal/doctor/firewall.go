package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/grapevine-net/grapevine/api"
)

// Packet is one that has to get through the firewall: the first of its connection.
type Packet struct {
	Chain    string // INPUT, OUTPUT or FORWARD
	In, Out  string // interfaces, as far as the chain knows them
	Src, Dst netip.Addr
	Proto    string // "tcp" or "udp"
	Port     uint16 // it goes to
	For      string // for people: "gossip from host2"
}

// tables are the rules of the filter table as iptables-save prints them.
type tables struct {
	policy map[string]string
	rules  map[string][]string
}

func parseTables(text string) tables {
	t := tables{map[string]string{}, map[string][]string{}}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, found := strings.CutPrefix(line, ":"); found {
			if f := strings.Fields(name); len(f) > 1 {
				t.policy[f[0]] = f[1]
			}
		}
		if rule, found := strings.CutPrefix(line, "-A "); found {
			chain, _, _ := strings.Cut(rule, " ")
			t.rules[chain] = append(t.rules[chain], line)
		}
	}
	return t
}

// dropped returns the rule or policy that drops the packet, "" if none does. Rules with
// conditions that are not understood count as if they did not match.
func (t tables) dropped(p Packet) string {
	switch verdict, by := t.walk(p.Chain, p, map[string]bool{}); {
	case verdict == "DROP":
		return by
	case verdict == "" && t.policy[p.Chain] == "DROP":
		return "the policy of " + p.Chain + ", DROP"
	}
	return ""
}

// walk goes through a chain and returns ACCEPT or DROP with the rule that says so, or
// "" at the chain's end. seen are the chains that the packet has been in: each once, since
// one that had a verdict for it has ended the walk.
func (t tables) walk(chain string, p Packet, seen map[string]bool) (verdict, by string) {
	if seen[chain] {
		return "", ""
	}
	seen[chain] = true
	for _, rule := range t.rules[chain] {
		target, matches := p.matches(rule)
		switch {
		case !matches:
		case target == "ACCEPT":
			return "ACCEPT", rule
		case target == "DROP" || target == "REJECT":
			return "DROP", rule
		case target == "RETURN":
			return "", ""
		default:
			if v, by := t.walk(target, p, seen); v != "" {
				return v, by
			}
		}
	}
	return "", ""
}

// matches reads a rule of iptables-save: its target, and whether the packet is meant.
func (p Packet) matches(rule string) (target string, matches bool) {
	words := split(rule)[2:] // without -A CHAIN
	matches = true
	for len(words) > 0 {
		not := words[0] == "!"
		if not {
			words = words[1:]
		}
		if len(words) < 2 {
			return target, false
		}
		option, value := words[0], words[1]
		words = words[2:]
		var holds bool
		switch option {
		case "-j", "-g":
			target = value
			continue
		case "-m", "--comment", "--reject-with":
			continue
		case "-p":
			holds = value == p.Proto
		case "-s":
			holds = within(value, p.Src)
		case "-d":
			holds = within(value, p.Dst)
		case "-i":
			holds = isInterface(value, p.In)
		case "-o":
			holds = isInterface(value, p.Out)
		case "--dport", "--dports":
			holds = slices.ContainsFunc(strings.Split(value, ","), p.toPort)
		case "--dst-type":
			holds = value == "LOCAL" && p.Chain == "INPUT"
		case "--ctstate", "--state":
			holds = slices.Contains(strings.Split(value, ","), "NEW")
		default:
			return target, false
		}
		matches = matches && holds != not
	}
	return target, matches
}

func within(prefix string, a netip.Addr) bool {
	if !strings.Contains(prefix, "/") {
		return prefix == a.String()
	}
	p, err := netip.ParsePrefix(prefix)
	return err == nil && p.Contains(a)
}

func isInterface(pattern, name string) bool {
	if start, found := strings.CutSuffix(pattern, "+"); found {
		return name != "" && strings.HasPrefix(name, start)
	}
	return pattern == name
}

func (p Packet) toPort(text string) bool {
	first, last, found := strings.Cut(text, ":")
	if !found {
		last = first
	}
	low, err := strconv.ParseUint(first, 10, 16)
	if err != nil {
		return false
	}
	high, err := strconv.ParseUint(last, 10, 16)
	return err == nil && uint64(p.Port) >= low && uint64(p.Port) <= high
}

// split splits at spaces, but not within double quotes.
func split(rule string) (words []string) {
	var word strings.Builder
	quoted := false
	for _, c := range rule {
		switch {
		case c == '"':
			quoted = !quoted
		case c == ' ' && !quoted:
			if word.Len() > 0 {
				words = append(words, word.String())
			}
			word.Reset()
		default:
			word.WriteRune(c)
		}
	}
	return append(words, word.String())
}

// Firewall is what this host's firewall says.
type Firewall struct {
	// Saved is the output of iptables-save, once for each variant that has rules; Err:
	// it could not be had.
	Saved []string
	Err   error
	// NFT is the output of `nft list ruleset`, empty if there is no nft.
	NFT string
}

// Judge says what the rules do with the packets. proven: probes have shown that the
// packets from and to other hosts get through, whatever the rules look like.
func (f Firewall) Judge(packets []Packet, proven bool) []api.Check {
	if f.Err != nil {
		return []api.Check{unknown("firewall", "install iptables", "its rules could not be read: %v", f.Err)}
	}
	var checks []api.Check
	said := map[string]bool{}
	for _, saved := range f.Saved {
		t := parseTables(saved)
		for _, p := range packets {
			by := t.dropped(p)
			if by == "" || said[by+p.port()] {
				continue
			}
			said[by+p.port()] = true
			checks = append(checks, wrong("firewall", f.allow(p), "%s would be dropped by %s", p, by))
		}
	}
	if !proven {
		checks = append(checks, f.nft(packets)...)
	}
	checks = append(checks, f.nftForward(packets)...)
	if checks == nil {
		return []api.Check{ok("firewall", "no rule drops gossip, VXLAN or what containers send out")}
	}
	return checks
}

// port is such as "udp 4789".
func (p Packet) port() string { return p.Proto + " " + strconv.Itoa(int(p.Port)) }

func (p Packet) String() string {
	if p.Port == 0 {
		return p.For
	}
	return fmt.Sprintf("%s (%s port %d)", p.For, strings.ToUpper(p.Proto), p.Port)
}

// allow is how to let a packet in with what manages this firewall.
func (f Firewall) allow(p Packet) string {
	all := strings.Join(f.Saved, "")
	switch {
	case p.Chain == "FORWARD":
		return "put an ACCEPT for -i gv0 before it (the agent's own jump, GRAPEVINE-FORWARD, comes behind DOCKER-USER), or, if that is as it is meant to be, leave it"
	case strings.Contains(all, ":ufw-") && p.Chain == "INPUT":
		return fmt.Sprintf("ufw allow %d/%s", p.Port, p.Proto)
	case strings.Contains(f.NFT, "table inet firewalld") && p.Chain == "INPUT":
		return fmt.Sprintf("firewall-cmd --permanent --add-port=%d/%s && firewall-cmd --reload", p.Port, p.Proto)
	}
	return fmt.Sprintf("iptables -I %s -p %s --dport %d -j ACCEPT, and the same where your rules are kept", p.Chain, p.Proto, p.Port)
}

// nft looks for tables of others that drop what they do not name, our ports among it.
// It reads no more than that: a verdict only where probes have not shown better.
func (f Firewall) nft(packets []Packet) (checks []api.Check) {
	for _, table := range nftTables(f.NFT) {
		if !table.drops {
			continue
		}
		for _, p := range packets {
			if p.Chain != "INPUT" || table.accepts(p.Port) {
				continue
			}
			do := fmt.Sprintf("accept %s dport %d in its input chain", p.Proto, p.Port)
			if table.name == "inet firewalld" {
				do = f.allow(p)
			}
			c := wrong("firewall", do, "nft's table %s drops what it does not name, and it does not name %s port %d", table.name, strings.ToUpper(p.Proto), p.Port)
			if !slices.Contains(checks, c) {
				checks = append(checks, c)
			}
		}
	}
	return checks
}

// nftForward looks for tables of others that forward nothing for gv0, though iptables' rules
// do: a drop there is final.
func (f Firewall) nftForward(packets []Packet) (checks []api.Check) {
	for _, table := range nftTables(f.NFT) {
		for _, p := range packets {
			if p.Chain != "FORWARD" || !table.shuts || table.names(p.In) {
				continue
			}
			do := fmt.Sprintf("accept iifname %s and oifname %s in its forward chain", p.In, p.In)
			if table.name == "inet firewalld" {
				do = fmt.Sprintf("firewall-cmd --permanent --zone=trusted --add-interface=%s && firewall-cmd --reload", p.In)
			}
			checks = append(checks, wrong("firewall", do, "nft's table %s forwards nothing that it does not name, and it does not name %s: containers reach no outside, and nobody their published ports", table.name, p.In))
		}
	}
	return checks
}

type nftTable struct {
	name  string
	drops bool // it has an input hook that ends in drop or reject
	shuts bool // likewise of forward
	lines []string
}

// names says whether a rule is about a device.
func (t nftTable) names(device string) bool {
	return slices.ContainsFunc(t.lines, func(line string) bool { return strings.Contains(line, strconv.Quote(device)) })
}

// nftTables reads `nft list ruleset`; the tables that iptables-nft keeps are left out.
func nftTables(text string) (list []nftTable) {
	var table *nftTable
	input, forward := false, false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		words := strings.Fields(line)
		switch {
		case len(words) > 2 && words[0] == "table":
			list = append(list, nftTable{name: words[1] + " " + words[2]})
			table, input, forward = &list[len(list)-1], false, false
			continue
		case table == nil || len(words) == 0:
			continue
		case words[0] == "chain":
			input, forward = false, false
		case strings.Contains(line, "hook input"):
			input = true
			table.drops = table.drops || strings.Contains(line, "policy drop")
		case strings.Contains(line, "hook forward"):
			forward = true
			table.shuts = table.shuts || strings.Contains(line, "policy drop")
		case words[0] == "drop" || words[0] == "reject":
			table.drops, table.shuts = table.drops || input, table.shuts || forward
		}
		table.lines = append(table.lines, line)
	}
	return slices.DeleteFunc(list, func(t nftTable) bool {
		return slices.Contains([]string{"ip filter", "ip6 filter"}, t.name)
	})
}

func (t nftTable) accepts(port uint16) bool {
	return slices.ContainsFunc(t.lines, func(line string) bool {
		return strings.Contains(line, "dport") && strings.Contains(line, "accept") &&
			slices.Contains(strings.FieldsFunc(line, func(r rune) bool { return r < '0' || r > '9' }), strconv.Itoa(int(port)))
	})
}
