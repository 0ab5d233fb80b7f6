package pipeline

import (
	"net"
	"slices"
)

// What a rule rejects goes to the gateway port, to a MAC address that is nobody's: the host's own stack leaves it alone, and
// the agent, which reads there (package overlay/reject), answers it with a RST or an ICMP error. The answer comes in by the
// gateway port with the same MAC address as its source, and from the address that the packet was for. It gets no further
// than to an endpoint that rules are about, or in the place of one. Where nobody reads there is no answer, and nothing passes.

// The priorities of reject.
const (
	rejectNone      = 300 // dropped: for more than one, or a fragment
	rejectMidstream = 250 // dropped: it may answer a call that is allowed
	rejectReset     = 200 // dropped: a RST
	rejectEcho      = 200 // a ping is answered
	rejectICMP      = 150 // dropped: all else of ICMP
	rejectAnswer    = 100
)

// RejectMAC is what rejected packets are sent to, and their answers from.
var RejectMAC = net.HardwareAddr{0x02, 0x67, 0x76, 0x00, 0x00, 0x02}

// leaveAgain lets a packet leave by the port that it came in by: what a client of a published port sent, and its answer.
const leaveAgain = "load:0->NXM_OF_IN_PORT[]"

// Denies reports whether a flow of a table is one that keeps a packet from its destination for a rule, or for another
// reason. What a rule rejects is denied by the rule, and not once more by what is behind.
func Denies(table uint8, actions string) bool {
	return actions == drop && Stage(table) != RejectStage || actions == goTo(RejectStage)
}

// Rejects reports whether anything may be answered.
func (in Input) Rejects() bool {
	return slices.ContainsFunc(in.Ports, func(p Port) bool { return p.Rejects })
}

// rejects sends what may be answered to the agent. Nobody answers a RST, an error, or what is not for one alone (RFC 9293,
// 3.10.7.1; RFC 1122, 3.2.2); of fragments nobody sees all.
func (c *compiler) rejects() {
	answer := func(priority int, m match) {
		if c.in.GatewayPort != 0 {
			c.add(RejectStage, priority, object{}, m, setEthDst(RejectMAC), leaveAgain, output(c.in.GatewayPort))
		}
	}
	none := func(priority int, m match) { c.add(RejectStage, priority, object{}, m, drop) }
	none(rejectNone, match{}.with(fieldEthDst, "dl_dst=01:00:00:00:00:00/01:00:00:00:00:00"))
	for _, f := range []family{ipv4, ipv6} {
		none(rejectNone, match{}.proto(f.proto).fragment())
		none(rejectReset, match{}.proto(f.tcp).with(fieldTCPFlags, "tcp_flags=+rst"))
		// By its ports it answers a call that nobody saw (midstream), which may be allowed: it goes on once its caller speaks.
		none(rejectMidstream, midstream(f).ports(lowPort, highPort))
		icmp, echo := "icmp", 8
		if f == ipv6 {
			icmp, echo = "icmp6", 128
		}
		answer(rejectEcho, match{}.proto(icmp).with(fieldPortDst, "icmp_type=%d", echo))
		none(rejectICMP, match{}.proto(icmp))
		answer(rejectAnswer, match{}.proto(f.proto))
	}
	none(otherwise, match{})
}

// guardAnswers lets in what the agent answers: to an endpoint here, in the place of whomever it called; and to others, in
// the place of an endpoint here. It is not judged: what it answers was.
func guardAnswers(c *compiler) {
	if c.in.GatewayPort == 0 {
		return
	}
	agent := match{}.reg(regClass, classGateway).ethSrc(RejectMAC)
	for _, p := range c.in.Ports {
		if !p.Rejects {
			continue
		}
		o := endpointObject(p.Endpoint)
		c.add(SpoofGuard, spoofAnswerElse, object{}, agent, drop)
		back := append([]string{load(regClass, classEndpoint), leaveAgain}, p.accepted(Forwarding)...)
		for _, a := range p.Addrs {
			reset := agent.proto(familyOf(a).tcp).with(fieldTCPFlags, "tcp_flags=+rst")
			unreachable := agent.proto("icmp").with(fieldPortDst, "icmp_type=3").with(fieldICMPCode, "icmp_code=13")
			if a.Is6() {
				unreachable = agent.proto("icmp6").with(fieldPortDst, "icmp_type=1").with(fieldICMPCode, "icmp_code=1")
			}
			for _, m := range []match{reset, unreachable} {
				c.add(SpoofGuard, spoofAnswerTo, o, m.andDst(host(a)), setEthSrc(RouterMAC), setEthDst(p.MAC), output(p.OFPort))
				c.add(SpoofGuard, spoofAnswerFor, o, m.with(fieldSrc, "%s=%s", familyOf(a).src, prefixText(host(a))), back...)
			}
		}
	}
}

// accepted are the actions for what an endpoint itself sent, and where it goes on.
func (p Port) accepted(next Stage) []string {
	act := []string{load(regSrcVNID, p.VNID)}
	if p.Internal {
		act = append(act, load(regInternal, 1))
	}
	if p.Encrypted {
		act = append(act, load(regSecure, 1))
	}
	return append(act, goTo(next))
}
