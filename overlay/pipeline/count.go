package pipeline

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// What a rule lets through is counted behind all that may still drop it: a connection has the IDs of the rules that
// let it begin noted with it (ct_label), and each of its packets, answers too, comes by the counters of these two. So
// packets and bytes are exact, and so are connections: the first packet of each is one that has nothing noted yet. What comes
// in fragments before any whole packet has nothing noted in the userspace datapath, and is not counted.
// What a rule denies its own flow counts, and what no rule lets through a flow of the endpoint's.

// The priorities of egress-count and ingress-count.
const (
	countBegins = 110 // the first packet of each connection
	countGoesOn = 100
)

// counts counts what a rule let through.
func (c *compiler) counts(d direction, rule uint32, slot uint16) {
	act := []string{goTo(d.count.next())}
	if c.in.Tunnel == HeaderBits {
		act = slices.Insert(act, 0, d.counted(slot))
	}
	c.add(d.count, countBegins, ruleObject(rule), match{}.reg(regBegins, 1).labelled(d, rule), act...)
	c.add(d.count, countGoesOn, ruleObject(rule), match{}.labelled(d, rule), act...)
}

// labelled matches connections that a rule let through.
func (m match) labelled(d direction, rule uint32) match {
	shift := 2 * d.markShift
	return m.with(fieldCTLabel, "ct_label=%#x/%#x", uint64(rule)<<shift, uint64(1<<32-1)<<shift)
}

// unlabelled matches packets of connections of which nothing is noted.
func (m match) unlabelled() match { return m.with(fieldCTLabel, "ct_label=0") }

// unmatched drops what no rule lets an endpoint send or be sent: as without it, but that the endpoint is known.
func (c *compiler) unmatched(d direction, a netip.Addr, end func(match, netip.Prefix, bool) match) {
	for _, turned := range turns {
		c.drop(d.rest, rulesNone, d.reason, end(match{}, host(a), turned).reg(d.judge, 1))
	}
}

// RuleCount is what a rule of this host's switch let through, or denied.
type RuleCount struct {
	Passed      Count  // by an accepting rule: what went over its connections, both ways
	Connections uint64 // that it let begin
	Denied      Count
}

// Unmatched is what no rule let an address of an endpoint send, or be sent.
type Unmatched struct {
	Addr      netip.Addr
	Direction Direction
}

// CountFilters select the flows that CountRules knows, as `ovs-ofctl dump-flows` takes them: one after the other.
func CountFilters() []string {
	kind := func(o object, mask uint64) string { return fmt.Sprintf("cookie=%#x/%#x", o.key(), mask) }
	const whole = uint64(1)<<cookieStageShift - 1
	filters := []string{kind(object{KindRule, 0}, 0xff<<cookieKindShift)}
	for _, d := range []direction{egress, ingress} {
		filters = append(filters, fmt.Sprintf("table=%d,%s", d.rest, kind(d.reason.object(), whole)))
	}
	return filters
}

// CountRules adds up what flows have counted, by rule, and by address where no rule matched.
func CountRules(flows []Flow, counts []Count) (map[uint32]RuleCount, map[Unmatched]Count) {
	rules, rest := map[uint32]RuleCount{}, map[Unmatched]Count{}
	for i, f := range flows {
		c := ParseCookie(f.Cookie)
		r := rules[uint32(c.Object)]
		switch at := Stage(f.Table); {
		case c.Kind == KindRule && (at == EgressCount || at == IngressCount):
			r.Passed = sum(r.Passed, counts[i])
			if f.Priority == countBegins {
				r.Connections += counts[i].Packets
			}
			rules[uint32(c.Object)] = r
		case c.Kind == KindRule && Denies(f.Table, f.Actions):
			r.Denied = sum(r.Denied, counts[i])
			rules[uint32(c.Object)] = r
		case f.Actions == drop && f.Priority == rulesNone && (at == EgressRules || at == IngressRules):
			u := Unmatched{guardOf(f.Match), Ingress}
			if at == EgressRules {
				u.Direction = Egress
			}
			rest[u] = sum(rest[u], counts[i])
		}
	}
	return rules, rest
}

// guardOf is the address of a match that has one end of a connection.
func guardOf(match string) netip.Addr {
	for part := range strings.SplitSeq(match, ",") {
		name, value, _ := strings.Cut(part, "=")
		switch name {
		case "ct_nw_src", "ct_nw_dst", "ct_ipv6_src", "ct_ipv6_dst":
			a, _ := netip.ParseAddr(value)
			return a
		}
	}
	return netip.Addr{}
}
