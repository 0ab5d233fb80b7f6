// Package walk asks a switch what it would do with a packet, and reads what it says: a packet's way through one
// host. It is pure: the question and the answer are text.
package walk

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// Numbers of IP protocols.
const (
	ICMP   = 1
	TCP    = 6
	UDP    = 17
	ICMPv6 = 58
	SCTP   = 132
)

// Packet is the first of a connection, or the answer to it. Of ICMP it is an echo.
type Packet struct {
	Src   netip.Addr `cbor:"1,keyasint"`
	Dst   netip.Addr `cbor:"2,keyasint"`
	Proto uint8      `cbor:"3,keyasint"`
	From  uint16     `cbor:"4,keyasint,omitempty"` // source port
	To    uint16     `cbor:"5,keyasint,omitempty"`
	// Reply says that it answers a connection that went the other way.
	Reply bool `cbor:"6,keyasint,omitempty"`
	// Endpoint is the one that sends it, or VTEP is where it comes from, with a VNID. Without either it comes from
	// the gateway.
	Endpoint string     `cbor:"7,keyasint,omitempty"`
	VTEP     netip.Addr `cbor:"8,keyasint,omitempty"`
	VNID     uint32     `cbor:"9,keyasint,omitempty"`
	// Via is, of an answer of an exposed port, the VTEP by which the connection came.
	Via netip.Addr `cbor:"10,keyasint,omitempty"`
	// Plain says that it comes from that VTEP in WireGuard without VXLAN.
	Plain bool `cbor:"11,keyasint,omitempty"`
}

// Back is the answer to p.
func (p Packet) Back() Packet {
	return Packet{Src: p.Dst, Dst: p.Src, Proto: p.Proto, From: p.To, To: p.From, Reply: !p.Reply}
}

// Step is a flow that matched.
type Step struct {
	Stage    string `cbor:"1,keyasint"`
	Object   string `cbor:"2,keyasint,omitempty"` // what the flow is there for
	Priority int    `cbor:"3,keyasint,omitempty"`
	Flow     string `cbor:"4,keyasint,omitempty"` // as the switch says it
}

// End is where a packet's way through a host ends. Its zero value says that it is dropped.
type End struct {
	Endpoint string     `cbor:"1,keyasint,omitempty"` // delivered to this one
	VTEP     netip.Addr `cbor:"2,keyasint,omitempty"` // or sent there, with this VNID
	VNID     uint32     `cbor:"3,keyasint,omitempty"`
	Gateway  bool       `cbor:"4,keyasint,omitempty"` // or given to the host
	Other    string     `cbor:"5,keyasint,omitempty"` // or something else
}

// Dropped reports whether the packet goes nowhere.
func (e End) Dropped() bool { return e == End{} }

// String says it in a few words.
func (e End) String() string {
	switch {
	case e.Endpoint != "":
		return fmt.Sprintf("to endpoint %.12s", e.Endpoint)
	case e.VTEP.IsValid():
		return fmt.Sprintf("to VTEP %s with VNID %d", e.VTEP, e.VNID)
	case e.Gateway:
		return "to the gateway"
	case e.Other != "":
		return e.Other
	}
	return "dropped"
}

// Path is a packet's way through a host.
type Path struct {
	Steps []Step `cbor:"1,keyasint"`
	End   End    `cbor:"2,keyasint"`
	// Fast is where the fast path takes it, by what its maps hold; nil: it leaves it to the switch.
	Fast *End `cbor:"3,keyasint,omitempty"`
	// FastOn says that there is a fast path that was asked.
	FastOn bool `cbor:"4,keyasint,omitempty"`
	// Plain says that it sends it in WireGuard without VXLAN.
	Plain bool `cbor:"5,keyasint,omitempty"`
}

// Fast is Fast, FastOn and Plain of a Path.
type Fast struct {
	End       *End
	On, Plain bool
}

// Last is the flow that decided, or nothing.
func (p Path) Last() Step {
	if len(p.Steps) == 0 {
		return Step{}
	}
	return p.Steps[len(p.Steps)-1]
}

// Ask is the packet as ofproto/trace takes it, behind the name of the bridge.
func Ask(in pipeline.Input, p Packet) ([]string, error) {
	if !p.Src.IsValid() || !p.Dst.IsValid() || p.Src.Is4() != p.Dst.Is4() {
		return nil, fmt.Errorf("no packet goes from %s to %s", p.Src, p.Dst)
	}
	entry, err := entryOf(in, p)
	if err != nil {
		return nil, err
	}
	from, to := p.Src, p.Dst
	fromPort, toPort := p.From, p.To
	state := "trk,new"
	if p.Reply {
		from, to, fromPort, toPort, state = to, from, toPort, fromPort, "trk,est,rpl"
	}
	nw, six := "nw_", ""
	ct := "ct_nw_"
	if p.Src.Is6() {
		nw, six, ct = "ipv6_", "6", "ct_ipv6_"
	}
	var name, rest string
	flags := map[bool]string{false: "syn", true: "syn|ack"}[p.Reply]
	switch p.Proto {
	case TCP:
		name, rest = "tcp", fmt.Sprintf("tcp_src=%d,tcp_dst=%d,tcp_flags=%s", p.From, p.To, flags)
	case UDP:
		name, rest = "udp", fmt.Sprintf("udp_src=%d,udp_dst=%d", p.From, p.To)
	case SCTP:
		name, rest = "sctp", fmt.Sprintf("sctp_src=%d,sctp_dst=%d", p.From, p.To)
	case ICMP, ICMPv6:
		kind, field := map[bool]int{false: 8, true: 0}[p.Reply], "icmp"
		fromPort, toPort = 8, 0
		if p.Src.Is6() {
			kind, field = map[bool]int{false: 128, true: 129}[p.Reply], "icmpv6"
			fromPort = 128
		}
		name, rest = "icmp", fmt.Sprintf("%s_type=%d,%s_code=0", field, kind, field)
	default:
		return nil, fmt.Errorf("the way of protocol %d is not known", p.Proto)
	}
	proto := p.Proto
	noted, err := mark(in, p, from, to)
	if err != nil {
		return nil, err
	}
	// Connection tracking is said to know of it what it would by then.
	track := fmt.Sprintf("ct_state=0x21,ct_mark=%#x,%ssrc=%s,%sdst=%s,ct_nw_proto=%d,ct_tp_src=%d,ct_tp_dst=%d", noted, ct, from, ct, to, proto, fromPort, toPort)
	text := fmt.Sprintf("%s%s,%s,%s,%ssrc=%s,%sdst=%s,nw_ttl=64,%s", name, six, track, entry, nw, p.Src, nw, p.Dst, rest)
	return []string{text, "--ct-next", state}, nil
}

// mark is what the first packet of a connection has left there, when its answer comes.
func mark(in pipeline.Input, p Packet, from, to netip.Addr) (mark uint32, err error) {
	if !p.Reply {
		return 0, nil
	}
	for _, g := range in.Policy.Guards {
		if slices.Contains(g.Addrs, from) && g.Egress {
			mark |= uint32(g.EgressEpoch)
		}
		if slices.Contains(g.Addrs, to) && g.Ingress {
			mark |= uint32(g.IngressEpoch) << 16
		}
	}
	if !p.Via.IsValid() {
		return mark, nil
	}
	if mark != 0 { // it looks in two zones, and a trace knows one
		return 0, errors.New("it is a container with policies that answers by another host, which its switch cannot be asked about")
	}
	i := slices.IndexFunc(in.VTEPs, func(v pipeline.VTEP) bool { return v.Addr == p.Via })
	if i < 0 {
		return 0, fmt.Errorf("the switch knows no VTEP %s", p.Via)
	}
	return in.VTEPs[i].Index, nil
}

// entryOf says where the packet comes in.
func entryOf(in pipeline.Input, p Packet) (string, error) {
	switch {
	case p.Endpoint != "":
		for _, port := range in.Ports {
			if port.Endpoint == p.Endpoint {
				return fmt.Sprintf("in_port=%d,dl_src=%s,dl_dst=%s", port.OFPort, port.MAC, pipeline.RouterMAC), nil
			}
		}
		return "", fmt.Errorf("endpoint %.12s has no port in the switch", p.Endpoint)
	case p.VTEP.IsValid():
		if in.TunnelPort == 0 {
			return "", fmt.Errorf("the switch has no tunnel")
		}
		if in.Tunnel == pipeline.Metadata {
			field, port := "tun_src", in.TunnelPort
			if p.VTEP.Is6() {
				field = "tun_ipv6_src"
			}
			if in.InsidePort != 0 && slices.ContainsFunc(in.VTEPs, func(v pipeline.VTEP) bool { return v.Secure && v.Addr == p.VTEP }) {
				port = in.InsidePort
			}
			return fmt.Sprintf("in_port=%d,tun_id=%d,%s=%s,dl_src=%s,dl_dst=%s", port, p.VNID, field, p.VTEP, pipeline.RouterMAC, pipeline.RouterMAC), nil
		}
		for _, v := range in.VTEPs {
			if v.Addr == p.VTEP {
				src, dst := pipeline.FromTunnel(p.VNID, v.Index)
				return fmt.Sprintf("in_port=%d,dl_src=%s,dl_dst=%s", in.TunnelPort, src, dst), nil
			}
		}
		return "", fmt.Errorf("the switch knows no VTEP %s", p.VTEP)
	case in.GatewayPort == 0:
		return "", fmt.Errorf("the switch has no gateway")
	}
	return fmt.Sprintf("in_port=%d,dl_src=%s,dl_dst=%s", in.GatewayPort, in.GatewayMAC, pipeline.RouterMAC), nil
}

var (
	stepLine = regexp.MustCompile(`^ *(\d+)\. (.*)$`)
	priority = regexp.MustCompile(`priority (\d+)`)
	cookie   = regexp.MustCompile(`cookie (0x[0-9a-f]+)`)
	output   = regexp.MustCompile(`^(?:output:|-> output port is )(\d+)`)
	tunDst   = regexp.MustCompile(`^set_field:([0-9a-f.:]+)->tun_(?:ipv6_)?dst$`)
	loaded   = regexp.MustCompile(`^set_field:(0x[0-9a-f]+|[0-9]+)->` + pipeline.VTEPRegister() + `$`)
	actions  = regexp.MustCompile(`(?m)^Datapath actions: (.*)$`)
)

// toItself is what the switch says of a packet that came by the tunnel and would be sent where that had brought it. A trace
// takes a packet that connection tracking has let go on for one that comes in anew, with the tunnel's destination that flows
// gave it before, and says so of each that has one. A real packet comes in without.
const toItself = ">> Not tunneling to our own address"

// Read reads what ofproto/trace said of a packet.
func Read(in pipeline.Input, p Packet, text string) (path Path, err error) {
	names := pipeline.NewNames(in)
	var port uint32
	var index uint64
	var vtep netip.Addr
	sent, passes := false, false
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if m := stepLine.FindStringSubmatch(line); m != nil {
			path.Steps = append(path.Steps, stepOf(names, m[1], m[2]))
			continue
		}
		if m := output.FindStringSubmatch(line); m != nil {
			n, _ := strconv.ParseUint(m[1], 10, 32)
			port, sent = uint32(n), true
		}
		if line == toItself { // no flow sends to this host itself
			passes = slices.ContainsFunc(in.VTEPs, func(v pipeline.VTEP) bool { return v.Addr == vtep })
		}
		if m := tunDst.FindStringSubmatch(line); m != nil {
			vtep, _ = netip.ParseAddr(m[1])
		}
		if m := loaded.FindStringSubmatch(line); m != nil {
			index, _ = strconv.ParseUint(m[1], 0, 32)
		}
		if line == "IN_PORT" {
			path.End.Other, sent = "answered by the switch", true
		}
	}
	if n := len(path.Steps); n > 1 && path.Steps[n-1].Stage == pipeline.RejectStage.String() {
		path.Steps, sent = path.Steps[:n-1], false // it is the rule that ends it, and the agent that says so
	}
	done := actions.FindAllStringSubmatch(text, -1)
	switch {
	case len(path.Steps) == 0 || len(done) == 0:
		return path, fmt.Errorf("the switch says of the packet what cannot be read: %.200q", text)
	case done[len(done)-1][1] == "drop" && !passes || !sent:
		path.End = End{}
		return path, nil
	case path.End.Other != "":
		return path, nil
	}
	path.End = endOf(in, p, port, vtep, uint32(index))
	return path, nil
}

func stepOf(names pipeline.Names, table, flow string) (s Step) {
	n, _ := strconv.ParseUint(table, 10, 8)
	s = Step{Stage: pipeline.Stage(n).String(), Flow: flow}
	if m := priority.FindStringSubmatch(flow); m != nil {
		s.Priority, _ = strconv.Atoi(m[1])
	}
	if m := cookie.FindStringSubmatch(flow); m != nil {
		c, _ := strconv.ParseUint(m[1], 0, 64)
		s.Object = names.Describe(c)
	} else if strings.HasPrefix(flow, "No match") {
		s.Object = "no flow matches"
	} else {
		s.Object = "a flow that is none of grapevine's"
	}
	return s
}

// endOf is what a port is.
func endOf(in pipeline.Input, p Packet, port uint32, vtep netip.Addr, index uint32) End {
	switch {
	case port == in.TunnelPort && in.TunnelPort != 0:
		for _, v := range in.VTEPs {
			if in.Tunnel == pipeline.HeaderBits && v.Index == index {
				vtep = v.Addr
			}
		}
		if !vtep.IsValid() {
			return End{Other: "into the tunnel, to no known VTEP"}
		}
		return End{VTEP: vtep, VNID: vnidOf(in, p)}
	case port == in.GatewayPort && in.GatewayPort != 0:
		return End{Gateway: true}
	}
	for _, e := range in.Ports {
		if e.OFPort == port {
			return End{Endpoint: e.Endpoint}
		}
	}
	return End{Other: fmt.Sprintf("to port %d, which is none of grapevine's", port)}
}

// vnidOf is the VNID that a packet leaves with: its sender's.
func vnidOf(in pipeline.Input, p Packet) uint32 {
	for _, port := range in.Ports {
		if port.Endpoint == p.Endpoint {
			return port.VNID
		}
	}
	return 0
}
