package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/encap"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/nat"
)

// Packet is one that has to get through the firewall: the first of its connection.
type Packet struct {
	Chain    string // INPUT, OUTPUT or FORWARD
	In, Out  string // interfaces, as far as the chain knows them
	Src, Dst netip.Addr
	Proto    string // "tcp", "udp" or "gre"
	Port     uint16 // it goes to; 0: the protocol has none
	Tunnel   bool   // it is what hosts wrap containers' packets in
	DNAT     bool   // its destination is another one than it was sent to
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

// dropped returns the rule or policy that drops the packet in a chain that the kernel begins at, "" if none does. Rules
// with conditions that are not understood count as if they did not match; sure is false if one of
// them might have let it pass. meant: DOCKER-USER says so, or a chain that it leads to.
func (t tables) dropped(p Packet, chain string) (by string, sure, meant bool) {
	w := walk{tables: t, packet: p.at(chain), seen: map[string]bool{}}
	switch verdict, by := w.through(chain); {
	case verdict == "DROP":
		return by, !w.unsure, w.users
	case verdict == "" && t.policy[chain] == "DROP":
		return "the policy of " + chain + ", DROP", !w.unsure, false
	}
	return "", true, false
}

// hooks are where the kernel asks for a verdict on the packet, in its order, as iptables' chains are called; INGRESS and
// EGRESS are nftables' alone. A packet that is to have another destination has not got it yet at the first of them, and one
// that is passed on has its sender's address replaced before the last: nothing is known of it there.
func (p Packet) hooks() []string {
	switch {
	case p.Chain == "INPUT":
		return []string{"INGRESS", "PREROUTING", "INPUT"}
	case p.Chain == "OUTPUT":
		return []string{"OUTPUT", "POSTROUTING", "EGRESS"}
	case p.DNAT:
		return []string{"FORWARD", "POSTROUTING"}
	}
	return []string{"INGRESS", "PREROUTING", "FORWARD", "POSTROUTING"}
}

// at is what is known of the packet at a hook: before it is routed, not where it leaves.
func (p Packet) at(hook string) Packet {
	if hook == "PREROUTING" || hook == "INGRESS" {
		p.Out = ""
	}
	return p
}

// walk is a packet's way through the chains. seen are those that it has been in: each once,
// since one that had a verdict for it has ended the walk.
type walk struct {
	tables
	packet Packet
	seen   map[string]bool
	unsure bool
	users  bool // the verdict came from DOCKER-USER
}

// through goes through a chain and returns ACCEPT or DROP with the rule that says so, or
// "" at the chain's end.
func (w *walk) through(chain string) (verdict, by string) {
	if w.seen[chain] {
		return "", ""
	}
	w.seen[chain] = true
	for _, rule := range w.rules[chain] {
		target, matches := w.packet.matches(rule)
		if matches != yes {
			w.unsure = w.unsure || matches == perhaps && (target == "ACCEPT" || target == "RETURN" || len(w.rules[target]) > 0)
			continue
		}
		switch target {
		case "ACCEPT":
			return "ACCEPT", rule
		case "DROP", "REJECT":
			return "DROP", rule
		case "DNAT", "REDIRECT", "NETMAP":
			return elsewhere, rule
		case "RETURN":
			return "", ""
		}
		if v, by := w.through(target); v != "" {
			w.users = w.users || target == "DOCKER-USER"
			return v, by
		}
	}
	return "", ""
}

// elsewhere is the verdict of rules that give a packet another destination.
const elsewhere = "elsewhere"

// natHook is where the rules are that may do that.
func (p Packet) natHook() string {
	if p.Chain == "INPUT" {
		return "PREROUTING"
	}
	return p.Chain
}

// led returns the rule of a table of NAT that leads the packet elsewhere, as dropped does.
func (t tables) led(p Packet) (by string, sure bool) {
	w := walk{tables: t, packet: p, seen: map[string]bool{}}
	if verdict, by := w.through(p.natHook()); verdict == elsewhere {
		return by, !w.unsure
	}
	return "", true
}

// match is whether a rule is about a packet.
type match int

const (
	no match = iota
	perhaps
	yes
)

func matchIf(holds bool) match {
	if holds {
		return yes
	}
	return no
}

// matches reads a rule of iptables-save: its target, and whether the packet is meant.
func (p Packet) matches(rule string) (target string, matches match) {
	words := nat.Words(rule)[2:] // without -A CHAIN
	matches = yes
	for len(words) > 0 {
		not := words[0] == "!"
		if not {
			words = words[1:]
		}
		if len(words) < 2 {
			return target, min(matches, perhaps)
		}
		option, value := words[0], words[1]
		words = words[2:]
		var holds bool
		switch option {
		case "-j", "-g":
			if target = value; slices.Contains([]string{"DNAT", "REDIRECT", "NETMAP"}, target) {
				return target, matches // what follows says where to
			}
			continue
		case "-m", "--comment", "--reject-with":
			continue
		case "-p":
			holds = p.isProto(value)
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
			states := strings.Split(value, ",")
			holds = slices.Contains(states, "NEW") || p.DNAT && slices.Contains(states, "DNAT")
		case "--ctstatus":
			holds = p.DNAT && slices.Contains(strings.Split(value, ","), "DNAT")
		case "--sport", "--sports":
			if !strings.ContainsFunc(value, func(r rune) bool { return r == ':' || r == ',' }) && len(value) < 4 {
				break // ours are higher
			}
			return targetIn(words, target), min(matches, perhaps)
		default:
			return targetIn(words, target), min(matches, perhaps)
		}
		matches = min(matches, matchIf(holds != not))
	}
	return target, matches
}

// targetIn is the target of a rule of which words are left.
func targetIn(words []string, target string) string {
	for i, w := range words[:max(len(words)-1, 0)] {
		if w == "-j" || w == "-g" {
			return words[i+1]
		}
	}
	return target
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

// Firewall is what this host's firewall says.
type Firewall struct {
	// Saved is the output of iptables-save, once for each variant that has rules; Err:
	// it could not be had.
	Saved []string
	Err   error
	// NAT is the same of the table nat, as far as there are rules.
	NAT []string
	// Beside are the other tables that may drop something, as far as there are rules.
	Beside []Table
	// SavedBy and NATBy say which variant each of these is, as the program's name has it, "-legacy" or "-nft": a rule of
	// one lets nothing pass that the other drops. Empty, or not there: that of the iptables in PATH.
	SavedBy, NATBy []string
	// NFT is the output of `nft list ruleset`, empty if that could not be had.
	NFT string
	// Unread are the tables of nftables of which it is not known what they do, since NFT could not be had.
	Unread Unread
	// Unanswered says that a program that is there could not say what it was asked for: it may the next time.
	Unanswered bool
}

// Table is one of iptables.
type Table struct {
	Name, Rules string // as iptables-save prints them
	By          string // as SavedBy
}

// beside are iptables' other tables: nft's name of one begins with the family.
var beside = []string{"raw", "mangle", "security"}

// keeps says that nft's table is one of iptables', of which the rules are known.
func (f Firewall) keeps(table string) bool {
	_, name, _ := strings.Cut(table, " ")
	if !strings.HasPrefix(table, "ip ") && !strings.HasPrefix(table, "ip6 ") {
		return false
	}
	return name == "nat" && len(f.NAT) > 0 || slices.ContainsFunc(f.Beside, func(t Table) bool { return t.Name == name })
}

// Unread are tables of nftables that could not be read, as nft names them.
type Unread struct {
	Tables  string // several are parted by commas; "": there are none
	Why     string
	Missing bool // the program nft
}

// Do is what to do about it.
func (u Unread) Do() string {
	if u.Missing {
		return InstallNFT
	}
	return "`nft list ruleset` on this host says what is wrong; the agent asks again"
}

func (u Unread) String() string {
	return fmt.Sprintf("this host has rules of nftables (table %s) that cannot be read (%s): nobody knows whether they drop what grapevine needs", u.Tables, u.Why)
}

// InstallNFT is what to do where there is no program nft.
const InstallNFT = "install the program nft (Debian's and Fedora's package nftables)"

// Drop is a packet that does not get through.
type Drop struct {
	Packet
	By   string // the rule, for people
	Do   string
	Sure bool // no rule that was not understood may have let it pass
	NFT  bool // by a table of nftables' own
	// Meant: by DOCKER-USER, or by a chain that it leads to, as with ufw-docker.
	Meant bool
	// Led: it is not dropped, but given another destination. What is under way is not, and shows nothing.
	Led bool
}

// Drops are those of the packets that the rules drop.
func (f Firewall) Drops(packets []Packet) (list []Drop) {
	for i, saved := range f.Saved {
		t := parseTables(saved)
		for _, p := range packets {
			if by, sure, meant := t.dropped(p, p.Chain); by != "" {
				list = append(list, Drop{Packet: p, By: by, Do: f.allow(p, variant(f.SavedBy, i)), Sure: sure, Meant: meant})
			}
		}
	}
	for _, table := range f.Beside {
		t := parseTables(table.Rules)
		for _, p := range packets {
			for _, chain := range p.hooks() {
				if by, sure, _ := t.dropped(p, chain); by != "" {
					list = append(list, Drop{Packet: p, By: "-t " + table.Name + ": " + by, Do: p.acceptAt(table, chain), Sure: sure})
					break
				}
			}
		}
	}
	for i, saved := range f.NAT {
		t := parseTables(saved)
		for _, p := range packets {
			if by, sure := t.led(p); p.Tunnel && by != "" {
				list = append(list, Drop{Packet: p, By: by, Do: p.leave(variant(f.NATBy, i)), Sure: sure, Led: true})
			}
		}
	}
	for _, t := range nftTables(f.NFT) {
		if f.keeps(t.name) {
			continue
		}
		for _, p := range packets {
			if by, sure := t.led(p); p.Tunnel && by != "" {
				list = append(list, Drop{Packet: p, By: by, Do: p.leaveIn(t.name), Sure: sure, NFT: true, Led: true})
			}
			if by, hook, sure := t.dropped(p); by != "" {
				list = append(list, Drop{Packet: p, By: by, Do: f.allowIn(t.name, hook, p), Sure: sure, NFT: true})
			}
		}
	}
	return list
}

func variant(of []string, i int) string {
	if i < len(of) {
		return of[i]
	}
	return ""
}

// Proven reports whether probes have passed on all ways, of which there is one.
func Proven(reached []api.Check) bool {
	for _, c := range reached {
		if c.Verdict != api.OK {
			return false
		}
	}
	return len(reached) > 1
}

// JudgeAll is Judge of both families: what is to be said of both is said once, and that all is well only if it is.
func JudgeAll(families []Firewall, packets [][]Packet, proven bool) (checks []api.Check) {
	for i, f := range families {
		for _, c := range f.Judge(packets[i], proven) {
			if !slices.Contains(checks, c) {
				checks = append(checks, c)
			}
		}
	}
	well := func(c api.Check) bool { return c.Verdict == api.OK }
	if !slices.ContainsFunc(checks, func(c api.Check) bool { return !well(c) }) {
		return checks
	}
	return slices.DeleteFunc(checks, well)
}

// Judge says what the rules do with the packets. proven: probes have shown that the
// packets from and to other hosts get through, whatever the rules look like.
func (f Firewall) Judge(packets []Packet, proven bool) []api.Check {
	if f.Err != nil {
		return []api.Check{unknown("firewall", "install iptables", "its rules could not be read: %v", f.Err)}
	}
	var checks []api.Check
	said := map[string]bool{}
	for _, d := range f.Drops(packets) {
		if said[d.By+d.port()] || (d.NFT || d.Led) && !d.Sure || d.NFT && proven && d.Chain != "FORWARD" && !d.Led {
			continue
		}
		said[d.By+d.port()] = true
		happens := "dropped"
		if d.Led {
			happens = "led elsewhere"
		}
		checks = append(checks, wrong("firewall", d.Do, "%s would be %s by %s", d.Packet, happens, d.By))
	}
	if f.Unread.Tables != "" {
		checks = append(checks, unknown("firewall", f.Unread.Do(), "%v", f.Unread))
	}
	if checks == nil {
		return []api.Check{ok("firewall", "no rule drops gossip, VXLAN or what containers send out")}
	}
	return checks
}

// port is such as "udp 4789".
func (p Packet) port() string { return p.Proto + " " + strconv.Itoa(int(p.Port)) }

// protoGRE is what the rules' programs call that protocol; where they do not know its name it is its number.
const protoGRE = "gre"

// isProto says whether a rule's name of a protocol is the packet's.
func (p Packet) isProto(name string) bool {
	return name == p.Proto || p.Proto == protoGRE && name == strconv.Itoa(encap.ProtocolGRE)
}

// option are the options of iptables(8) and conntrack(8) by which the packet is told from others, and expression what it
// is in nft(8).
func (p Packet) option() string {
	if p.Proto == protoGRE {
		return "-p " + strconv.Itoa(encap.ProtocolGRE)
	}
	return fmt.Sprintf("-p %s --dport %d", p.Proto, p.Port)
}

func (p Packet) expression() string {
	if p.Proto == protoGRE {
		return "meta l4proto " + strconv.Itoa(encap.ProtocolGRE)
	}
	return fmt.Sprintf("%s dport %d", p.Proto, p.Port)
}

func (p Packet) String() string {
	if p.Port == 0 {
		return p.For
	}
	return fmt.Sprintf("%s (%s port %d)", p.For, strings.ToUpper(p.Proto), p.Port)
}

// leave is how to keep a rule of iptables' NAT from a packet: what is under way keeps to what the rules said when it began.
func (p Packet) leave(variant string) string {
	return fmt.Sprintf("take the rule away, or put this before it, and where your rules are kept: %s -t nat -I %s %s -j ACCEPT; then conntrack -D %s",
		p.iptables()+variant, p.natHook(), p.option(), p.option())
}

func (p Packet) leaveIn(table string) string {
	return fmt.Sprintf("take the rule away, or put `%s accept` before it in table %s; then conntrack -D %s", p.expression(), table, p.option())
}

func (p Packet) iptables() string {
	if p.Src.Is6() {
		return "ip6tables"
	}
	return "iptables"
}

// by is the interface, if it is one of grapevine's own, as options of a rule.
func (p Packet) by() string {
	switch {
	case gvIn(p.In) != "":
		return " -i " + p.In
	case gvIn(p.Out) != "":
		return " -o " + p.Out
	}
	return ""
}

// allow is how to let a packet in with what manages this firewall; variant is that of iptables by which it is dropped.
func (f Firewall) allow(p Packet, variant string) string {
	all := strings.Join(f.Saved, "")
	switch {
	case p.Chain == "FORWARD":
		way := "-o"
		if gvIn(p.In) != "" {
			way = "-i"
		}
		return "put an ACCEPT for " + way + " gv0 before it (the agent's own jump, GRAPEVINE-FORWARD, comes behind DOCKER-USER), or, if that is as it is meant to be, leave it"
	case strings.Contains(all, ":ufw-") && p.Chain == "INPUT" && gvIn(p.In) != "":
		return fmt.Sprintf("ufw allow in on %s to any port %d proto %s", p.In, p.Port, p.Proto)
	case strings.Contains(all, ":ufw-") && p.Chain == "INPUT" && p.Port == 0:
		return fmt.Sprintf("ufw allow proto %s from %s", p.Proto, p.Src)
	case strings.Contains(all, ":ufw-") && p.Chain == "INPUT":
		return fmt.Sprintf("ufw allow %d/%s", p.Port, p.Proto)
	case strings.Contains(f.NFT, "table inet firewalld") && p.Chain == "INPUT":
		return firewalldPort(p)
	}
	return fmt.Sprintf("%s -I %s%s %s -j ACCEPT, and the same where your rules are kept", p.iptables()+variant, p.Chain, p.by(), p.option())
}

// acceptAt is how to let a packet pass one of iptables' other tables.
func (p Packet) acceptAt(t Table, chain string) string {
	if p.Chain == "FORWARD" {
		return fmt.Sprintf("take the rule away, or put an ACCEPT for %s before it, or, if that is as it is meant to be, leave it", cmp.Or(gvIn(p.In), gvIn(p.Out)))
	}
	return fmt.Sprintf("%s -t %s -I %s %s -j ACCEPT, and the same where your rules are kept", p.iptables()+t.By, t.Name, chain, p.option())
}

func firewalldPort(p Packet) string {
	if gvIn(p.In) != "" { // its only other rules are grapevine's own, which let nothing else in
		return fmt.Sprintf("firewall-cmd --permanent --zone=trusted --add-interface=%s && firewall-cmd --reload", p.In)
	}
	if p.Port == 0 {
		return fmt.Sprintf("firewall-cmd --permanent --add-protocol=%s && firewall-cmd --reload", p.Proto)
	}
	return fmt.Sprintf("firewall-cmd --permanent --add-port=%d/%s && firewall-cmd --reload", p.Port, p.Proto)
}

// allowIn is how to let a packet pass a table of nftables' own, at a hook.
func (f Firewall) allowIn(table, hook string, p Packet) string {
	device := cmp.Or(gvIn(p.In), gvIn(p.Out))
	switch {
	case p.Chain == "FORWARD" && hook != p.Chain:
		return fmt.Sprintf("take the rule away, or accept what concerns %s before it in its %s chain", device, strings.ToLower(hook))
	case hook != p.Chain:
	case table == "inet firewalld" && p.Chain == "FORWARD":
		return fmt.Sprintf("firewall-cmd --permanent --zone=trusted --add-interface=%s && firewall-cmd --reload", device)
	case table == "inet firewalld" && p.Chain == "INPUT":
		return firewalldPort(p)
	case p.Chain == "FORWARD":
		return fmt.Sprintf("accept iifname %s and oifname %s in its forward chain", device, device)
	}
	by := ""
	switch {
	case gvIn(p.In) != "":
		by = "iifname " + p.In + " "
	case gvIn(p.Out) != "":
		by = "oifname " + p.Out + " "
	}
	return fmt.Sprintf("accept %s%s in its %s chain", by, p.expression(), strings.ToLower(hook))
}

// gvIn is the interface if it is the gateway's.
func gvIn(device string) string {
	if strings.HasPrefix(device, link.Ours) {
		return device
	}
	return ""
}
