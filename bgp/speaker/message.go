package speaker

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/grapevine-net/grapevine/bgp"
	"github.com/grapevine-net/grapevine/config"
)

// families are those that routers are told of.
var families = []packet.Family{packet.RF_IPv4_UC, packet.RF_IPv6_UC}

func familyOf(p netip.Prefix) packet.Family {
	if p.Addr().Is6() {
		return packet.RF_IPv6_UC
	}
	return packet.RF_IPv4_UC
}

// open is what is said first: who this host is, and that routers may keep its routes while its agent is gone, since the host
// goes on carrying packets (RFC 4724).
func open(r config.Router, id netip.Addr) (*packet.BGPMessage, error) {
	var kept []*packet.CapGracefulRestartTuple
	var can []packet.ParameterCapabilityInterface
	for _, f := range families {
		can = append(can, packet.NewCapMultiProtocol(f))
		kept = append(kept, packet.NewCapGracefulRestartTuple(f, true))
	}
	can = append(can, packet.NewCapRouteRefresh(), packet.NewCapFourOctetASNumber(r.LocalAS))
	if r.Restart > 0 {
		can = append(can, packet.NewCapGracefulRestart(true, false, uint16(r.Restart/time.Second), kept))
	}
	as := uint16(packet.AS_TRANS)
	if r.LocalAS <= 0xffff {
		as = uint16(r.LocalAS)
	}
	return packet.NewBGPOpenMessage(as, uint16(r.Hold/time.Second), id, []packet.OptionParameterInterface{packet.NewOptionParameterCapability(can)})
}

// agreed is what both sides have said that they do.
type agreed struct {
	hold     time.Duration
	families []packet.Family
	keeps    bool // routes, while the agent is gone
}

// refusal is an error that the router is told.
type refusal struct {
	code, sub uint8
	error
}

func refuse(code, sub uint8, format string, a ...any) error {
	return &refusal{code, sub, fmt.Errorf(format, a...)}
}

// agree makes what both do of what the router says first.
func agree(r config.Router, o *packet.BGPOpen) (a agreed, err error) {
	as, wide := uint32(o.MyAS), false
	for _, p := range o.OptParams {
		list, ok := p.(*packet.OptionParameterCapability)
		if !ok {
			continue
		}
		for _, c := range list.Capability {
			switch c := c.(type) {
			case *packet.CapFourOctetASNumber:
				as, wide = c.CapValue, true
			case *packet.CapMultiProtocol:
				if slices.Contains(families, c.CapValue) && !slices.Contains(a.families, c.CapValue) {
					a.families = append(a.families, c.CapValue)
				}
			case *packet.CapGracefulRestart:
				a.keeps = r.Restart > 0
			}
		}
	}
	if a.families == nil { // RFC 4760, 8: it knows of nothing else
		a.families = []packet.Family{packet.RF_IPv4_UC}
	}
	a.hold = min(r.Hold, time.Duration(o.HoldTime)*time.Second)
	switch {
	case as != r.AS:
		return a, refuse(packet.BGP_ERROR_OPEN_MESSAGE_ERROR, packet.BGP_ERROR_SUB_BAD_PEER_AS, "it says that its AS is %d, and as= says %d", as, r.AS)
	case !wide:
		return a, refuse(packet.BGP_ERROR_OPEN_MESSAGE_ERROR, packet.BGP_ERROR_SUB_UNSUPPORTED_CAPABILITY, "it knows no AS numbers of four bytes (RFC 6793)")
	case a.hold < 3*time.Second:
		return a, refuse(packet.BGP_ERROR_OPEN_MESSAGE_ERROR, packet.BGP_ERROR_SUB_UNACCEPTABLE_HOLD_TIME, "its hold time is %d s: give it one of 3 s or more", o.HoldTime)
	}
	return a, nil
}

// hops are this host's addresses that a router sends to.
type hops struct{ v4, v6 netip.Addr }

func (h hops) of(f packet.Family) netip.Addr {
	if f == packet.RF_IPv6_UC {
		return h.v6
	}
	return h.v4
}

// sayable reports whether a session carries a family's routes, and why not.
func (a agreed) sayable(f packet.Family, h hops) (why string) {
	name := map[packet.Family]string{packet.RF_IPv4_UC: "IPv4", packet.RF_IPv6_UC: "IPv6"}[f]
	switch {
	case !slices.Contains(a.families, f):
		return "the router takes no routes of " + name + " by this session"
	case !h.of(f).IsValid():
		return "the interface of the session has no address of " + name + ", which packets could be sent to"
	}
	return ""
}

// batch is how many prefixes are in one message: with the longest of IPv6 they fit into its 4,096 bytes.
const batch = 200

// updates are the messages that make of what a router was told what it is to know.
func updates(r config.Router, told, want map[netip.Prefix]bgp.Route, h hops) (list []*packet.BGPMessage, err error) {
	var gone []netip.Prefix
	fresh := map[uint32][]netip.Prefix{}
	for p := range told {
		if _, stays := want[p]; !stays {
			gone = append(gone, p)
		}
	}
	for p, route := range want {
		if had, there := told[p]; !there || had.Rank != route.Rank {
			fresh[route.Rank] = append(fresh[route.Rank], p)
		}
	}
	for _, f := range families {
		for some := range slices.Chunk(of(f, gone), batch) {
			m, more := withdrawal(f, some)
			list, err = append(list, m), errors.Join(err, more)
		}
		for _, rank := range slices.Sorted(maps.Keys(fresh)) {
			for some := range slices.Chunk(of(f, fresh[rank]), batch) {
				m, more := announcement(r, f, some, rank, h.of(f))
				list, err = append(list, m), errors.Join(err, more)
			}
		}
	}
	return list, err
}

// of are the prefixes of a family, in order.
func of(f packet.Family, all []netip.Prefix) (list []netip.Prefix) {
	for _, p := range all {
		if familyOf(p) == f {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, netip.Prefix.Compare)
	return list
}

func paths(all []netip.Prefix) (list []packet.PathNLRI, err error) {
	for _, p := range all {
		n, more := packet.NewIPAddrPrefix(p)
		list, err = append(list, packet.PathNLRI{NLRI: n}), errors.Join(err, more)
	}
	return list, err
}

func withdrawal(f packet.Family, all []netip.Prefix) (*packet.BGPMessage, error) {
	list, err := paths(all)
	if err != nil || f == packet.RF_IPv4_UC {
		return packet.NewBGPUpdateMessage(list, nil, nil), err
	}
	gone, err := packet.NewPathAttributeMpUnreachNLRI(f, list)
	return packet.NewBGPUpdateMessage(nil, []packet.PathAttributeInterface{gone}, nil), err
}

func announcement(r config.Router, f packet.Family, all []netip.Prefix, rank uint32, hop netip.Addr) (*packet.BGPMessage, error) {
	list, err := paths(all)
	if err != nil {
		return nil, err
	}
	var way []packet.AsPathParamInterface
	if r.AS != r.LocalAS {
		way = []packet.AsPathParamInterface{packet.NewAs4PathParam(packet.BGP_ASPATH_ATTR_TYPE_SEQ, []uint32{r.LocalAS})}
	}
	attrs := []packet.PathAttributeInterface{packet.NewPathAttributeOrigin(packet.BGP_ORIGIN_ATTR_TYPE_IGP), packet.NewPathAttributeAsPath(way)}
	if rank > 0 {
		attrs = append(attrs, packet.NewPathAttributeMultiExitDisc(rank))
	}
	if r.AS == r.LocalAS {
		attrs = append(attrs, packet.NewPathAttributeLocalPref(100))
	}
	if f == packet.RF_IPv6_UC {
		reach, err := packet.NewPathAttributeMpReachNLRI(f, list, hop)
		return packet.NewBGPUpdateMessage(nil, append(attrs, reach), nil), err
	}
	next, err := packet.NewPathAttributeNextHop(hop)
	attrs = append(attrs, next)
	slices.SortFunc(attrs, func(a, b packet.PathAttributeInterface) int { return cmp.Compare(a.GetType(), b.GetType()) })
	return packet.NewBGPUpdateMessage(nil, attrs, list), err
}

// notified is what a router says when it ends a session.
func notified(n *packet.BGPNotification) error {
	text := packet.NewNotificationErrorCode(n.ErrorCode, n.ErrorSubcode).String()
	if n.ErrorCode == packet.BGP_ERROR_CEASE && len(n.Data) > 1 && int(n.Data[0]) < len(n.Data) { // RFC 9003
		text += fmt.Sprintf(" (%q)", n.Data[1:1+int(n.Data[0])])
	}
	return errors.New("the router ended the session: " + text)
}
