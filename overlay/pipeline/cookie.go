package pipeline

import (
	"fmt"
	"hash/fnv"
	"net/netip"
)

// Cookie is a flow's cookie, taken apart.
type Cookie struct {
	Round  uint8
	Stage  Stage
	Kind   ObjectKind
	Object uint64 // 40 bits
}

// Pack puts the cookie together.
func (c Cookie) Pack() uint64 {
	return uint64(c.Round)<<cookieRoundShift | uint64(c.Stage)<<cookieStageShift |
		uint64(c.Kind)<<cookieKindShift | c.Object&cookieObjectMask
}

// ParseCookie takes a cookie apart. Every number is some cookie.
func ParseCookie(v uint64) Cookie {
	return Cookie{
		Round:  uint8(v >> cookieRoundShift),
		Stage:  Stage(v >> cookieStageShift),
		Kind:   ObjectKind(v >> cookieKindShift),
		Object: v & cookieObjectMask,
	}
}

// Foreign matches the cookies, and nothing else, of the flow that drops tunnel packets which
// no known VTEP sent: as `ovs-ofctl dump-flows` takes it, of any round.
func Foreign() string {
	flow := DropUnknownVTEP.object().cookie(0, TunnelSource)
	return fmt.Sprintf("table=%d,cookie=%#x/%#x", TunnelSource, flow, uint64(1)<<cookieRoundShift-1)
}

// IsForeign reports whether a flow with the cookie is the one that Foreign matches.
func IsForeign(cookie uint64) bool {
	c := ParseCookie(cookie)
	return c.Stage == TunnelSource && c.key() == DropUnknownVTEP.object().key()
}

// object is what a flow is there for.
type object struct {
	kind ObjectKind
	id   uint64
}

// hash40 folds FNV-1a of s to 40 bits, as the FNV authors recommend (xor-folding).
func hash40(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s)) // never fails
	v := h.Sum64()
	return (v>>40 ^ v) & cookieObjectMask
}

func endpointObject(id string) object           { return object{KindEndpoint, hash40(id)} }
func subnetObject(p netip.Prefix) object        { return object{KindSubnet, hash40(p.String())} }
func routeObject(p netip.Prefix) object         { return object{KindRoute, hash40(p.String())} }
func vtepObject(a netip.Addr) object            { return object{KindVTEP, hash40(a.String())} }
func vnidObject(v uint32) object                { return object{KindVNID, uint64(v)} }
func ruleObject(id uint32) object               { return object{KindRule, uint64(id)} }
func classObject(id uint32) object              { return object{KindClass, uint64(id)} }
func (r Reason) object() object                 { return object{KindDrop, uint64(r)} }
func (o object) key() uint64                    { return uint64(o.kind)<<cookieKindShift | o.id }
func (c Cookie) key() uint64                    { return object{c.Kind, c.Object}.key() }
func (o object) cookie(r uint8, s Stage) uint64 { return Cookie{r, s, o.kind, o.id}.Pack() }

// Names tells people what the cookies of an Input's flows stand for.
type Names map[uint64]string

// NewNames collects the names of in's objects.
func NewNames(in Input) Names {
	n := Names{}
	for _, p := range in.Ports {
		n[endpointObject(p.Endpoint).key()] = p.Endpoint
	}
	for _, s := range in.Subnets {
		n[subnetObject(s.Prefix).key()] = s.Prefix.String()
	}
	for _, r := range in.Routes {
		n[routeObject(r.Prefix).key()] = r.Prefix.String()
	}
	for _, v := range in.VTEPs {
		n[vtepObject(v.Addr).key()] = v.Addr.String()
	}
	for _, r := range in.Policy.Rules {
		if r.Action == Pass {
			n[ruleObject(InPlaceOf(r.ID)).key()] = r.Label + " (SCTP)"
		}
	}
	for _, r := range in.Policy.Rules {
		n[ruleObject(r.ID).key()] = r.Label
	}
	return n
}

// Describe says in words which object the flow with this cookie is there for:
// "endpoint 0123…", "drop: VLAN-tagged frame", or "" for a flow of the stage itself.
func (n Names) Describe(cookie uint64) string {
	c := ParseCookie(cookie)
	switch c.Kind {
	case KindNone:
		return ""
	case KindDrop:
		return "drop: " + Reason(c.Object).String()
	case KindVNID:
		return fmt.Sprintf("vnid %d", c.Object)
	}
	if name, ok := n[c.key()]; ok {
		return c.Kind.String() + " " + name
	}
	return fmt.Sprintf("%s #%010x", c.Kind, c.Object)
}
