package doctor

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// nftTable is a table of `nft list ruleset`. A drop in one is final, whatever others accept.
type nftTable struct {
	name   string // "inet firewalld"
	bases  []nftBase
	chains map[string][]string
}

// nftBase is a chain that the kernel begins at.
type nftBase struct {
	chain, hook string
	drop        bool     // its policy
	nat         bool     // it may lead packets elsewhere
	devices     []string // whose packets it sees; empty: of all
}

// nftTables reads `nft list ruleset`. What iptables-nft keeps is left out, which iptables-save
// has, and what is grapevine's own.
func nftTables(text string) (list []nftTable) {
	var table *nftTable
	chain, rule := "", ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || line[0] == '#':
		case words[0] == "table" && len(words) > 2:
			list = append(list, nftTable{name: words[1] + " " + words[2], chains: map[string][]string{}})
			table, chain, rule = &list[len(list)-1], "", ""
		case table == nil:
		case rule == "" && words[0] == "chain" && len(words) > 1:
			chain = words[1]
		case rule == "" && line == "}":
			chain = ""
		case chain == "":
		case words[0] == "type" && slices.Contains(words, "hook"):
			if at := slices.Index(words, "hook") + 1; at < len(words) {
				table.bases = append(table.bases, nftBase{chain, words[at], strings.Contains(line, "policy drop"), words[1] == "nat", nftDevices(words[at+1:])})
			}
		default: // a long set goes over several lines
			rule = strings.TrimSpace(rule + " " + line)
			if strings.Count(rule, "{") <= strings.Count(rule, "}") {
				table.chains[chain] = append(table.chains[chain], rule)
				rule = ""
			}
		}
	}
	return slices.DeleteFunc(list, func(t nftTable) bool {
		return t.name == "ip filter" || t.name == "ip6 filter" || strings.HasPrefix(t.name, "inet grapevine")
	})
}

// nftDevices are those that a chain of ingress or egress is of.
func nftDevices(words []string) (list []string) {
	if len(words) == 0 || words[0] != "device" && words[0] != "devices" {
		return nil
	}
	for _, w := range words[1:] {
		if w == "priority" || w == "}" {
			break
		}
		if w = strings.Trim(w, "={},;\""); w != "" {
			list = append(list, strings.Split(strings.ReplaceAll(w, "\"", ""), ",")...)
		}
	}
	return list
}

// sees says whether the chain is asked about the packet at a hook.
func (b nftBase) sees(p Packet, hook string) bool {
	if !strings.EqualFold(b.hook, hook) {
		return false
	}
	device := p.In
	if hook == "EGRESS" {
		device = p.Out
	}
	return len(b.devices) == 0 || slices.Contains(b.devices, device)
}

// otherFamily says that the table has nothing to do with the packet.
func (t nftTable) otherFamily(p Packet) bool {
	family, _, _ := strings.Cut(t.name, " ")
	// What is bridged is another matter, and so is ARP.
	return family == "ip" && !p.Src.Is4() || family == "ip6" && p.Src.Is4() || family == "bridge" || family == "arp"
}

// led returns what gives the packet another destination, as dropped does.
func (t nftTable) led(p Packet) (by string, sure bool) {
	if t.otherFamily(p) {
		return "", true
	}
	for _, b := range t.bases {
		if !b.nat || !strings.EqualFold(b.hook, p.natHook()) {
			continue
		}
		w := nftWalk{nftTable: t, packet: p, seen: map[string]bool{}}
		if verdict, rule := w.through(b.chain); verdict == elsewhere {
			return "nft's table " + t.name + ", chain " + b.chain + ": " + rule, !w.unsure
		}
	}
	return "", true
}

// dropped returns what drops the packet, for people, at which hook, and whether that is sure.
func (t nftTable) dropped(p Packet) (by, at string, sure bool) {
	if t.otherFamily(p) {
		return "", "", true
	}
	for _, hook := range p.hooks() {
		for _, b := range t.bases {
			if !b.sees(p, hook) {
				continue
			}
			w := nftWalk{nftTable: t, packet: p.at(hook), seen: map[string]bool{}}
			verdict, rule := w.through(b.chain)
			if verdict == "" && b.drop {
				verdict, rule = "drop", "its policy, drop"
			}
			if verdict == "drop" {
				return "nft's table " + t.name + ", chain " + b.chain + ": " + rule, hook, !w.unsure
			}
		}
	}
	return "", "", true
}

type nftWalk struct {
	nftTable
	packet Packet
	seen   map[string]bool
	unsure bool
}

// through returns accept or drop with the rule that says so, or "" at the chain's end.
func (w *nftWalk) through(chain string) (verdict, by string) {
	if w.seen[chain] {
		return "", ""
	}
	w.seen[chain] = true
	for _, rule := range w.chains[chain] {
		does, where, matches := w.packet.inNFT(rule)
		switch {
		case matches == no || does == "":
			continue
		case matches == perhaps:
			w.unsure = w.unsure || does == "accept" || does == "return" || does == "vmap" || len(w.chains[where]) > 0
			continue
		}
		switch does {
		case "accept", "drop", elsewhere:
			return does, rule
		case "return":
			return "", ""
		case "goto":
			return w.through(where)
		case "jump":
			if v, by := w.through(where); v != "" {
				return v, by
			}
		}
	}
	return "", ""
}

// inNFT reads a rule: what it does (accept, drop, return, jump, goto; vmap: one of several;
// "": nothing that matters), the chain where it leads, and whether the packet is meant.
func (p Packet) inNFT(rule string) (does, where string, matches match) {
	words := split(rule)
	matches = yes
	for len(words) > 0 && matches != no {
		word := words[0]
		words = words[1:]
		switch word {
		case "accept", "drop", "return":
			return word, "", matches
		case "reject":
			return "drop", "", matches
		case "dnat", "redirect":
			return elsewhere, "", matches
		case "snat", "masquerade":
			return "accept", "", matches
		case "jump", "goto":
			return word, strings.Join(words[:min(len(words), 1)], ""), matches
		case "counter":
			if len(words) > 3 && words[0] == "packets" {
				words = words[4:]
			}
		case "comment":
			words = words[min(len(words), 1):]
		case "log":
			words = words[nextVerdict(words):]
		default:
			holds, left, known := p.nftCondition(word, words)
			if !known {
				matches = perhaps
				if slices.Contains(words, "vmap") {
					return "vmap", "", matches
				}
				words = words[nextVerdict(words):]
				continue
			}
			matches, words = min(matches, holds), left
		}
	}
	return "", "", matches
}

// nextVerdict is where in words the verdict begins.
func nextVerdict(words []string) int {
	i := slices.IndexFunc(words, func(w string) bool {
		return slices.Contains([]string{"accept", "drop", "return", "reject", "jump", "goto", "dnat", "redirect", "snat", "masquerade"}, w)
	})
	if i < 0 {
		return len(words)
	}
	return i
}

// nftCondition reads one condition, of which word is the first; left is what follows it.
func (p Packet) nftCondition(word string, words []string) (holds match, left []string, known bool) {
	four := p.Src.Is4()
	field := word
	switch word {
	case "icmp", "icmpv6", "igmp", "sctp", "esp", "ah", "arp", "ether":
		return matchIf(false), nil, word != "ether"
	case "ip", "ip6", "tcp", "udp", "th", "meta", "ct":
		if word == "ip" && !four || word == "ip6" && four || (word == "tcp" || word == "udp") && word != p.Proto {
			return no, nil, true
		}
		if len(words) == 0 {
			return no, nil, false
		}
		field, words = words[0], words[1:]
		if word == "ct" {
			field = "ct " + field
		}
	}
	if slices.Contains(words, "vmap") {
		return no, nil, field == "ct state" && !slices.Contains(words, "new") // as in many an example
	}
	values, not, left := nftValues(words)
	if slices.ContainsFunc(values, func(v string) bool { return strings.HasPrefix(v, "@") }) {
		return perhaps, left, false
	}
	var is func(string) bool
	switch field {
	case "iif", "iifname":
		is = func(v string) bool { return isDevice(v, p.In) }
	case "oif", "oifname":
		is = func(v string) bool { return isDevice(v, p.Out) }
	case "saddr":
		is = func(v string) bool { return inRange(v, p.Src) }
	case "daddr":
		is = func(v string) bool { return inRange(v, p.Dst) }
	case "dport":
		is = func(v string) bool { return p.toPort(strings.Replace(v, "-", ":", 1)) }
	case "sport":
		if slices.ContainsFunc(values, func(v string) bool { n, err := strconv.Atoi(v); return err != nil || n > 1023 }) {
			return perhaps, left, false
		}
		is = func(string) bool { return false } // ours are higher
	case "l4proto", "protocol", "nexthdr":
		if is = p.isProto; word == "meta" && field == "protocol" {
			is = func(v string) bool { return v == map[bool]string{true: "ip", false: "ip6"}[four] }
		}
	case "nfproto":
		is = func(v string) bool { return v == map[bool]string{true: "ipv4", false: "ipv6"}[four] }
	case "ct state":
		is = func(v string) bool { return v == "new" }
	case "ct status":
		is = func(v string) bool { return v == "dnat" && p.DNAT }
	default:
		return perhaps, left, false
	}
	return matchIf(slices.ContainsFunc(values, is) != not), left, true
}

// nftValues reads what a field is compared to.
func nftValues(words []string) (values []string, not bool, left []string) {
	if len(words) > 0 && (words[0] == "!=" || words[0] == "==") {
		not, words = words[0] == "!=", words[1:]
	}
	n := min(len(words), 1)
	if n == 1 && words[0] == "{" {
		if n = slices.Index(words, "}") + 1; n == 0 {
			n = len(words)
		}
	}
	for _, w := range words[:n] {
		for v := range strings.SplitSeq(w, ",") {
			if v != "" && v != "{" && v != "}" {
				values = append(values, v)
			}
		}
	}
	return values, not, words[n:]
}

func isDevice(pattern, name string) bool {
	if start, found := strings.CutSuffix(pattern, "*"); found {
		return name != "" && strings.HasPrefix(name, start)
	}
	return pattern == name
}

// inRange: an address, a prefix, or a range of addresses.
func inRange(v string, a netip.Addr) bool {
	first, last, found := strings.Cut(v, "-")
	if !found {
		return within(v, a)
	}
	low, err1 := netip.ParseAddr(first)
	high, err2 := netip.ParseAddr(last)
	return err1 == nil && err2 == nil && low.Compare(a) <= 0 && a.Compare(high) <= 0
}

// split splits a rule of nft at spaces, but not within double quotes, in which nft has none.
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
