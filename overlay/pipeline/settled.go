package pipeline

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A connection is settled when both of its ends were seen and its next packet needs no judgement. The flow by which it is on its
// way to be found so writes Input.Generation down, the packet takes it along, and the fast path, which sees it leave, carries the
// rest of the connection while that is the generation. It is no use to look the generation up there: a packet that old flows let
// through may leave when it is a new one. Nor is it to write it down where the packet leaves: exits look up connections of their own
// in between, and what is behind that may be by the flows of a later moment. But from one look-up to the next all is of one.
//
// The source MAC address, which is the router's otherwise, begins with 03 then, which is no interface's. Behind it is the
// generation, and in the end the slots of both rules (PolicyRule.Slot). Into the tunnel it is the VNID that is there, and the slot is in
// the destination's, whose first byte says which end's it is: rules of this host speak about one end only.

// AtGateway stands for the gateway where endpoints are named by their IDs.
const AtGateway = ""

// marked is the first byte of such a source MAC address.
const marked = "03:00:00:00:00:00"

// decided are actions before which the generation is written down of what they decide.
func (c *compiler) decided(act ...string) []string {
	if c.in.Generation == 0 || c.in.Tunnel != HeaderBits {
		return act
	}
	return append([]string{load(regGeneration, uint32(c.in.Generation))}, act...)
}

// policySettled is the flows that mark packets.
func policySettled(c *compiler) {
	if !c.in.policed || c.in.Generation == 0 || c.in.Tunnel != HeaderBits {
		return
	}
	for _, m := range settledKinds() {
		c.add(Commit, commitSettled, object{}, m, load(regSettled, 1), goTo(EgressCount))
	}
	mark := []string{"set_field:" + marked + "->eth_src", move(regGeneration.part(), "NXM_OF_ETH_SRC[24..39]")}
	if c.in.TunnelPort != 0 {
		m := match{}.reg(regOutPort, c.in.TunnelPort).reg(regSettled, 1)
		vnid := move(regSrcVNID.bits(24), "NXM_OF_ETH_SRC[0..23]")
		for i, r := range []register{regEgressSlot, regIngressSlot} {
			other := []register{regIngressSlot, regEgressSlot}[i]
			c.add(Output, []int{outputEgress, outputIngress}[i], object{}, m.reg(other, 0), slices.Concat(mark, []string{
				vnid, "set_field:" + []string{"02", "42"}[i] + ":00:00:00:00:00->eth_dst", move(regVTEP.bits(32), "NXM_OF_ETH_DST[0..31]"),
				move(r.span(0, 8), "NXM_OF_ETH_DST[32..39]"), move(r.span(8, 4), "NXM_OF_ETH_DST[42..45]"), output(c.in.TunnelPort),
			})...)
		}
	}
	marks := slices.Concat(mark, []string{move(regSlots.part(), "NXM_OF_ETH_SRC[0..23]"), outputReg(regOutPort)})
	if c.in.GatewayPort != 0 {
		gateway := marks
		if c.in.GatewayBare {
			gateway = []string{outputReg(regOutPort)}
		}
		c.add(Output, outputGateway, object{}, match{}.reg(regOutPort, c.in.GatewayPort).reg(regSettled, 1), gateway...)
	}
	c.add(Output, outputSettled, object{}, match{}.reg(regSettled, 1), marks...)
}

// unmarked is the flows of endpoints that are sent no marks.
func unmarked(c *compiler) {
	for _, p := range c.in.Ports {
		if p.Bare {
			c.add(Output, outputBare, endpointObject(p.Endpoint), match{}.reg(regOutPort, p.OFPort).reg(regSettled, 1), output(p.OFPort))
		}
	}
}

// settledKinds are packets of settled connections: of TCP, of TCP over IPv6, of UDP, of UDP over IPv6. What begins or ends a
// connection is not among them, nor what an exit has looked up since: what is known of that is of another connection.
func settledKinds() (kinds [4]match) {
	settled := match{}.reg(regTracked, 1).reg(regJudgeEgress, 0).reg(regJudgeIngress, 0).reg(regTurned, 0).
		ctState("-new+est-rel-inv+trk").with(fieldCTZone, "ct_zone=%d", Zone).with(fieldFrag, "nw_frag=no")
	for i, f := range []family{ipv4, ipv6} {
		kinds[i], kinds[2+i] = settled.proto(f.tcp).with(fieldTCPFlags, "tcp_flags=-fin-syn-rst"), settled.proto(f.udp)
	}
	return kinds
}

// granted are first packets of TCP, and of TCP over IPv6, by which the fast path may let through others of their sender to their port: no
// rule looks at more, and those about names leave such packets out.
func (c *compiler) granted() (kinds []match) {
	if c.in.Generation == 0 || c.in.Tunnel != HeaderBits {
		return nil
	}
	for _, f := range []family{ipv4, ipv6} {
		kinds = append(kinds, match{}.reg(regTracked, 1).reg(regTurned, 0).reg(regUnsure, 0).reg(regNamed, 0).ctState("+new-rel-inv+trk").unlabelled().
			with(fieldCTZone, "ct_zone=%d", Zone).with(fieldFrag, "nw_frag=no").proto(f.tcp).with(fieldTCPFlags, "tcp_flags=-fin+syn-rst-ack"))
	}
	return kinds
}

// Hint is what the fast path says with a packet of TCP that it does not carry, of a connection of which only it knows who called.
type Hint uint8

// The hints, as in fastpath.c.
const (
	Call   Hint = 1 // the sender called
	Answer Hint = 2 // whom it is for
)

// MAC is the destination's MAC address of an endpoint's packet with a hint, and of the gateway's.
func (h Hint) MAC(secret uint32) net.HardwareAddr {
	return net.HardwareAddr{0x0e, byte(h), byte(secret >> 24), byte(secret >> 16), byte(secret >> 8), byte(secret)}
}

// Behind returns the two bytes that follow the first byte of the source MAC address of a tunnel packet with a hint.
func (h Hint) Behind(secret uint32) [2]byte {
	return [2]byte{byte(h)<<6 | byte(secret>>8&0x3f), byte(secret)}
}

func (in Input) hints() bool {
	return in.Secret != 0 && in.Generation != 0 && in.Tunnel == HeaderBits
}

// hinted judges what belongs to no connection here by the connection that the fast path says it is of. What answers is judged alone, as
// midstream does it; a call makes the connection known.
func (c *compiler) hinted() {
	if !c.in.hints() {
		return
	}
	for _, f := range []family{ipv4, ipv6} {
		for _, h := range []Hint{Call, Answer} {
			act := []string{load(regTracked, 1), load(regHanded, 1), goTo(EgressEpoch)}
			if h == Answer {
				act[1] = load(regTurned, 1)
			}
			behind := h.Behind(c.in.Secret)
			for _, class := range []uint32{classEndpoint, classGateway} {
				c.add(Connection, connectionHinted, object{}, midstream(f).reg(regClass, class).ethDst(h.MAC(c.in.Secret)), act...)
			}
			c.add(Connection, connectionHinted, object{}, midstream(f).reg(regClass, classTunnel).ethSrcMask(fmt.Sprintf("02:%02x:%02x:00:00:00", behind[0], behind[1]), "ff:ff:ff:00:00:00"), act...)
		}
	}
}

// named notes of a packet that is to be judged that its verdict is for it alone.
func named(g Guard) []string {
	if g.Named {
		return []string{load(regNamed, 1)}
	}
	return nil
}

// counted notes by whose counter a packet came. What has no slot is not settled.
func (d direction) counted(slot uint16) string {
	if slot == 0 {
		return load(regSettled, 0)
	}
	if d.count == EgressCount {
		return load(regEgressSlot, uint32(slot))
	}
	return load(regIngressSlot, uint32(slot))
}

// part names the bits of a register that is a part of one.
func (r register) part() string { return r.span(0, r.Bits) }

// span names n bits of it from one on.
func (r register) span(from, n int) string {
	return fmt.Sprintf("NXM_NX_REG%d[%d..%d]", r.Num, r.Low+from, r.Low+from+n-1)
}

// policyTables are those of which a flow decides what rules let through, or counts it.
var policyTables = []Stage{
	Conntrack, Connection, EgressEpoch, IngressEpoch, Caller, AddressClass, Callee, EgressPolicy, EgressRules,
	IngressPolicy, IngressRules, RejectStage, Commit, Committed, EgressCount, IngressCount,
}

// TouchPolicy reports whether flows change that settle connections: then what the fast path has noted is void, and
// another generation is due. Those of openings settle none: no packet comes by one that is not to be judged, and of these only
// what begins and is of no guard with names is marked. So connections that are open go on in the switch, whatever openings come and go, and so they do in the fast path.
func (c Changes) TouchPolicy() bool {
	return slices.ContainsFunc(slices.Concat(c.Add, c.Modify, c.Delete), func(f Flow) bool {
		return slices.Contains(policyTables, Stage(f.Table)) && !f.opens()
	})
}

// opens reports whether a flow is an opening's.
func (f Flow) opens() bool {
	at := Stage(f.Table)
	return (at == EgressPolicy || at == EgressRules) && ParseCookie(f.Cookie).Kind == KindRule && asksFor(f.Match, regJudgeEgress) && asksFor(f.Match, regNamed)
}

// asksFor reports whether a match, as match.String has it, is of packets alone of which all bits of a register are set.
func asksFor(text string, r register) bool {
	for part := range strings.SplitSeq(text, ",") {
		rest, found := strings.CutPrefix(part, fmt.Sprintf("reg%d=", r.Num))
		if !found {
			continue
		}
		value, mask, masked := strings.Cut(rest, "/")
		if !masked {
			mask = "0xffffffff"
		}
		v, err := strconv.ParseUint(value, 0, 32)
		m, errMask := strconv.ParseUint(mask, 0, 32)
		return err == nil && errMask == nil && uint32(v&m)&r.mask() == r.mask()
	}
	return false
}

// Begun are the rules by ID whose counters of what they let through begin with c.
func (c Changes) Begun() map[uint32]bool {
	rules := map[uint32]bool{}
	for _, f := range c.Add {
		if at, cookie := Stage(f.Table), ParseCookie(f.Cookie); (at == EgressCount || at == IngressCount) && cookie.Kind == KindRule {
			rules[uint32(cookie.Object)] = true
		}
	}
	return rules
}

// NextGeneration is the one that begins when that of now ends, which flows may write or not: neither that nor any that they do. It is
// the highest of these and one more, so that none comes again soon that a packet on its way may still bear.
func NextGeneration(now uint16, flows []Flow) uint16 {
	is := map[uint16]bool{0: true, now: true}
	for _, f := range flows {
		for _, m := range writesGeneration.FindAllStringSubmatch(f.Actions, -1) {
			if n, err := strconv.ParseUint(m[1], 0, 16); err == nil {
				is[uint16(n)], now = true, max(now, uint16(n))
			}
		}
	}
	next := now + 1
	for is[next] {
		next++
	}
	return next
}

var writesGeneration = regexp.MustCompile(`\bload:(0x[0-9a-f]+)->` + regexp.QuoteMeta(regGeneration.part()))

// Then is c and then d.
func (c Changes) Then(d Changes) Changes {
	again := map[flowKey]Flow{}
	for _, f := range d.Add {
		again[f.key()] = f
	}
	both := Changes{Add: c.Add, Modify: slices.Concat(c.Modify, d.Add, d.Modify), Handed: slices.Concat(c.Handed, d.Handed)}
	for _, f := range c.Delete {
		if now, is := again[f.key()]; !is {
			both.Delete = append(both.Delete, f)
		} else if handed(f, now) {
			both.Handed = append(both.Handed, now)
		}
	}
	both.Delete = append(both.Delete, d.Delete...)
	return both
}
