package pipeline

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// RouterMAC is the one MAC that containers know their neighbours and their
// gateway by. Containers' own MACs never leave their host.
var RouterMAC = net.HardwareAddr{0x02, 0x67, 0x76, 0x00, 0x00, 0x01}

// MaxVNID is the largest VNID, a VXLAN network identifier of 24 bits (RFC 7348).
const MaxVNID = 1<<24 - 1

// Round is the round that goes into cookies: it changes when flows of the same
// text come to mean something else, and stays the same over restarts, so that a
// restarted agent finds nothing to change.
const Round = 1

// TunnelMode says how the VNID and the VTEP travel between the switch and the
// device that encapsulates.
type TunnelMode uint8

// The tunnel modes. The zero value is no mode.
const (
	// Metadata: an OVS tunnel port; tun_id, tun_src and tun_dst (kernel datapath).
	Metadata TunnelMode = 1
	// HeaderBits: an ordinary device whose frames carry the VNID in the low 24 bits
	// of the source MAC (prefix 02:00:00) and the index of the remote VTEP in the low 32
	// bits of the destination MAC (prefix 02:01), in both directions.
	HeaderBits TunnelMode = 2
)

// Input is everything the flows of one host depend on. The slices are not
// changed by Compile and need no order.
type Input struct {
	Round  uint8
	Tunnel TunnelMode
	// TunnelPort and GatewayPort are OpenFlow ports; 0: there is none yet.
	TunnelPort, GatewayPort uint32
	// InsidePort is another port of the tunnel, by which comes what is for this host's address inside what encrypts, and from there;
	// 0: it comes by TunnelPort. Metadata only.
	InsidePort uint32
	// GatewayMAC is the host's own MAC on the gateway port.
	GatewayMAC net.HardwareAddr
	// VXLANPort is the cluster's UDP port for VXLAN; endpoints may not send to it
	// outside the cluster. 0: what hosts send each other has no port, but is all of GRE.
	VXLANPort uint16
	GRE       bool
	// GossipPort is the port, TCP and UDP, where hosts hear each other, and VTEP this host's
	// address in the underlay: endpoints may send neither to that port of a host's.
	GossipPort uint16
	VTEP       netip.Addr
	// Host are this host's addresses in HostRanges, at most one of a family.
	Host    []netip.Addr
	VTEPs   []VTEP
	Subnets []Subnet
	Routes  []Route
	Ports   []Port
	// Encrypted are the numbers (Realm.Number) of encrypted networks, of which there may be none.
	Encrypted []uint32
	// Neighbours are the link-local addresses of other hosts' endpoints, on networks where
	// this host has an endpoint with one.
	Neighbours []Neighbour
	// Policy is what rules say about Ports, besides their networks.
	Policy Policy
	// Unheard are addresses of Ports that other hosts may take for somebody else's.
	Unheard []Unheard
	// Generation, if it is not 0, is written into packets of connections that the fast path may carry: it is another one after each
	// change of the flows of Policy. HeaderBits only.
	Generation uint16
	// GatewayBare: the gateway is sent no packet with a mark of a settled connection, which nobody would take off.
	GatewayBare bool
	// Secret, if it is not 0, is what the fast path says with a packet who called whom (Hint).
	Secret uint32
	// Groups are the multicast groups and broadcast addresses that somebody gets, of networks that carry multicast.
	Groups []Group
	// Exits say of networks by which host their endpoints reach the outside, one of a network, or of an endpoint (Listed);
	// others do by their own.
	Exits []Exit
	// Own are this host's own addresses beside VTEP, where there are Exits: endpoints speak to their host as ever.
	Own []netip.Addr
	// Exposed are the ports, of all hosts' endpoints, that the outside reaches by every host.
	Exposed []Exposed
}

// MeetsEncrypted reports whether what is of a network may be for an encrypted one, or from it.
func (in Input) MeetsEncrypted(vnid uint32, r Realm) bool {
	number := r.Number(vnid)
	return len(in.Encrypted) > 0 && (number == 0 || slices.Contains(in.Encrypted, number))
}

// VTEP is a remote tunnel end, with an index that is its own on this host (not 0).
// Host are its host's addresses in HostRanges. Secure says that it is inside what encrypts, Beside that what is of no
// encrypted network does not go there: its host has another VTEP for that, or none.
type VTEP struct {
	Addr           netip.Addr
	Index          uint32
	Host           []netip.Addr
	Secure, Beside bool
}

// Realm is the number of networks that reach each other whatever their VNIDs: the lowest VNID of them. 0 is a
// network by itself, which has its VNID for a number. The objects of one VNID have the same. It is this host's own
// affair: in the tunnel there is the VNID.
type Realm uint32

// Everywhere is the realm of a network that reaches all, and that all reach, though its VNID is not 0.
const Everywhere Realm = 1<<32 - 1

// Number is what a packet's two ends are compared by: that of the realm of a network with a VNID. 0 is privileged.
func (r Realm) Number(vnid uint32) uint32 {
	switch {
	case r == 0 || vnid == 0:
		return vnid
	case r == Everywhere:
		return 0
	}
	return uint32(r)
}

func (r Realm) valid() bool { return r <= MaxVNID || r == Everywhere }

// Subnet is a prefix of a network, which may be an encrypted one. Gateway is invalid if there is none.
type Subnet struct {
	Prefix  netip.Prefix
	VNID    uint32
	Gateway netip.Addr
	Realm   Realm

	Encrypted bool
	// Shut says that this host is to have no part in the network: no way there, and none from there.
	Shut bool
}

// Route says who has a range of a subnet. VTEP is invalid if nothing of it is
// reachable through the tunnel: the range is this host's own, or its host is not
// known. The longest prefix counts. VNID and Realm are the subnet's. Secure is the VTEP that packets from encrypted networks go to,
// and that those of the range may come from as well, invalid if there is none: of a range of an encrypted network it is VTEP.
type Route struct {
	Prefix       netip.Prefix
	VNID         uint32
	Realm        Realm
	VTEP, Secure netip.Addr
}

// clear reports whether what is of no encrypted network goes another way to the range than what is.
func (r Route) clear() bool { return r.VTEP != r.Secure }

// Neighbour is a link-local address of an endpoint of another host.
type Neighbour struct {
	Addr  netip.Addr
	VNID  uint32
	VTEP  netip.Addr
	Realm Realm
	// Multicast says that it may send to groups: its network carries multicast.
	Multicast bool
}

// Port is a local endpoint. LinkLocal are the link-local addresses by which others of its
// network may know it (--link-local-ip), no two of a network the same. Internal says that its network is: no way out of
// the cluster. Plain says that nothing but this Input decides what happens to its packets,
// in either direction: no policy, service, mirror, trace or limit. The fast path keeps off
// an endpoint of which nobody has said so. Rejects says that rules about it may reject: what the agent answers in the
// place of it, or to it, is let in. Guarded says that it is plain but for rules: the fast path carries what the switch
// notes (Generation).
type Port struct {
	OFPort    uint32
	MAC       net.HardwareAddr
	Addrs     []netip.Addr
	LinkLocal []netip.Addr
	VNID      uint32
	Internal  bool
	Encrypted bool // its network is
	Multicast bool // its network carries multicast
	Endpoint  string

	Plain   bool
	Guarded bool
	Rejects bool
	// Bare: it is sent no packet with a mark of a settled connection, which nobody would take off.
	Bare  bool
	Realm Realm
}

// validate says what makes in impossible to compile; flows that would collide
// are found by Compile itself.
func (in Input) validate() error {
	var errs []error
	fail := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	if in.Tunnel != Metadata && in.Tunnel != HeaderBits {
		fail("tunnel mode %d is unknown", in.Tunnel)
	}
	if in.GatewayPort != 0 && len(in.GatewayMAC) != 6 {
		fail("gateway port %d has MAC %q, want 6 bytes", in.GatewayPort, in.GatewayMAC)
	}
	for _, v := range in.VTEPs {
		if v.Index == 0 || !v.Addr.IsValid() {
			fail("VTEP %s has index %d", v.Addr, v.Index)
		}
	}
	for _, s := range in.Subnets {
		if !s.Prefix.IsValid() || s.Prefix != s.Prefix.Masked() || s.VNID > MaxVNID || !s.Realm.valid() {
			fail("subnet %s of VNID %d is not a prefix of a network", s.Prefix, s.VNID)
		}
	}
	for _, r := range in.Routes {
		if !r.Prefix.IsValid() || r.Prefix != r.Prefix.Masked() || r.VNID > MaxVNID || !r.Realm.valid() {
			fail("range %s of VNID %d is not a range of a network", r.Prefix, r.VNID)
		}
	}
	for _, p := range in.Ports {
		if p.OFPort == 0 || len(p.MAC) != 6 || p.VNID > MaxVNID || !p.Realm.valid() {
			fail("endpoint %s has port %d, MAC %q, VNID %d", p.Endpoint, p.OFPort, p.MAC, p.VNID)
		}
	}
	for _, u := range in.Unheard {
		if !u.Addr.IsValid() || slices.ContainsFunc(u.Ranges, func(r netip.Prefix) bool { return r != r.Masked() || r.Addr().Is4() != u.Addr.Is4() }) {
			fail("address %s, of which hosts may not have heard, has ranges %s", u.Addr, u.Ranges)
		}
	}
	for _, e := range in.Exits {
		if e.VNID == 0 || e.VNID > MaxVNID || e.VTEP.IsValid() == (e.Index == 0) || e.Here && e.VTEP.IsValid() {
			fail("egress of VNID %d goes to VTEP %s with index %d", e.VNID, e.VTEP, e.Index)
		}
	}
	for _, g := range in.Groups {
		if !IsGroup(g.Addr) || g.VNID == 0 || g.VNID > MaxVNID || slices.Contains(g.Ports, 0) {
			fail("group %s of VNID %d, ports %d, is none", g.Addr, g.VNID, g.Ports)
		}
	}
	for _, x := range in.Exposed {
		if !x.Addr.IsValid() || x.Port == 0 || x.VNID > MaxVNID {
			fail("exposed port %d of %s has VNID %d", x.Port, x.Addr, x.VNID)
		}
	}
	for _, n := range in.Neighbours {
		if !n.Addr.IsLinkLocalUnicast() || n.VNID > MaxVNID || !n.Realm.valid() {
			fail("neighbour %s of VNID %d has no link-local address", n.Addr, n.VNID)
		}
	}
	return errors.Join(errs...)
}
