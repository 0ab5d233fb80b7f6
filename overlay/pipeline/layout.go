package pipeline

// All numbers that flows share are allocated in this file: stages (OpenFlow
// tables), registers and cookie bits. TestLayout fails if two of them overlap.

// Stage is a step of the pipeline and, by its value, its OpenFlow table.
type Stage uint8

// The stages in the order in which a packet visits them. There is room between
// them; a stage keeps its number for ever, since flows of an older agent may be
// in the switch.
const (
	Classify      Stage = 0
	TunnelInside  Stage = 5
	TunnelSource  Stage = 10
	SpoofGuard    Stage = 20
	ARPResponder  Stage = 30
	NDReply       Stage = 35
	Conntrack     Stage = 40
	Connection    Stage = 41
	EgressEpoch   Stage = 42
	IngressEpoch  Stage = 43
	Caller        Stage = 44
	AddressClass  Stage = 45
	Callee        Stage = 46
	EgressPolicy  Stage = 50
	EgressRules   Stage = 55
	Service       Stage = 60
	Forwarding    Stage = 70
	ExposeBack    Stage = 71
	ExitWay       Stage = 72
	ExposeIn      Stage = 73
	Noted         Stage = 74
	HostGuard     Stage = 75
	VNIDCheck     Stage = 80
	IngressPolicy Stage = 90
	IngressRules  Stage = 92
	RejectStage   Stage = 94
	Commit        Stage = 95
	Committed     Stage = 97
	EgressCount   Stage = 98
	IngressCount  Stage = 99
	Output        Stage = 100
)

// stageInfo is what people are told about a stage.
type stageInfo struct {
	Stage     Stage
	Name, Doc string
}

// stages is the pipeline, in order.
var stages = []stageInfo{
	{Classify, "classify", "by port: tunnel, gateway or endpoint; VLAN-tagged frames are dropped"},
	{TunnelInside, "tunnel-inside", "the same as tunnel-source, of VTEPs inside what encrypts, if their packets come by a port of their own: no flow looks at addresses of both families, which the kernel's datapath would not take"},
	{TunnelSource, "tunnel-source", "only known VTEPs; loads the VTEP's index and the VNID that the packet carries"},
	{SpoofGuard, "spoof-guard", "endpoints: port, MAC and address (IP and ARP; of IPv6 link-local ones, neighbour solicitations only; with --link-local-ip also what is for one), loads the VNID; tunnel: the source is in a range of that VTEP and VNID; gateway: the source is no container"},
	{ARPResponder, "arp-responder", "ARP and IPv6 neighbour discovery: answers for every address of a known prefix, and every --link-local-ip of the asker's network, with the router's MAC, except to its own holder; no other neighbour discovery gets further"},
	{NDReply, "nd-reply", "ends the answer to a neighbour solicitation, which only now is an advertisement"},
	{Conntrack, "conntrack", "from or to a local endpoint with rules: looks up the connection; all else goes on at egress-policy, and there and at ingress-policy just passes"},
	{Connection, "connection", "what fits no connection is dropped; notes if a packet seems to answer a connection that began unseen"},
	{EgressEpoch, "egress-epoch", "connections of a local endpoint with egress rules are to be judged, but for those that passed its rules as they are (ct_mark)"},
	{IngressEpoch, "ingress-epoch", "the same for connections to a local endpoint with ingress rules"},
	{Caller, "caller", "takes the address from which the connection came to where its class is looked up"},
	{AddressClass, "class", "loads the class of an address"},
	{Callee, "callee", "that was the source's: has the address looked up to which the connection goes; the second time it goes on"},
	{EgressPolicy, "egress-policy", "rules above NetworkPolicies for what the connection's source may do"},
	{EgressRules, "egress-rules", "the other rules for it; what none matches is dropped"},
	{Service, "service", "empty"},
	{Forwarding, "forwarding", "by destination range: loads the destination's realm and the port or the tunnel destination"},
	{ExposeBack, "expose-back", "what may be an exposed port's answer: to the host by which the client came, or as other packets to the outside"},
	{ExitWay, "exit-way", "what endpoints of a network with an egress address send to the outside: answers to who came in by this host leave here, all else by the host that holds the address"},
	{ExposeIn, "expose-in", "from outside to an exposed port of an endpoint here: notes by which host the connection came"},
	{Noted, "noted", "from outside to an endpoint here, when it is noted by which host the connection came: to the endpoint"},
	{HostGuard, "host-guard", "what endpoints send to hosts of the cluster: neither VXLAN, nor what may hide it, nor gossip"},
	{VNIDCheck, "vnid-check", "the source's VNID and the destination's are equal, or of one realm (`grapevine network join`), or one of them is 0, or reaches all (`grapevine network global`)"},
	{IngressPolicy, "ingress-policy", "rules above NetworkPolicies for what may be done to the connection's destination; its own host may"},
	{IngressRules, "ingress-rules", "the other rules for it; what none matches is dropped"},
	{RejectStage, "reject", "what a rule rejects, by a host whose agent answers it in the place of whom it was for; all that nobody may answer is dropped"},
	{Commit, "commit", "notes a connection that passed, with the epochs of the rules and their IDs"},
	{Committed, "committed", "drops what connection tracking let go of unseen: fragments of other packets, that waited for their rest"},
	{EgressCount, "egress-count", "counts what each rule for connections' sources let through, by the rule's ID that was noted; first packets of connections apart"},
	{IngressCount, "ingress-count", "the same of the rules for their destinations"},
	{Output, "output", "sends the packet; into the tunnel with its source's VNID"},
}

// Stages lists the stages in the order in which a packet visits them.
func Stages() []Stage {
	out := make([]Stage, len(stages))
	for i, s := range stages {
		out[i] = s.Stage
	}
	return out
}

// String is the stage's name, as in `grapevine flows` and docs/design/pipeline.md.
func (s Stage) String() string {
	for _, i := range stages {
		if i.Stage == s {
			return i.Name
		}
	}
	return "unknown stage"
}

// next is the stage after s.
func (s Stage) next() Stage {
	for i := range stages[:len(stages)-1] {
		if stages[i].Stage == s {
			return stages[i+1].Stage
		}
	}
	panic("pipeline: no stage after " + s.String())
}

// register is a run of bits in one of the switch's 32-bit registers.
type register struct {
	Num, Low, Bits int
	Name, Doc      string
}

// The registers. They are zero when a packet enters the switch.
var (
	regSrcVNID  = register{0, 0, 32, "source VNID", "VNID of the sender; 0 is privileged (gateway, global networks)"}
	regDstVNID  = register{1, 0, 32, "destination VNID", "number of the realm of the destination range: its VNID, if its network is one with no other; 0 is privileged"}
	regOutPort  = register{2, 0, 32, "output port", "OpenFlow port that the output stage sends to"}
	regClass    = register{3, 0, 32, "class", "where the packet came from: 1 endpoint, 2 gateway, 3 tunnel"}
	regVTEP     = register{4, 0, 32, "VTEP index", "tunnel packets: the VTEP it came from; then the one it goes to"}
	regInternal = register{5, 0, 32, "internal", "1: the sender's network is internal and may not leave the cluster"}
	regScratch  = register{6, 0, 32, "scratch", "holds an address while an ARP reply is made, and while its class is looked up; an IPv6 address has reg4 to reg7, and what they held waits on the stack"}
	regAddress  = regScratch
	regHost     = register{7, 0, 32, "host", "1: from an endpoint to another host of the cluster"}

	regSourceClass  = register{8, 0, 32, "source class", "class of the connection's source; 0 is none"}
	regDestClass    = register{9, 0, 32, "destination class", "class of its destination"}
	regEgressEpoch  = register{10, 0, 16, "egress epoch", "of the rules of the connection's source, for ct_mark"}
	regIngressEpoch = register{10, 16, 16, "ingress epoch", "of the rules of its destination"}
	regEgressRule   = register{11, 0, 32, "egress rule", "ID of the rule that let it out, for ct_label"}
	regIngressRule  = register{12, 0, 32, "ingress rule", "ID of the rule that let it in"}
	regTracked      = register{13, 0, 1, "tracked", "1: the connection was looked up"}
	regJudgeEgress  = register{13, 1, 1, "judge egress", "1: the rules of its source are to be asked"}
	regJudgeIngress = register{13, 2, 1, "judge ingress", "1: those of its destination are"}
	regSecure       = register{13, 4, 1, "secure", "1: the packet came encrypted, or is of an encrypted network: it goes to other hosts encrypted or not at all"}
	regBegins       = register{13, 6, 1, "begins", "1: the first packet of a connection"}
	regOutside      = register{13, 5, 1, "outside", "1: from outside the cluster, by another host, to an exposed port"}
	regEgressSlot   = register{15, 0, 12, "egress slot", "of the rule by whose counter it came, for the fast path"}
	regIngressSlot  = register{15, 12, 12, "ingress slot", "the same of the other end's"}
	regSlots        = register{15, 0, 24, "slots", "both"}
	regGeneration   = register{14, 0, 16, "generation", "of the rules that say whether it is to be judged, for the fast path"}
	regSettled      = register{14, 16, 1, "settled", "1: the fast path may carry the rest of its connection"}
	regTurned       = register{13, 3, 1, "turned", "1: the packet seems to answer a connection that nobody saw begin, or a datagram one whose caller is not known, so that its destination is the connection's source"}
	regNamed        = register{13, 9, 1, "named", "1: the rules of its source may be about addresses by their names, so that its verdict is no other connection's"}
	regHanded       = register{13, 10, 1, "handed", "1: of a connection that the fast path has carried so far"}
	regUnsure       = register{13, 7, 1, "unsure", "1: the first packet that is seen of what may have begun before its endpoint had rules"}
	regBothEnds     = register{13, 11, 1, "both ends", "1: the class of the source is known, and that of the destination is looked up"}
	regSpared       = register{13, 8, 1, "spared", "1: it begins a connection although there is room for no more: its host does, or it asks its host's resolver"}
)

var registers = []register{regSrcVNID, regDstVNID, regOutPort, regClass, regVTEP, regInternal, regScratch, regHost,
	regSourceClass, regDestClass, regEgressEpoch, regIngressEpoch, regEgressRule, regIngressRule, regTracked, regJudgeEgress, regJudgeIngress, regTurned, regSecure, regOutside, regBegins, regUnsure, regSpared, regBothEnds, regNamed, regHanded, regGeneration, regSettled, regEgressSlot, regIngressSlot}

// Values of regClass.
const (
	classEndpoint = 1
	classGateway  = 2
	classTunnel   = 3
)

// Cookie layout, from the top: 8 bits round, 8 bits stage, 8 bits kind of
// object, 40 bits object.
const (
	cookieRoundShift = 56
	cookieStageShift = 48
	cookieKindShift  = 40
	cookieObjectMask = 1<<40 - 1
)

// ObjectKind says what the object of a cookie is.
type ObjectKind uint8

// The kinds of object. A flow that belongs to nobody in particular has kind None.
const (
	KindNone     ObjectKind = 0
	KindEndpoint ObjectKind = 1 // hash of the endpoint ID
	KindSubnet   ObjectKind = 2 // hash of the prefix
	KindRoute    ObjectKind = 3 // hash of the range
	KindVTEP     ObjectKind = 4 // hash of the VTEP's address
	KindVNID     ObjectKind = 5 // the VNID itself
	KindDrop     ObjectKind = 6 // a Reason
	KindRule     ObjectKind = 7 // a PolicyRule's ID
	KindClass    ObjectKind = 8 // a Class's ID
)

var kindNames = map[ObjectKind]string{
	KindNone: "", KindEndpoint: "endpoint", KindSubnet: "subnet", KindRoute: "range",
	KindVTEP: "vtep", KindVNID: "vnid", KindDrop: "drop", KindRule: "rule", KindClass: "class",
}

// String names the kind in one word; KindNone is empty.
func (k ObjectKind) String() string { return kindNames[k] }

// Reason says why packets that belong to no object are dropped.
type Reason uint8

// The reasons. Drops that belong to an object (an endpoint that spoofs, a range
// that is not routed) carry that object instead.
const (
	DropVLAN          Reason = 1
	DropUnknownVTEP   Reason = 2
	DropTunnelSource  Reason = 3
	DropUnknownPort   Reason = 4
	DropLinkLocal     Reason = 5
	DropARP           Reason = 6
	DropTransit       Reason = 7
	DropMulticast     Reason = 8
	DropForgedTunnel  Reason = 9
	DropNoRoute       Reason = 10
	DropOtherNetwork  Reason = 11
	DropNoDestination Reason = 12
	DropLoopback      Reason = 13
	DropND            Reason = 14
	DropHostAddress   Reason = 15
	DropHidden        Reason = 16
	DropGossip        Reason = 17
	DropInvalid       Reason = 18
	DropMidstream     Reason = 19
	DropEgress        Reason = 20
	DropIngress       Reason = 21
	DropTwoClasses    Reason = 22
	// Of no flow: rules of nftables drop these, beside the switch.
	DropForgedClear Reason = 23
	DropClear       Reason = 24
	// Of the switch again.
	DropNotEncrypted Reason = 25

	DropNoEgress   Reason = 26
	DropShut       Reason = 27
	DropNotExposed Reason = 28
	DropUntold     Reason = 29
	// Of no flow, as DropClear.
	DropOtherAddress Reason = 30
	DropShadow       Reason = 31
	DropClaimed      Reason = 32
	DropByKey        Reason = 33
	// Of what began before, nothing is dropped for these.
	DropCrowd Reason = 34
	DropFull  Reason = 35

	DropUnwrapped Reason = 36
	// Of no flow, as DropClear.
	DropPosing Reason = 37
	// Of no flow: the fast path's program at WireGuard's device.
	DropNobodys Reason = 38
	DropUnwound Reason = 39
	// Of the switch.
	DropUnheard Reason = 40
)

var reasons = []struct {
	Reason Reason
	Doc    string
}{
	{DropVLAN, "VLAN-tagged frame"},
	{DropUnknownVTEP, "tunnel packet from an unknown VTEP"},
	{DropTunnelSource, "tunnel packet whose source is in no known range"},
	{DropUnknownPort, "packet on a port that no endpoint has"},
	{DropLinkLocal, "link-local or unspecified source of an endpoint: address probe (DAD), router solicitation, MLD report; or to a link-local address that nobody on its network has"},
	{DropARP, "ARP that is no request for a known prefix"},
	{DropTransit, "tunnel packet for no endpoint of this host"},
	{DropMulticast, "multicast or broadcast destination of which nobody gets packets, or not UDP"},
	{DropForgedTunnel, "VXLAN packet of an endpoint to the outside, which NAT would make look like this host's"},
	{DropNoRoute, "destination outside the cluster, not from an endpoint that may leave it"},
	{DropOtherNetwork, "source and destination are on different networks"},
	{DropNoDestination, "no output port"},
	{DropLoopback, "destination that is a host's own loopback address"},
	{DropND, "IPv6 neighbour discovery that is no solicitation for a known prefix: router and unasked advertisements, redirects"},
	{DropHostAddress, "address by which hosts speak to each other's containers, of or for somebody else"},
	{DropHidden, "fragment or tunnel (IP in IP, GRE, MPLS) of an endpoint to another host of the cluster, where VXLAN may come out of it"},
	{DropGossip, "packet of an endpoint to the gossip port of a host of the cluster"},
	{DropInvalid, "from or to an endpoint with rules: fits no connection"},
	{DropMidstream, "from or to an endpoint with rules: TCP of a connection that nobody saw begin and whose ports do not say who called whom"},
	{DropEgress, "no rule lets the endpoint send it"},
	{DropIngress, "no rule lets the endpoint be sent it"},
	{DropTwoClasses, "between an endpoint with rules and an address that two endpoints of different labels have"},
	{DropForgedClear, "on a host that encrypts, by nftables: came in the clear"},
	{DropClear, "on a host that encrypts, by nftables: would have left in the clear"},
	{DropNotEncrypted, "came in the clear to an encrypted network, or would have left it so"},
	{DropShut, "to a network that this host, which has no Docker, is not told to reach"},
	{DropNoEgress, "of a network with an egress address, to the outside, and no host holds the address"},
	{DropNotExposed, "from outside, by another host, and fits no connection to an exposed port"},
	{DropUntold, "of an endpoint whose labels are not known yet, to the outside: an egress address of its network asks for labels"},
	{DropOtherAddress, "of a network with an egress address, to the outside, by nftables: would have left with another address"},
	{DropShadow, "of an endpoint, to the outside, by nftables: would have left by an exposed port of this host"},
	{DropClaimed, "from outside, with an address of a container, a gateway or a host in the cluster, by nftables"},
	{DropByKey, "to a UDP port of WireGuard, by its process: of nobody who is a peer, of no session, heard before, or with another's address"},
	{DropCrowd, "from or to an endpoint with rules: begins a connection, and who sends it has more than a share of the few that there is room for"},
	{DropFull, "from or to an endpoint with rules: begins a connection, and there is room for no more"},
	{DropUnwrapped, "at the tunnel's port, and not of a tunnel: this host's own kernel sends it out of each device, as reports of multicast groups (MLD)"},
	{DropPosing, "to a published port, by nftables: would have come with a gateway's address, by another program's NAT, and is not the host"},
	{DropNobodys, "came in WireGuard without VXLAN, with an address that is nobody's, or in a form in which no host sends so, by the fast path"},
	{DropUnwound, "came in WireGuard without VXLAN, and could not be given the headers with which the switch takes it, by the fast path"},
	{DropUnheard, "between an endpoint whose address another one had before, and a host that has not said that it has heard so"},
}

// Cookie is that of a drop that is no flow of the switch.
func (r Reason) Cookie() uint64 { return r.object().cookie(0, 0) }

// String explains the reason in a few words.
func (r Reason) String() string {
	for _, i := range reasons {
		if i.Reason == r {
			return i.Doc
		}
	}
	return "unknown reason"
}
