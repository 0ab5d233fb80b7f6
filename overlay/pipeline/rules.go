package pipeline

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
)

// Rules are about connections, not packets. Open vSwitch's connection tracking tells of each
// packet of a connection, answers and ICMP errors too, by which addresses and ports it began
// (ct_nw_src, ct_tp_dst, ...), and keeps what it is given with it: ct_mark has the epochs of
// the rules that it passed, of its source's and of its destination's. So what passed is not
// judged again while the epochs are the same, and when they are not the next packet is, in
// either direction and by the rules for the direction in which the connection began.

// The priorities of conntrack. What belongs to nobody with rules is not looked up.
const (
	conntrackLinkLocal = 300 // dropped: from or to a link-local address of an endpoint with rules
	conntrackHosts     = 200 // from another host's own address, which is judged as the gateway's
	conntrackFrom      = 110 // from an endpoint with rules
	conntrackTo        = 100 // to one
)

// The priorities of connection. A crowd is an endpoint that has as many connections as it may, or all of them together.
const (
	connectionInvalid   = 300 // dropped
	connectionHinted    = 260 // of a connection that only the fast path knows
	connectionMayAnswer = 250 // an answer, TCP, which an endpoint's rules would let pass as a call
	// TCP that calls, of a connection that nobody saw begin.
	connectionCrowdCalls = 208 // dropped: by a crowd
	connectionSpareCalls = 206 // by an endpoint with room of its own
	connectionFullCalls  = 205 // dropped: there is room for nobody else
	connectionMidstream  = 200 // of all others, calls and answers
	connectionNeither    = 100 // dropped: TCP of no connection else
	// What begins a connection.
	connectionCrowd     = 98 // dropped: by a crowd
	connectionSpare     = 94 // by an endpoint with room of its own
	connectionFull      = 90 // dropped: there is room for nobody else
	connectionUndecided = 80 // an answer, where nobody knows who called
	connectionBegins    = 70
	connectionYoung     = 60 // what may be an answer: its endpoint had no rules a moment ago
)

// The priorities of egress-epoch and ingress-epoch.
const (
	epochPassed = 200 // what has passed the rules as they are
	epochJudge  = 100 // all else from, or to, an endpoint with rules
)

// The priorities of class.
const (
	classAddress = 2000
	classRange   = 1000 // of length 0: the longest comes first
)

// The priorities of caller and callee.
const (
	callerAddress = 100
	calleeSource  = 100 // the source's class was looked up
	calleeBoth    = 50  // the destination's, too
)

// The priorities of egress-policy and ingress-policy, and of egress-rules and ingress-rules behind them.
const (
	rulesFragment = 65000 // what has no ports, and goes no further than its first fragment does
	rulesHost     = 60000 // the host to its endpoints, and they to its resolver
	rulesLowest   = 100   // of a rule: its own priority is added
	rulesNetworks = 2     // no rule of the first two stages matches: on to the others
	rulesJudged   = 1     // there is nothing to judge for it in ingress-policy
	rulesNone     = 1     // dropped, and counted as the endpoint's: no rule matches
)

// The priorities of commit.
const (
	commitErrorOwn   = 320 // an ICMP error of an endpoint with rules about a connection of its own
	commitErrorOther = 310 // dropped: about another's
	commitError      = 305 // all other ICMP errors
	commitExpected   = 302 // dropped: what else is of a connection that another one is there for
	commitTurned     = 300 // an answer to a call that nobody saw: nothing is noted
	// What the fast path has handed over.
	commitHandedEnd = 299 // it ends
	commitUnnoted   = 298 // there are too many connections
	commitHanded    = 297

	commitAnswers   = 295 // TCP of no connection which answers
	commitUndecided = 290 // of a connection of which nobody knows who called
	commitUnsure    = 240 // it begins one
	commitFragment  = 220 // behind the first: nothing is noted of rules
	commitGranted   = 215 // a first packet of which the fast path may let through the like
	commitBegins    = 210
	commitBegun     = 200 // a connection is new, and its first packet was counted
	commitLabels    = 110 // known, but no rule was noted yet
	commitJudged    = 100 // its rules have changed: what judges it now is noted
	commitSettled   = 50  // it needs no judgement (settled.go)
)

// committedUntracked is the priority in committed of what connection tracking let go of unseen, which is dropped.
const committedUntracked = 300

// Zone is of connection tracking, where tuples do not meet those of others: in the kernel's
// datapath the host and its NAT are in zone 0 of the same table.
const Zone = 0x6776

// member is an address, or a range of them, of a class.
type member struct {
	prefix netip.Prefix
	class  uint32 // 0: of several, so that nobody knows what it may
	single bool   // one address, which comes before all ranges
}

// objects says whether there is anything to enforce, and which members the classes have that
// rules name.
func (p Policy) objects() (policed bool, list []member) {
	if !slices.ContainsFunc(p.Guards, func(g Guard) bool { return g.Ingress || g.Egress }) {
		return false, nil
	}
	named := map[uint32]bool{}
	for _, r := range p.Rules {
		for _, c := range slices.Concat(r.Subjects, r.Peers) {
			named[c] = true
		}
	}
	// A member of a class that no rule names is there where it is within another's range.
	var ranges []netip.Prefix
	for _, c := range p.Classes {
		if named[c.ID] {
			ranges = append(ranges, c.Ranges...)
		}
	}
	type place struct {
		prefix netip.Prefix
		single bool
	}
	at := map[place]int{}
	for _, c := range p.Classes {
		add := func(prefix netip.Prefix, single bool) {
			if i, twice := at[place{prefix, single}]; twice && list[i].class != c.ID {
				list[i] = member{prefix, 0, single}
				return
			}
			within := func(r netip.Prefix) bool { return r.Overlaps(prefix) && r.Bits() <= prefix.Bits() }
			if named[c.ID] || slices.ContainsFunc(ranges, within) {
				at[place{prefix, single}] = len(list)
				list = append(list, member{prefix, c.ID, single})
			}
		}
		for _, a := range c.Addrs {
			add(host(a), true)
		}
		for _, r := range c.Ranges {
			add(r, false)
		}
	}
	return true, list
}

// same reports whether p and o are one policy, not just equal ones.
func (p Policy) same(o Policy) bool {
	return sameSlice(p.Openings, o.Openings) && sameSlice(p.Guards, o.Guards) && sameSlice(p.Classes, o.Classes) && sameSlice(p.Rules, o.Rules) && sameSlice(p.Crowds, o.Crowds)
}

func sameSlice[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// direction is what differs between egress and ingress.
type direction struct {
	epochs, first, rest, after Stage // EgressEpoch, ...; first has the rules above NetworkPolicies
	epoch, judge, rule         register
	subject, peer              register
	markShift                  int // in ct_mark, of the epoch; twice that in ct_label, of the rule
	count                      Stage
	reason                     Reason
}

var (
	egress = direction{
		EgressEpoch, EgressPolicy, EgressRules, Service, regEgressEpoch, regJudgeEgress, regEgressRule,
		regSourceClass, regDestClass, 0, EgressCount, DropEgress,
	}
	ingress = direction{
		IngressEpoch, IngressPolicy, IngressRules, Commit, regIngressEpoch, regJudgeIngress, regIngressRule,
		regDestClass, regSourceClass, 16, IngressCount, DropIngress,
	}
)

func directionOf(d Direction) direction {
	if d == Egress {
		return egress
	}
	return ingress
}

// turns are the packets that connection tracking has right, and those that answer a connection
// which it did not see begin (regTurned).
var turns = []bool{false, true}

func turn(m match, turned bool) match {
	if turned {
		return m.reg(regTurned, 1)
	}
	return m.reg(regTurned, 0)
}

// from and to match the address from which a connection came, and to which it goes.
func (m match) from(p netip.Prefix, turned bool) match { return turn(m.ctAddr(p, turned), turned) }
func (m match) to(p netip.Prefix, turned bool) match   { return turn(m.ctAddr(p, !turned), turned) }

// ctAddr matches an end of a connection. Open vSwitch wants to be told that there is one.
func (m match) ctAddr(p netip.Prefix, dest bool) match {
	f, name, field := familyOf(p.Addr()), "ct_nw_", fieldCTSrc
	if p.Addr().Is6() {
		name = "ct_ipv6_"
	}
	end := "src"
	if dest {
		end, field = "dst", fieldCTDst
	}
	m = m.tracked().proto(f.proto)
	if p.Bits() == 0 {
		return m
	}
	return m.with(field, "%s%s=%s", name, end, prefixText(p))
}

func (m match) ctState(flags string) match { return m.with(fieldCTState, "ct_state=%s", flags) }
func (m match) tracked() match             { return m.ctState("-inv+trk") }

// policyStages is what stands in the stages of policy whatever the rules are.
func policyStages(c *compiler) {
	if !c.in.policed {
		return
	}
	// Another host speaks to a container by way of this one's gateway, which is seen then.
	for _, r := range HostRanges {
		c.add(Conntrack, conntrackHosts, object{}, match{}.reg(regClass, classTunnel).ipSrc(r), goTo(EgressPolicy))
	}
	c.drop(Connection, connectionInvalid, DropInvalid, match{}.ctState("+inv+trk"))
	// Open vSwitch takes protocol 0 of a connection for a sign that there is none: no match of its addresses sees it.
	for _, f := range []family{ipv4, ipv6} {
		c.drop(Connection, connectionInvalid, DropInvalid, match{}.proto(f.proto).ipProto(0))
	}
	// The userspace datapath lets fragments whose rest never came go with whatever packet is at
	// connection tracking next: they have that one's registers, were not looked at, and may be
	// another network's.
	c.drop(Connection, connectionInvalid, DropInvalid, match{}.ctState("-trk"))
	c.drop(Committed, committedUntracked, DropInvalid, match{}.ctState("-trk"))
	c.pass(Committed)
	c.hinted()
	c.midstream()
	c.unseen()
	c.add(Connection, otherwise, object{}, match{}, c.decided(load(regTracked, 1), goTo(EgressEpoch))...)
	for _, s := range []Stage{EgressEpoch, IngressEpoch, Caller, AddressClass, Callee, EgressCount, IngressCount} {
		c.pass(s)
	}
	for _, d := range []direction{egress, ingress} {
		// In the userspace datapath all fragments come here, one after the other, once the last is
		// there. The first has the ports; without it the others, held at Commit, get no further.
		for _, f := range []family{ipv4, ipv6} {
			c.add(d.first, rulesFragment, object{}, match{}.reg(d.judge, 1).proto(f.proto).with(fieldFrag, "nw_frag=later"), goTo(d.after))
		}
		c.add(d.first, rulesNetworks, object{}, match{}.reg(d.judge, 1), goTo(d.rest))
		c.drop(d.rest, otherwise, d.reason, match{})
	}
	c.add(IngressPolicy, rulesJudged, object{}, match{}.reg(regTracked, 1).reg(regJudgeIngress, 0), goTo(Commit))

	epochs := move(regEgressEpoch.whole(), "NXM_NX_CT_MARK[]")
	out, in := move(regEgressRule.whole(), "NXM_NX_CT_LABEL[0..31]"), move(regIngressRule.whole(), "NXM_NX_CT_LABEL[32..63]")
	const begins, begun = true, false
	commit := func(priority int, m match, begins bool, notes ...string) {
		note := ""
		if len(notes) > 0 {
			note = fmt.Sprintf(",exec(%s)", actions(notes...))
		}
		act := []string{fmt.Sprintf("ct(commit,table=%d,zone=%d%s)", Committed, Zone, note)}
		if begins {
			act = slices.Insert(act, 0, load(regBegins, 1))
		}
		for _, f := range []family{ipv4, ipv6} { // ct wants to know that it is IP
			c.add(Commit, priority, object{}, m.proto(f.proto), act...)
		}
	}
	c.errors()
	for _, f := range []family{ipv4, ipv6} {
		c.add(Commit, commitError, object{}, match{}.ctState("+rel+trk").proto(f.icmp), goTo(EgressCount))
	}
	// A kernel before 6.0 that is told to (nf_conntrack_helper=1) expects connections by what others say, as FTP's are: rules have seen
	// the ports of that other one.
	c.drop(Commit, commitExpected, DropInvalid, match{}.ctState("+rel+trk"))
	if c.in.hints() { // its first packet was counted by the fast path
		commit(commitHanded, match{}.ctState("+new+trk").reg(regHanded, 1), begun, epochs, out, in)
		for _, f := range []family{ipv4, ipv6} { // what ends makes no connection known, which conntrack would keep for a quarter of an hour
			for _, flag := range []string{"fin", "rst"} {
				c.add(Commit, commitHandedEnd, object{}, match{}.proto(f.tcp).ctState("+new+trk").reg(regHanded, 1).with(fieldTCPFlags, "tcp_flags=+%s", flag), goTo(EgressCount))
			}
		}
	}
	for _, m := range c.granted() {
		note := fmt.Sprintf("ct(commit,table=%d,zone=%d,exec(%s))", Committed, Zone, actions(epochs, out, in))
		c.add(Commit, commitGranted, object{}, m, load(regSettled, 1), load(regBegins, 1), note)
	}
	c.add(Commit, commitTurned, object{}, match{}.reg(regTurned, 1), goTo(EgressCount))
	for _, f := range []family{ipv4, ipv6} {
		c.add(Commit, commitAnswers, object{}, midstream(f).ports(lowPort, highPort), goTo(EgressCount)) // it answers: who calls is noted
		c.add(Commit, commitUndecided, object{}, match{}.proto(f.proto).ctState("+trk").undecided(), goTo(EgressCount))
		note := fmt.Sprintf("ct(commit,table=%d,zone=%d,exec(load:0x1->NXM_NX_CT_LABEL[%d]))", Committed, Zone, undecidedBit)
		unsure := match{}.ctState("+new+trk").reg(regUnsure, 1).proto(f.proto)
		c.add(Commit, commitUnsure, object{}, unsure.reg(regJudgeEgress, 0).reg(regJudgeIngress, 0), note)
		for _, proto := range datagrams {
			c.add(Commit, commitUnsure, object{}, unsure.ctProto(proto).ctPorts(lowPort, highPort), note)
		}
	}
	// Of a datagram in fragments the userspace datapath takes what the last one notes, which knows of no rule: the first one
	// waits for it here. So it notes nothing, and the next packet of the connection is judged, and does.
	later := match{}.with(fieldFrag, "nw_frag=later")
	commit(commitFragment, later.ctState("+new+trk"), begun)
	commit(commitFragment, later.reg(regJudgeEgress, 1), begun)
	commit(commitFragment, later.reg(regJudgeIngress, 1), begun)
	commit(commitBegins, match{}.ctState("+new+trk").unlabelled(), begins, epochs, out, in)
	commit(commitBegun, match{}.ctState("+new+trk"), begun, epochs, out, in)
	for _, first := range []bool{begins, begun} { // of a connection that began in fragments it is the first one that has a rule
		priority, m := commitJudged, match{}
		if first {
			priority, m = commitLabels, match{}.ctState("-new+trk").unlabelled()
		}
		commit(priority, m.reg(regJudgeEgress, 1).reg(regJudgeIngress, 1), first, epochs, out, in)
		commit(priority, m.reg(regJudgeEgress, 1).reg(regJudgeIngress, 0), first, epochs, out)
		commit(priority, m.reg(regJudgeEgress, 0).reg(regJudgeIngress, 1), first, epochs, in)
	}
	c.add(Commit, otherwise, object{}, match{}, goTo(EgressCount))
}

// errors is for ICMP errors, which are judged by the connections that they are about: who has rules for what he sends says
// nothing about those of others, by which he would send what he likes to where his rules do not let him.
func (c *compiler) errors() {
	for _, g := range c.in.Policy.Guards {
		for _, a := range g.Addrs {
			if !g.Egress {
				continue
			}
			f := familyOf(a)
			from := match{}.ctState("+rel-inv+trk").proto(f.icmp).with(fieldSrc, "%s=%s", f.src, prefixText(host(a)))
			for field, end := range map[field]string{fieldCTSrc: "src", fieldCTDst: "dst"} {
				name := "ct_nw_"
				if a.Is6() {
					name = "ct_ipv6_"
				}
				c.add(Commit, commitErrorOwn, endpointObject(g.Endpoint), from.with(field, "%s%s=%s", name, end, prefixText(host(a))), goTo(EgressCount))
			}
			c.drop(Commit, commitErrorOther, DropInvalid, from)
		}
	}
}

// The ports of callers, as Linux chooses them (ip_local_port_range), and of those who are called.
const highPort, lowPort = "0x8000/0x8000", "0x0/0x8000"

// midstream matches TCP that belongs to no connection and begins none.
func midstream(f family) match {
	return match{}.ctState("+new-inv+trk").proto(f.tcp).with(fieldTCPFlags, "tcp_flags=-syn")
}

func (m match) ports(src, dst string) match {
	return m.with(fieldPortSrc, "tp_src=%s", src).with(fieldPortDst, "tp_dst=%s", dst)
}

// midstream is for TCP that belongs to no connection and begins none: an endpoint has rules
// only since now, or Open vSwitch has begun anew. Whose call it was, and so by whose rules it
// is to be judged, the ports say: callers have those from 32768 on. A caller's packet makes
// the connection known. What answers is judged by itself until then: only from and to endpoints
// whose rules would let it pass as a call, so that no port gets a packet past rules.
func (c *compiler) midstream() {
	for _, f := range []family{ipv4, ipv6} {
		call, answer := midstream(f).ports(highPort, lowPort), midstream(f).ports(lowPort, highPort)
		c.add(Connection, connectionMidstream, object{}, call, load(regTracked, 1), goTo(EgressEpoch))
		c.add(Connection, connectionMidstream, object{}, answer, load(regTracked, 1), load(regTurned, 1), goTo(EgressEpoch))
		c.drop(Connection, connectionNeither, DropMidstream, midstream(f))
		for _, g := range c.in.Policy.Guards {
			for _, a := range g.Addrs {
				if familyOf(a) != f {
					continue
				}
				if g.Egress {
					c.add(Connection, connectionMayAnswer, endpointObject(g.Endpoint), answer.with(fieldSrc, "%s=%s", f.src, prefixText(host(a))), load(regTracked, 1), goTo(EgressEpoch))
				}
				if g.Ingress {
					c.add(Connection, connectionMayAnswer, endpointObject(g.Endpoint), answer.with(fieldDst, "%s=%s", f.dst, prefixText(host(a))), load(regTracked, 1), goTo(EgressEpoch))
				}
			}
		}
	}
}

// datagrams are the protocols with ports of which no packet says that it is the first.
var datagrams = []uint8{protoUDP, protoSCTP}

// undecidedBit of ct_label, above the rules' IDs, is set of connections of which nobody knows who called.
const undecidedBit = 64

func (m match) undecided() match {
	return m.with(fieldCTLabel, "ct_label=0x1%016x/0x1%016x", 0, 0)
}

// ctPorts matches the ports of a connection; of fragments the packet has none.
func (m match) ctPorts(src, dst string) match {
	return m.with(fieldCTPortSrc, "ct_tp_src=%s", src).with(fieldCTPortDst, "ct_tp_dst=%s", dst)
}

// unseen is for what is no TCP and may have begun before its endpoint had rules. The first packet that is seen of it may be
// an answer. By its ports it is a call, or an answer, or either. A call is one. An answer, and what no rules judge in the
// direction in which it goes, makes a connection known that is undecided: each end's packets are judged as if it had
// called, for as long as anybody speaks.
func (c *compiler) unseen() {
	for _, f := range []family{ipv4, ipv6} {
		ip := match{}.proto(f.proto)
		c.add(Connection, connectionUndecided, object{}, ip.ctState("+rpl-inv+trk").undecided(), load(regTracked, 1), load(regTurned, 1), goTo(EgressEpoch))
		begins := ip.ctState("+new-inv+trk")
		icmp := uint8(protoICMP)
		if f == ipv6 {
			icmp = protoICMPv6
		}
		sure := []match{begins.ctProto(icmp)}
		for _, proto := range datagrams {
			sure = append(sure, begins.ctProto(proto).ctPorts(highPort, lowPort))
		}
		for _, g := range c.in.Policy.Guards {
			for _, a := range g.Addrs {
				if !g.Young || familyOf(a) != f {
					continue
				}
				for _, end := range []match{begins.with(fieldSrc, "%s=%s", f.src, prefixText(host(a))), begins.with(fieldDst, "%s=%s", f.dst, prefixText(host(a)))} {
					c.add(Connection, connectionYoung, endpointObject(g.Endpoint), end, load(regTracked, 1), load(regUnsure, 1), goTo(EgressEpoch))
				}
			}
		}
		c.add(Connection, connectionBegins, object{}, begins.ctProto(protoTCP), c.decided(load(regTracked, 1), goTo(EgressEpoch))...)
		for _, m := range sure {
			c.add(Connection, connectionBegins, object{}, m, load(regTracked, 1), goTo(EgressEpoch))
		}
	}
}

// resolver is the port of a host's.
const resolver = 53

// policyHost lets a host speak to its endpoints, and them to its resolver.
func policyHost(c *compiler) {
	if !c.in.policed {
		return
	}
	for _, s := range c.in.Subnets {
		if !s.Gateway.IsValid() {
			continue
		}
		o, gateway := subnetObject(s.Prefix), host(s.Gateway)
		for _, turned := range turns {
			c.add(IngressPolicy, rulesHost, o, match{}.reg(regJudgeIngress, 1).from(gateway, turned), goTo(Commit))
			for _, proto := range []uint8{protoTCP, protoUDP} {
				ask := match{}.reg(regJudgeEgress, 1).to(gateway, turned).ctProto(proto).ctPort(resolver, 0xffff, turned)
				c.add(EgressPolicy, rulesHost, o, ask, goTo(Service))
			}
		}
	}
}

// policyGuards looks up the connections of endpoints with rules, and says which are to be judged.
func policyGuards(c *compiler) {
	if !c.in.policed {
		return
	}
	look := fmt.Sprintf("ct(table=%d,zone=%d)", Connection, Zone)
	for _, g := range c.in.Policy.Guards {
		if !g.Egress && !g.Ingress {
			continue
		}
		o := endpointObject(g.Endpoint)
		for _, a := range g.Addrs {
			c.add(Conntrack, conntrackFrom, o, match{}.reg(regClass, classEndpoint).ipSrc(host(a)), look)
			c.add(Conntrack, conntrackTo, o, match{}.ipDst(host(a)), look)
			if g.Egress {
				c.guard(egress, o, a, g.EgressEpoch, match.from, named(g)...)
			}
			if g.Ingress {
				c.guard(ingress, o, a, g.IngressEpoch, match.to)
			}
		}
		for _, a := range g.LinkLocal {
			own := match{}.reg(regSrcVNID, g.VNID)
			c.add(Conntrack, conntrackLinkLocal, o, own.ipSrc(host(a)), drop)
			c.add(Conntrack, conntrackLinkLocal, o, own.ipDst(host(a)), drop)
		}
	}
}

// policyCrowds lets those begin no connection of whom there are too many. Answers go on that fit none, and what has begun does.
func policyCrowds(c *compiler) {
	if !c.in.policed {
		return
	}
	for _, crowd := range c.in.Policy.Crowds {
		for _, f := range []family{ipv4, ipv6} {
			begins, call := match{}.proto(f.proto).ctState("+new-inv+trk"), midstream(f).ports(highPort, lowPort)
			// What began without the switch goes on, and takes no room in it.
			handed := match{}.proto(f.proto).ctState("+new+trk").reg(regHanded, 1)
			a := crowd.Addr
			if !a.IsValid() {
				c.unnoted(handed)
				c.drop(Connection, connectionFull, DropFull, begins.reg(regSpared, 0))
				c.drop(Connection, connectionFullCalls, DropFull, call.reg(regSpared, 0))
				continue
			}
			if familyOf(a) != f {
				continue
			}
			called := call.with(fieldSrc, "%s=%s", f.src, prefixText(host(a)))
			if !crowd.Spared { // these come first: who has too many has no more questions
				c.unnoted(handed.ipSrc(host(a)))
				c.drop(Connection, connectionCrowd, DropCrowd, begins.ipSrc(host(a)))
				c.drop(Connection, connectionCrowdCalls, DropCrowd, called)
				continue
			}
			spare := []string{load(regSpared, 1), again(Connection)}
			c.add(Connection, connectionSpare, object{}, begins.reg(regSpared, 0).ipSrc(host(a)), spare...)
			c.add(Connection, connectionSpareCalls, object{}, called.reg(regSpared, 0), spare...)
			for _, proto := range []uint8{protoTCP, protoUDP} {
				c.add(Connection, connectionSpare, object{}, begins.reg(regSpared, 0).ipDst(host(a)).ctProto(proto).ctPort(resolver, 0xffff, false), spare...)
			}
		}
	}
}

// unnoted are packets of connections that the fast path has handed over and that are not remembered for it.
func (c *compiler) unnoted(m match) {
	if c.in.hints() {
		c.add(Commit, commitUnnoted, object{}, m, goTo(EgressCount))
	}
}

// Left are the addresses of endpoints that are here no more from c on, or are another endpoint's.
func (c Changes) Left() (list []netip.Addr) {
	left := func(f Flow) {
		if f.Table != uint8(Forwarding) || f.Priority != forwardingLocal {
			return
		}
		if a, err := netip.ParseAddr(f.Match[strings.LastIndexByte(f.Match, '=')+1:]); err == nil && !a.IsLinkLocalUnicast() { // those are each network's own
			list = append(list, a)
		}
	}
	for _, f := range c.Delete {
		left(f)
	}
	for _, f := range c.Handed {
		left(f)
	}
	return list
}

// Tracked are the addresses of endpoints whose connections are looked up only from c on, or for
// another endpoint: what the switch may know of their connections is out of date.
func (c Changes) Tracked() (list []netip.Addr) {
	for _, f := range slices.Concat(c.Add, c.Modify) {
		if f.Table != uint8(Conntrack) || f.Priority != conntrackTo {
			continue
		}
		if a, err := netip.ParseAddr(f.Match[strings.LastIndexByte(f.Match, '=')+1:]); err == nil {
			list = append(list, a)
		}
	}
	return list
}

func (c *compiler) guard(d direction, o object, a netip.Addr, epoch uint16, end func(match, netip.Prefix, bool) match, also ...string) {
	next := d.epochs.next()
	judge := append([]string{load(d.epoch, uint32(epoch)), load(d.judge, 1)}, append(also, goTo(next))...)
	for _, turned := range turns {
		c.add(d.epochs, epochJudge, o, end(match{}, host(a), turned), judge...)
	}
	c.unmatched(d, a, end)
	settled := end(match{}, host(a), false).settled(uint32(epoch)<<d.markShift, 0xffff<<d.markShift)
	c.add(d.epochs, epochPassed, o, settled, load(d.epoch, uint32(epoch)), goTo(next))
}

// settled matches packets of connections that have passed, with this mark.
func (m match) settled(mark, mask uint32) match {
	return m.with(fieldCTMark, "ct_mark=%s", maskedText(mark, mask)).settledState()
}

// settledState makes of a match of what is tracked one of connections that have passed.
func (m match) settledState() match {
	m.terms = slices.Clone(m.terms)
	i := slices.IndexFunc(m.terms, func(t term) bool { return t.field == fieldCTState })
	m.terms[i].text = "ct_state=-new-inv+trk"
	return m
}

// policyMembers loads classes. Whichever end of a connection an address is, by whichever packet, one flow says its class: so
// both ends' addresses come to it by a register, one after the other (ends).
func policyMembers(c *compiler) {
	if !c.in.policed {
		return
	}
	c.ends()
	for _, v := range c.in.members {
		priority := classRange + v.prefix.Bits()
		if v.single {
			priority = classAddress
		}
		m := inRegisters(v.prefix)
		if v.class == 0 {
			c.drop(AddressClass, priority, DropTwoClasses, m)
			continue
		}
		c.add(AddressClass, priority, classObject(v.class), m, load(regDestClass, v.class), goTo(AddressClass.next()))
	}
}

// ends has class look at a connection's source, and then at its destination. An IPv6 address takes four registers, of which three
// say something else: they wait on the stack meanwhile. Addresses come by the stack, too: Open vSwitch moves none of an ICMP error
// of the caller's, since there it takes conntrack's fields for invalid.
func (c *compiler) ends() {
	const wide = "NXM_NX_XXREG1[]" // regAddress and those around it
	for _, f := range []family{ipv4, ipv6} {
		field, at := "push:NXM_NX_CT_NW_", "pop:"+regAddress.whole()
		var keep, back []string
		if f == ipv6 {
			field, at = "push:NXM_NX_CT_IPV6_", "pop:"+wide
			keep, back = []string{"push:" + wide}, []string{"pop:" + wide}
		} else {
			back = []string{load(regAddress, 0)}
		}
		for _, turned := range turns {
			source, dest := field+"SRC[]", field+"DST[]"
			if turned {
				source, dest = dest, source
			}
			m := turn(match{}.tracked().proto(f.proto), turned)
			c.add(Caller, callerAddress, object{}, m, slices.Concat(keep, []string{source, at, goTo(AddressClass)})...)
			c.add(Callee, calleeSource, object{}, m.reg(regBothEnds, 0),
				move(regDestClass.whole(), regSourceClass.whole()), load(regDestClass, 0), load(regBothEnds, 1), dest, at, again(AddressClass))
		}
		c.add(Callee, calleeBoth, object{}, match{}.proto(f.proto).reg(regBothEnds, 1), append(back, goTo(Callee.next()))...)
	}
}

// inRegisters matches addresses of p where class looks for them.
func inRegisters(p netip.Prefix) match {
	m := match{}.proto(familyOf(p.Addr()).proto)
	b, first := p.Addr().AsSlice(), regAddress.Num
	if len(b) > 4 {
		first = 4 // xxreg1
	}
	for i := 0; i*32 < p.Bits(); i++ {
		mask := ^uint32(0) << max(0, (i+1)*32-p.Bits())
		m.regs[first+i].value, m.regs[first+i].mask = binary.BigEndian.Uint32(b[i*4:])&mask, mask
	}
	return m
}

// policyRules makes flows of rules: one for each subject, each peer and each range of ports,
// and one for what all of these agree on (conjunctive matches, ovs-fields(7)).
func policyRules(c *compiler) {
	if !c.in.policed {
		return
	}
	for _, r := range c.in.Policy.Rules {
		began := len(c.flows)
		c.rule(r)
		mine := c.flows[began:]
		slices.SortFunc(mine, Flow.order)
		c.flows = c.flows[:began+len(slices.Compact(mine))] // of the same named twice
	}
}

// sctp is the ports of a rule as the switch can tell them. Connection tracking of the userspace datapath knows no ports of
// SCTP, and takes all of two addresses for one connection: what names some is for all there if it denies, and for none if it
// lets through. What passes on, and may be meant, denies (denied).
func (c *compiler) sctp(action Action, ports []PortRange) (told []PortRange, denied bool) {
	if c.in.Tunnel == Metadata {
		return ports, false
	}
	for _, p := range ports {
		switch {
		case p.Proto != protoSCTP || p.From <= 1 && p.To == 65535:
		case action == Drop || action == Reject:
			p.From, p.To = 0, 65535
		default:
			denied = denied || action == Pass
			continue
		}
		if p.Proto == protoSCTP {
			p.From = 0
		}
		told = append(told, p)
	}
	return told, denied
}

// InPlaceOf is the ID of the rule that denies SCTP in the place of one that passes on. No rule has it, since IDs of rules that policies
// come to leave this bit out.
func InPlaceOf(rule uint32) uint32 { return rule ^ 1<<31 }

func (c *compiler) rule(r PolicyRule) {
	ports, denied := c.sctp(r.Action, r.Ports)
	if denied {
		other := r
		other.ID, other.Action, other.Ports = InPlaceOf(r.ID), Drop, []PortRange{{protoSCTP, 0, 65535}}
		c.rule(other)
	}
	r.Ports = ports
	d := directionOf(r.Direction)
	at := d.rest
	if r.Priority > PriorityNetworkPolicy {
		at = d.first
	}
	var dims []func(clause func(match))
	dims = append(dims, func(clause func(match)) {
		for _, s := range r.Subjects {
			clause(match{}.reg(d.judge, 1).reg(d.subject, s))
		}
	})
	if !r.AnyPeer {
		dims = append(dims, func(clause func(match)) { r.peers(d, clause) })
	}
	if !r.AnyPort {
		dims = append(dims, func(clause func(match)) { r.ports(clause) })
	}
	if len(dims) == 1 { // less than two the switch does not take
		dims = append(dims, func(clause func(match)) { clause(match{}.ctState("+trk")) })
	}
	priority := rulesLowest + r.Priority
	for i, dim := range dims {
		dim(func(m match) {
			c.add(at, priority, object{}, m, fmt.Sprintf("%s%d,%d/%d)", conjunction, r.ID, i+1, len(dims)))
		})
	}
	c.add(at, priority, ruleObject(r.ID), match{}.with(fieldConjID, "conj_id=%d", r.ID), d.does(r.Action, r.ID)...)
	switch r.Action {
	case Accept:
		c.counts(d, r.ID, r.Slot)
	case Reject:
		c.rejects()
	}
}

// does is what a rule does with what it matches.
func (d direction) does(a Action, rule uint32) []string {
	switch a {
	case Accept:
		return []string{load(d.rule, rule), goTo(d.after)}
	case Pass:
		return []string{goTo(d.rest)}
	case Reject:
		return []string{goTo(RejectStage)}
	}
	return []string{drop}
}

func (r PolicyRule) peers(d direction, clause func(match)) {
	for _, p := range r.Peers {
		clause(match{}.reg(d.peer, p))
	}
	for _, b := range r.Blocks {
		for _, turned := range turns {
			if d.peer == regSourceClass {
				clause(match{}.from(b, turned))
			} else {
				clause(match{}.to(b, turned))
			}
		}
	}
}

// policyOpenings makes a flow of each opening and range of ports. A rule of the same priority does the same, so that it
// does not matter which of the two a packet meets.
func policyOpenings(c *compiler) {
	if !c.in.policed {
		return
	}
	for _, o := range c.in.Policy.Openings {
		at := egress.rest
		if o.Priority > PriorityNetworkPolicy {
			at = egress.first
		}
		began := len(c.flows)
		emit := func(m match, turned bool, does ...string) {
			m = m.reg(egress.judge, 1).from(host(o.From), turned).ctAddr(host(o.To), !turned).once()
			if o.Named {
				m = m.reg(regNamed, 1)
			}
			if o.Past {
				m = m.settledState()
			}
			c.add(at, rulesLowest+o.Priority, ruleObject(o.Rule), m, does...)
		}
		does := egress.does(o.Action, o.Rule)
		for _, turned := range turns {
			if turned && o.Past {
				continue
			}
			if o.AnyPort {
				emit(match{}, turned, does...)
			}
		}
		if !o.AnyPort {
			each := func(ports []PortRange, does ...string) {
				PolicyRule{Ports: ports}.ports(func(m match) {
					turned := m.regs[regTurned.Num].value != 0
					if family := familyOf(o.From).proto; slices.ContainsFunc(m.terms, func(t term) bool { return t.field == fieldProto && t.text != family }) || turned && o.Past {
						return
					}
					emit(m, turned, does...)
				})
			}
			ports, denied := c.sctp(o.Action, o.Ports)
			each(ports, does...)
			if denied {
				each([]PortRange{{protoSCTP, 0, 65535}}, drop)
			}
		}
		mine := c.flows[began:]
		slices.SortFunc(mine, Flow.order)
		c.flows = c.flows[:began+len(slices.Compact(mine))]
	}
}

func (r PolicyRule) ports(clause func(match)) {
	for _, p := range r.Ports {
		families := []family{ipv4, ipv6}
		switch p.Proto {
		case protoICMP:
			families = families[:1]
		case protoICMPv6:
			families = families[1:]
		}
		for _, f := range families {
			m := match{}.tracked().proto(f.proto).ctProto(p.Proto)
			if p.Proto == protoICMP || p.Proto == protoICMPv6 {
				if p.From != AnyNumber {
					m = m.with(fieldCTPortSrc, "ct_tp_src=%d", p.From)
				}
				if p.To != AnyNumber {
					m = m.with(fieldCTPortDst, "ct_tp_dst=%d", p.To)
				}
				clause(m)
				continue
			}
			for _, turned := range turns {
				for value, mask := range masks(p.From, p.To) {
					clause(turn(m, turned).ctPort(value, mask, turned))
				}
			}
		}
	}
}

func (m match) ctProto(p uint8) match { return m.with(fieldCTProto, "ct_nw_proto=%d", p) }

// ctPort matches the port to which a connection goes.
func (m match) ctPort(value, mask uint16, turned bool) match {
	name, field := "ct_tp_dst", fieldCTPortDst
	if turned {
		name, field = "ct_tp_src", fieldCTPortSrc
	}
	switch mask {
	case 0:
		return m
	case 0xffff:
		return m.with(field, "%s=%d", name, value)
	}
	return m.with(field, "%s=%#x/%#x", name, value, mask)
}

// masks are values and masks of bits that together match a range of numbers.
func masks(from, to uint16) func(func(value, mask uint16) bool) {
	return func(yield func(value, mask uint16) bool) {
		for at := uint32(from); at <= uint32(to); {
			size := uint32(1) << 16
			if at != 0 {
				size = 1 << bits.TrailingZeros32(at)
			}
			for at+size-1 > uint32(to) {
				size /= 2
			}
			if !yield(uint16(at), uint16(^(size - 1))) {
				return
			}
			at += size
		}
	}
}

// whole names the register that r is in.
func (r register) whole() string { return fmt.Sprintf("NXM_NX_REG%d[]", r.Num) }

// conjunction is how the actions begin of flows of which each stands for a part of a rule.
// Several rules may have a part in common: then one flow has the actions of all.
const conjunction = "conjunction("

func isConjunction(actions string) bool { return strings.HasPrefix(actions, conjunction) }

// split takes the actions of such a flow apart, join puts them together, in one order.
func split(actions string) []string {
	parts := strings.SplitAfter(actions, "),")
	for i := range parts {
		parts[i] = strings.TrimSuffix(parts[i], ",")
	}
	return parts
}

func join(parts []string) string {
	slices.Sort(parts)
	return strings.Join(parts, ",")
}
