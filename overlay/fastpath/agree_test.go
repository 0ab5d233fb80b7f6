package fastpath

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// TestAgree: of random packets in random clusters, whatever the programs would carry
// Open vSwitch would have sent to the same place with the same headers (its verdict by
// ofproto/trace, theirs by BPF_PROG_TEST_RUN); what Contents.Verdict says of a sound
// packet is what the programs do; and what they would carry but for its size they answer. In mode
// direct they do the same, with other hosts by way of VXLAN headers of their own.
func TestAgree(t *testing.T) {
	w := newJudges(t)
	carried, answered, direct, guarded, toGateway, fromGateway, toGroup, copied, inGroup, secret, bare, bareOut, inside, insideOut, all := 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		in := inputs().Draw(t, "cluster")
		contents := Compile(in, w.device)
		w.install(t, in, contents)
		for range 40 {
			w.settle(t)
			p := packets(in, w.device).Draw(t, "packet")
			frame, sound := w.frame(t, &p)
			got, mtu, out := w.program(t, p, frame)
			if slices.ContainsFunc(in.Policy.Guards, func(g pipeline.Guard) bool { return slices.Contains(g.Addrs, p.Dst) }) {
				guarded++
			}
			if slices.ContainsFunc(in.Groups, func(g pipeline.Group) bool {
				return p.Protocol == unix.IPPROTO_UDP && p.Ifindex != 0 && g.Addr == p.Dst
			}) {
				toGroup++
			}
			if want, wantMTU := w.expected(contents, p, frame); sound && (got != want || mtu != wantMTU) {
				t.Fatalf("%v:\n%x\nthe program says %+v, MTU %d; it should %+v, MTU %d", p, frame, got, mtu, want, wantMTU)
			}
			all++
			tally, err := w.tables.tally()
			must(t, err)
			counted := less(tally, w.last)
			if w.direct(t, p, frame, got, mtu, out, counted) {
				direct++
			}
			if w.bare(t, p, frame, got, mtu, out, counted) {
				bare++
			}
			if w.bareOut(t, p, frame, got, mtu, counted) {
				bareOut++
			}
			if w.inside(t, p, frame, got, mtu, out, counted) {
				inside++
			}
			if w.insideOut(t, p, frame, got, mtu, counted) {
				insideOut++
			}
			if len(in.Encrypted) > 0 {
				secret += w.strict(t, in, p, frame, got, mtu)
			}
			if got == (Verdict{}) {
				if !bytes.Equal(frame, out) {
					t.Fatalf("%v goes on, and is changed", p)
				}
				continue
			}
			src, dst := addresses(frame)
			for _, g := range in.Policy.Guards {
				if slices.Contains(g.Addrs, dst) || slices.Contains(g.Addrs, src) && p.Ifindex == w.device[g.Endpoint] {
					t.Fatalf("%v:\n%x\nis carried past the rules of endpoint %s: %+v", p, frame, g.Endpoint, got)
				}
			}
			want, trace := w.ovs(t, in, p, frame)
			if mtu != 0 {
				answered++
				if limit := w.mtu(want); mtu != limit {
					t.Fatalf("%v:\n%x\nis answered with MTU %d, Open vSwitch says %+v of MTU %d\n%s", p, frame, mtu, want, limit, trace)
				}
				p.Src, p.Dst = addresses(frame) // a bit of them may be another
				from := p.Dst
				if router := contents.Locals[p.Src].Router; !p.From.IsValid() && router.IsValid() {
					from = router
				}
				if err := wrongAnswer(frame, out, p, from, mtu); err != nil {
					t.Fatalf("%v:\n%x\nis answered with\n%x\n%v", p, frame, out, err)
				}
				want = answerTo(contents, p)
			} else if carried++; !bytes.Equal(frame[12:], out[12:]) {
				t.Fatalf("%v: more than MAC addresses is changed", p)
			}
			if got != want {
				t.Fatalf("%v:\n%x\nthe program says %+v, Open vSwitch %+v\n%s", p, frame, got, want, trace)
			}
			if got.Copies != "" && p.From.IsValid() {
				inGroup++
			} else if got.Copies != "" {
				copied++
			} else if mtu == 0 && got.Gateway {
				toGateway++
			} else if p.Gateway {
				fromGateway++
			}
			w.counted(t, tally, trace, len(frame))
			if source := net.HardwareAddr(out[6:12]).String(); source != pipeline.RouterMAC.String() {
				t.Fatalf("%v: source MAC %s", p, source)
			}
		}
	})
	if guarded == 0 {
		t.Error("no packet was to or from an endpoint with rules")
	}
	sums := fmt.Sprintf("%d of %d packets were carried, %d of them direct, %d to the gateway, %d from it, %d answered, %d were for a group and %d of them copied, %d came for one; %d were delivered that had come without headers, and %d sent so; of these in WireGuard %d and %d; %d from or to an encrypted network crossed the tunnel", carried, all, direct, toGateway, fromGateway, answered, toGroup, copied, inGroup, bare, bareOut, inside, insideOut, secret)
	t.Log(sums)
	// A short run, of a fifth of the draws, may show little.
	if !testing.Short() && (carried < all/20 || answered < all/800 || direct < all/200 || toGateway < all/500 || fromGateway < all/1000 || toGroup < all/400 || copied < all/1000 || inGroup == 0 || bare < all/1000 || bareOut < all/1000 || inside < all/1000 || secret == 0) {
		t.Error(sums + ": the test shows little")
	}
}

// strict says that programs and switch send what is of an encrypted network, or for one, to a VTEP inside or to no other
// host, and take nothing else for one. It returns 1 if such a packet crosses the tunnel.
func (w *judges) strict(t *rapid.T, in pipeline.Input, p Packet, frame []byte, got Verdict, mtu int) int {
	if len(frame) < 54 || frame[12] != 8 && frame[12] != 0x86 || frame[13] == 6 {
		return 0
	}
	src, dst := addresses(frame)
	within := func(a netip.Addr, ports bool) bool { // what came by the tunnel is judged by ranges alone
		longest, yes := -1, false
		if slices.ContainsFunc(in.VTEPs, func(v pipeline.VTEP) bool { return slices.Contains(v.Host, a) }) {
			return false // a host's own address, though a range may be drawn around it
		}
		if a.IsLinkLocalUnicast() { // of no subnet, though one may be drawn there: the network of who sends it counts
			return slices.ContainsFunc(in.Ports, func(port pipeline.Port) bool {
				return port.Encrypted && w.device[port.Endpoint] == p.Ifindex && slices.Contains(port.LinkLocal, a)
			})
		}
		for _, s := range in.Subnets {
			if ports && s.Prefix.Contains(a) && s.Prefix.Bits() > longest {
				longest, yes = s.Prefix.Bits(), s.Encrypted
			}
		}
		for _, r := range in.Routes {
			if r.Prefix.Contains(a) && r.Prefix.Bits() >= longest {
				longest, yes = r.Prefix.Bits(), r.VTEP == inside
			}
		}
		for _, port := range in.Ports {
			if ports && slices.Contains(port.Addrs, a) {
				yes = port.Encrypted
			}
		}
		return yes
	}
	// What the host forwards is of a network by its subnet: of those that are drawn inside each other, the smallest; and
	// a gateway's own address is of its own.
	longest, bySubnet := -1, false
	for _, s := range in.Subnets {
		if s.Gateway == src {
			bySubnet = s.Encrypted
			break
		}
		if s.Prefix.Contains(src) && s.Prefix.Bits() > longest {
			longest, bySubnet = s.Prefix.Bits(), s.Encrypted
		}
	}
	secret := p.Gateway && bySubnet || !p.Gateway && within(src, !p.From.IsValid())
	if !secret && !within(dst, true) {
		return 0
	}
	switched, trace := w.ovs(t, in, p, frame)
	for by, v := range map[string]Verdict{"the program": got, "Open vSwitch": switched} {
		sent := v.VTEP.IsValid() && v.VTEP != inside
		if mtu != 0 && by == "the program" && p.From == v.VTEP {
			sent = false // an answer to who sent it
		}
		taken := p.From.IsValid() && p.From != inside && v.Ifindex != 0
		if sent || taken {
			t.Fatalf("%v:\n%x\nis of an encrypted network or for one, and is carried in the clear by %s: %+v\n%s", p, frame, by, v, trace)
		}
	}
	if switched.VTEP == inside || p.From == inside && switched.Ifindex != 0 {
		return 1
	}
	return 0
}

// judges are the programs and a switch with the same ports.
type judges struct {
	objs    verdictObjects
	tables  tables
	device  map[string]uint32
	bridge  *ovs.Bridge
	ports   map[string]uint32
	trace   *json.Decoder
	ask     *json.Encoder
	in      pipeline.Input
	drawn   pipeline.Input // of TestAgreeSettled: in, but for the switch's own numbers of ports
	flows   []pipeline.Flow
	before  []pipeline.Count  // what the flows were credited with so far
	endOf   map[uint32]string // OpenFlow port -> endpoint
	tunnel  uint32
	gateway uint32

	config, directConfig configValue
	last                 pipeline.Tally // before program was called
	lastOf               Verdict        // the last copy of a packet for a group
}

func newJudges(t *testing.T) *judges {
	w := &judges{device: map[string]uint32{}, endOf: map[uint32]string{}}
	must(t, loadVerdictObjects(&w.objs, nil))
	t.Cleanup(func() { w.objs.Close() })
	must(t, errors.Join(w.objs.GvHeld.Put(uint32(heldLeave), w.objs.GvAgain), w.objs.GvHeld.Put(uint32(heldAgain), w.objs.GvEndpoint)))
	w.tables = tables{config: w.objs.GvConfig, locals: w.objs.GvLocals, ranges: w.objs.GvRanges, groups: w.objs.GvGroups, counters: w.objs.GvFpCounters, settled: w.objs.GvSettled, generation: w.objs.GvGeneration, rules: w.objs.GvRules, own: w.objs.GvOwn, granted: w.objs.GvGranted, seats: w.objs.GvSeats, swept: w.objs.GvSwept}
	for _, e := range endpoints {
		name := "dev-" + e
		must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "peer-" + e}))
		t.Cleanup(func() { _ = link.Delete(name) })
		l, err := netlink.LinkByName(name)
		must(t, err)
		must(t, netlink.LinkSetUp(l))
		must(t, netlink.LinkSetMTU(l, mtus[e]))
		peer, err := netlink.LinkByName("peer-" + e)
		must(t, err)
		must(t, netlink.LinkSetUp(peer))
		w.device[e] = uint32(l.Attrs().Index)
	}
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "dev-gateway", MTU: gatewayMTU}, PeerName: "peer-gateway"}))
	t.Cleanup(func() { _ = link.Delete("dev-gateway") })
	l, err := netlink.LinkByName("dev-gateway")
	must(t, err)
	must(t, netlink.LinkSetUp(l))
	w.config = configValue{On: 1, Tunnel: 1, TunnelMTU: w.device["a"], LeastPort: 32768, EndPort: 60999, VTEP: vtep.As4()}
	binary.BigEndian.PutUint16(w.config.Port[:], vxlanPort)
	w.config.open(Gate{On: true, MAC: gatewayMAC, VXLAN: vxlanPort, Gossip: gossipPort}, uint32(l.Attrs().Index))
	w.directConfig = w.config
	w.directConfig.Underlay = testNIC
	must(t, w.objs.GvConfig.Put(uint32(0), w.config))

	_, w.bridge = ovstest.Start(t)
	must(t, w.bridge.Ensure(t.Context()))
	var specs []ovs.PortSpec
	for _, name := range append([]string{"tunnel", "gateway"}, endpoints...) {
		specs = append(specs, ovs.PortSpec{Name: "p-" + name, Type: "internal", Role: "endpoint"})
	}
	s, err := w.bridge.SetPorts(t.Context(), specs, nil)
	must(t, err)
	w.tunnel, w.gateway = s.Ports["p-tunnel"].OFPort, s.Ports["p-gateway"].OFPort
	w.ports = map[string]uint32{}
	for _, e := range endpoints {
		w.ports[e] = s.Ports["p-"+e].OFPort
		w.endOf[w.ports[e]] = e
	}
	sockets, err := filepath.Glob(filepath.Join(w.bridge.RunDir, "ovs-vswitchd.*.ctl"))
	must(t, err)
	if len(sockets) != 1 {
		t.Fatalf("control sockets: %v", sockets)
	}
	conn, err := net.Dial("unix", sockets[0])
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	w.trace, w.ask = json.NewDecoder(conn), json.NewEncoder(conn)
	return w
}

// called has a container a in the tables, whose rules let others call it, and those, and returns what the tables hold.
func (w *judges) called(t *testing.T, secret uint32, callers ...string) pipeline.Input {
	in := pipeline.Input{
		Round: pipeline.Round, Tunnel: pipeline.HeaderBits, TunnelPort: 1, Generation: 300, Secret: secret,
		Subnets: []pipeline.Subnet{{Prefix: prefixes("10.128.0.0/24")[0], VNID: 5}},
		Ports:   []pipeline.Port{{OFPort: 3, MAC: macs["a"], Addrs: addrs("10.128.0.2"), VNID: 5, Endpoint: "a", Guarded: true}},
	}
	for i, name := range callers {
		addr := addrs(fmt.Sprintf("10.128.0.%d", 3+i))
		in.Ports = append(in.Ports, pipeline.Port{OFPort: uint32(4 + i), MAC: macs[name], Addrs: addr, VNID: 5, Endpoint: name, Plain: true})
	}
	must(t, w.tables.void(in))
	must(t, w.tables.write(Compile(in, w.device)))
	return in
}

func must(t interface {
	Helper()
	Fatal(...any)
}, err error,
) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// install makes maps and flows those of a cluster.
func (w *judges) install(t *rapid.T, in pipeline.Input, contents Contents) {
	must(t, w.tables.write(contents))
	w.flow(t, in)
}

// flow makes the switch's flows those of in.
func (w *judges) flow(t *rapid.T, in pipeline.Input) {
	in.TunnelPort, in.GatewayPort = w.tunnel, w.gateway
	in.Ports, in.Groups = slices.Clone(in.Ports), slices.Clone(in.Groups)
	drawn := map[uint32]uint32{}
	for i := range in.Ports {
		p := &in.Ports[i]
		drawn[p.OFPort] = w.ports[p.Endpoint]
		p.OFPort = drawn[p.OFPort]
	}
	for i := range in.Groups {
		g := &in.Groups[i]
		g.Ports = slices.Clone(g.Ports)
		for j := range g.Ports {
			g.Ports[j] = drawn[g.Ports[j]]
		}
		slices.Sort(g.Ports)
	}
	flows, err := pipeline.Compile(in)
	must(t, err)
	if changes := pipeline.Diff(w.flows, flows); !changes.Empty() {
		w.flows = nil
		must(t, w.bridge.ApplyBundle(t.Context(), changes.Lines()))
	}
	w.in, w.flows = in, flows
}

// settle takes the counters as they are for those before the next packet.
func (w *judges) settle(t *rapid.T) {
	tally, err := w.tables.tally()
	must(t, err)
	w.before = pipeline.Credit(w.in, w.flows, tally)
}

var visited = regexp.MustCompile(`(?m)^ *(\d+)\. .*priority (\d+), cookie (0x[0-9a-f]+)`)

// counted says whether the packet was added to the counters of the very flows that it
// visits in the switch's trace.
func (w *judges) counted(t *rapid.T, tally pipeline.Tally, trace string, bytes int) {
	type name struct{ table, priority, cookie uint64 }
	visits := map[name]int{}
	for _, m := range visited.FindAllStringSubmatch(trace, -1) {
		var n name
		_, err := fmt.Sscan(m[1]+" "+m[2]+" "+m[3], &n.table, &n.priority, &n.cookie)
		must(t, err)
		if n.table == uint64(pipeline.Forwarding) && n.priority == 3050 {
			// What the host itself sends to an endpoint with an exit the program may deliver, which nobody outside
			// answers: it is counted with what else is delivered there.
			n.priority = 3000
		}
		if n.table == uint64(pipeline.Noted) {
			continue // the same packet behind conntrack
		}
		visits[n]++
	}
	after := pipeline.Credit(w.in, w.flows, tally)
	for i, f := range w.flows {
		n := name{uint64(f.Table), uint64(f.Priority), f.Cookie}
		switch got := (pipeline.Count{Packets: after[i].Packets - w.before[i].Packets, Bytes: after[i].Bytes - w.before[i].Bytes}); {
		case got == pipeline.Count{}:
		case got != pipeline.Count{Packets: 1, Bytes: uint64(bytes)} || visits[n] == 0:
			t.Fatalf("%v has %+v more\n%s", f, got, trace)
		default:
			visits[n]--
		}
	}
	for n, left := range visits {
		if left != 0 {
			t.Fatalf("%+v was visited and not counted\n%s", n, trace)
		}
	}
	w.before = after
}

// mtus are those of the endpoints' devices; the tunnel has that of a's. That of c is too little for
// an answer over IPv6.
var mtus = map[string]int{"a": 1400, "b": 1300, "c": 600, "d": 1500}

const gatewayMTU = 1450

var gatewayMAC = [6]byte{2, 0x42, 0, 0, 0, 2}

// mtu is that of the device that a packet is sent to, or the least of those.
func (w *judges) mtu(v Verdict) int {
	if v.Copies != "" {
		least := gatewayMTU
		for e, ifindex := range w.device {
			if strings.Contains(v.Copies, fmt.Sprintf("device %d ", ifindex)) {
				least = min(least, mtus[e])
			}
		}
		if strings.Contains(v.Copies, "VTEP") {
			least = min(least, mtus["a"])
		}
		return least
	}
	if v.Gateway {
		return gatewayMTU
	}
	for e, ifindex := range w.device {
		if ifindex == v.Ifindex {
			return mtus[e]
		}
	}
	return mtus["a"]
}

// expected is what is to become of a sound packet: the Verdict, or that of the answer to
// it, with the MTU.
func (w *judges) expected(c Contents, p Packet, frame []byte) (Verdict, int) {
	v := c.Verdict(p)
	mtu := w.mtu(v)
	if v == (Verdict{}) || len(frame)-14 <= mtu {
		return v, 0
	}
	least, size, echo := 576, int(binary.BigEndian.Uint16(frame[16:])), frame[23] != 1 || frame[34] == 8
	if p.Src.Is6() {
		least, size, echo = 1280, 40+int(binary.BigEndian.Uint16(frame[18:])), frame[20] != 58 || frame[54] >= 128
	}
	if v.Copies != "" || v.Gateway || p.Gateway || mtu < least || size <= mtu || !echo || frame[0]&1 == 1 {
		return Verdict{}, 0
	}
	return answerTo(c, p), mtu
}

// answerTo is where the answer to a packet goes.
func answerTo(c Contents, p Packet) Verdict {
	if p.From.IsValid() {
		return Verdict{VTEP: p.From, VNID: c.Locals[p.Dst].VNID}
	}
	return Verdict{Ifindex: p.Ifindex, MAC: p.MAC}
}

func addresses(frame []byte) (src, dst netip.Addr) {
	if frame[12] == 8 {
		return netip.AddrFrom4([4]byte(frame[26:])), netip.AddrFrom4([4]byte(frame[30:]))
	}
	return netip.AddrFrom16([16]byte(frame[22:])), netip.AddrFrom16([16]byte(frame[38:]))
}

// sum is the checksum of RFC 1071; 0: the one in there is right.
func sum(b ...[]byte) (n uint32) {
	all := bytes.Join(b, nil)
	for i := 0; i < len(all); i += 2 {
		n += uint32(binary.BigEndian.Uint16(all[i:]))
	}
	for n > 0xffff {
		n = n>>16 + n&0xffff
	}
	return n ^ 0xffff
}

// wrongAnswer says what is wrong with the answer to a frame that is too big, or with there being one.
func wrongAnswer(frame, out []byte, p Packet, from netip.Addr, mtu int) error {
	ip, old := out[14:], frame[14:]
	if frame[0]&1 == 1 || !bytes.Equal(out[12:14], frame[12:14]) {
		return errors.New("Ethernet")
	}
	if p.Src.Is4() {
		fragment := binary.BigEndian.Uint16(old[6:])&0x1fff != 0
		info := old[9] != 1 || old[20] == 0 || old[20] == 8 || old[20] == 13 || old[20] == 14
		switch src, dst := from.As4(), p.Src.As4(); {
		case fragment || !info || int(binary.BigEndian.Uint16(old[2:])) <= mtu:
			return errors.New("it must not be answered")
		case len(ip) != 576 || ip[0] != 0x45 || binary.BigEndian.Uint16(ip[2:]) != 576 || ip[9] != 1 || ip[8] == 0 || sum(ip[:20]) != 0:
			return errors.New("IP header")
		case !bytes.Equal(ip[12:20], slices.Concat(src[:], dst[:])):
			return errors.New("addresses")
		case ip[20] != 3 || ip[21] != 4 || int(binary.BigEndian.Uint32(ip[24:])) != mtu || sum(ip[20:]) != 0:
			return errors.New("ICMP header")
		case !bytes.Equal(ip[28:], old[:548]):
			return errors.New("quotation")
		}
		return nil
	}
	switch src, dst := from.As16(), p.Src.As16(); {
	case old[6] == 58 && old[40] < 128 || 40+int(binary.BigEndian.Uint16(old[4:])) <= mtu:
		return errors.New("it must not be answered")
	case len(ip) != 1280 || ip[0] != 0x60 || binary.BigEndian.Uint16(ip[4:]) != 1240 || ip[6] != 58 || ip[7] == 0:
		return errors.New("IPv6 header")
	case !bytes.Equal(ip[8:40], slices.Concat(src[:], dst[:])):
		return errors.New("addresses")
	case ip[40] != 2 || ip[41] != 0 || int(binary.BigEndian.Uint32(ip[44:])) != mtu || sum(ip[8:], []byte{0, 58}, ip[4:6]) != 0:
		return errors.New("ICMPv6 header")
	case !bytes.Equal(ip[48:], old[:1232]):
		return errors.New("quotation")
	}
	return nil
}

// direct says whether mode direct carries a packet, which the programs carry without it as got, mtu,
// out and counted say.
func (w *judges) direct(t *rapid.T, p Packet, frame []byte, got Verdict, mtu int, out []byte, counted map[string]pipeline.Count) bool {
	before, err := w.tables.tally()
	must(t, err)
	var again Verdict
	var againMTU int
	var wire, outer []byte
	if p.Gateway {
		return false
	}
	if !p.From.IsValid() {
		must(t, w.objs.GvConfig.Put(uint32(0), w.directConfig))
		again, againMTU, wire = w.program(t, p, frame)
		must(t, w.objs.GvConfig.Put(uint32(0), w.config))
		if again != got || againMTU != mtu {
			t.Fatalf("%v:\n%x\nis %+v, MTU %d, and direct %+v, MTU %d", p, frame, got, mtu, again, againMTU)
		}
		last := got.VTEP
		if got.Copies != "" {
			last, got.VNID = w.lastOf.VTEP, w.lastOf.VNID
			got.VTEP = last
		}
		if !last.Is4() {
			if !bytes.Equal(wire, out) {
				t.Fatalf("%v:\n%x\nis sent as\n%x\nand direct as\n%x", p, frame, out, wire)
			}
		} else if err := wrongOuter(wire, out, got); err != nil {
			t.Fatalf("%v:\n%x\nis sent direct as\n%x\n%v", p, frame, wire, err)
		}
	} else {
		if !p.From.Is4() {
			return false
		}
		outer = encapsulated(frame, p.From, vtep, p.VNID, byte(rapid.IntRange(0, 2).Draw(t, "outer ECN")))
		if again, wire = w.underlay(t, p, outer); mtu != 0 || got == (Verdict{}) {
			if again != (Verdict{}) || !bytes.Equal(outer, wire) {
				t.Fatalf("%v:\n%x\nis %+v, MTU %d; with outer headers\n%x\nit is taken as %+v", p, frame, got, mtu, outer, again)
			}
		} else if again != got || !bytes.Equal(wire, out) {
			t.Fatalf("%v:\n%x\nis delivered as %+v\n%x\nwith outer headers\n%x\nas %+v\n%x", p, frame, got, out, outer, again, wire)
		}
	}
	after, err := w.tables.tally()
	must(t, err)
	if again == (Verdict{}) {
		if !reflect.DeepEqual(before, after) {
			t.Fatalf("%v goes on direct, and is counted", p)
		}
		return false
	}
	if again := less(after, before); !reflect.DeepEqual(again, counted) {
		t.Fatalf("%v is counted as %+v, and direct as %+v", p, counted, again)
	}
	if outer != nil {
		w.odd(t, p, frame, outer)
	}
	return mtu == 0 && got.Copies == "" && (got.VTEP.Is4() || p.From.IsValid())
}

// underlay asks the program at the NIC what it would do with a packet of another host's.
func (w *judges) underlay(t *rapid.T, p Packet, outer []byte) (Verdict, []byte) {
	run := &ebpf.RunOptions{Data: outer, DataOut: make([]byte, len(outer)+256), Context: [48]uint32{}}
	must(t, w.objs.GvConfig.Put(uint32(0), w.directConfig))
	must(t, w.objs.GvCopies.Put(uint32(0), drawnCopies{}))
	ret, err := w.objs.GvUnderlay.Run(run)
	must(t, w.objs.GvConfig.Put(uint32(0), w.config))
	must(t, err)
	v, mtu, wire := w.verdict(t, p, ret, run.DataOut)
	if mtu != 0 {
		t.Fatalf("%v:\n%x\nis answered at the NIC", p, outer)
	}
	return v, wire
}

// less is what a has more than b, of what is more.
func less(a, b pipeline.Tally) map[string]pipeline.Count {
	out := map[string]pipeline.Count{}
	add := func(key string, a, b pipeline.Count) {
		if a != b {
			out[key] = pipeline.Count{Packets: a.Packets - b.Packets, Bytes: a.Bytes - b.Bytes}
		}
	}
	for k, n := range a.From {
		add("from "+k.String(), n, b.From[k])
	}
	for k, n := range a.To {
		add("to "+k.String(), n, b.To[k])
	}
	for k, n := range a.Into {
		add("into "+k.String(), n, b.Into[k])
	}
	for k, n := range a.OutOf {
		add("out of "+k.String(), n, b.OutOf[k])
	}
	for k, n := range a.VNIDs {
		add(fmt.Sprint("VNID ", k), n, b.VNIDs[k])
	}
	for k, n := range a.ToGateway {
		add("to the gateway, for "+k.String(), n, b.ToGateway[k])
	}
	for k, n := range a.FromGateway {
		add("from the gateway, of "+k.String(), n, b.FromGateway[k])
	}
	for k, n := range a.ToGroups {
		add(fmt.Sprint("to group ", k), n, b.ToGroups[k])
	}
	for k, n := range a.InGroups {
		add(fmt.Sprint("in group ", k), n, b.InGroups[k])
	}
	add("from VNID 0", a.FromVNID0, b.FromVNID0)
	add("to VNID 0", a.OnlyToOf0, b.OnlyToOf0)
	return out
}

// encapsulated is an inner frame with the outer headers of VXLAN.
func encapsulated(inner []byte, src, dst netip.Addr, vnid uint32, tos byte) []byte {
	out := slices.Concat(make([]byte, 12), []byte{8, 0, 0x45, tos}, make([]byte, 6), []byte{64, 17, 0, 0}, src.AsSlice(), dst.AsSlice(), []byte{0x9c, 0x40}, make([]byte, 6), []byte{8, 0, 0, 0})
	binary.BigEndian.PutUint16(out[16:], uint16(len(inner)+36))
	binary.BigEndian.PutUint16(out[36:], vxlanPort)
	binary.BigEndian.PutUint16(out[38:], uint16(len(inner)+16))
	sumOuter(out)
	return append(binary.BigEndian.AppendUint32(out, vnid<<8), inner...)
}

func sumOuter(frame []byte) {
	copy(frame[24:], []byte{0, 0})
	binary.BigEndian.PutUint16(frame[24:], uint16(sum(frame[14:34])))
}

const vxlanPort, gossipPort = 4789, 7946

// testNIC is the device by which BPF_PROG_TEST_RUN has packets arrive: lo.
const testNIC = 1

var vtep = netip.MustParseAddr("192.0.2.1")

// wrongOuter says what is wrong with the outer headers of a packet whose inner frame is known.
func wrongOuter(wire, inner []byte, v Verdict) error { return wrongOuterFrom(wire, inner, vtep, v) }

func wrongOuterFrom(wire, inner []byte, from netip.Addr, v Verdict) error {
	tos := inner[15] & 3
	if inner[12] == 0x86 {
		tos = inner[15] >> 4 & 3
	}
	if tos == 3 {
		tos = 2 // RFC 6040, 4.1, compatibility mode
	}
	if len(wire) != len(inner)+50 {
		return fmt.Errorf("%d bytes are not %d and 50", len(wire), len(inner))
	}
	want := encapsulated(inner, from, v.VTEP, v.VNID, tos)
	if port := binary.BigEndian.Uint16(wire[34:]); port < 32768 || port >= 60999 {
		return fmt.Errorf("source port %d", port)
	}
	for _, free := range [][2]int{{0, 14}, {18, 20}, {34, 36}} { // Ethernet is the kernel's; ID; source port
		copy(want[free[0]:free[1]], wire[free[0]:free[1]])
	}
	if sumOuter(want); !bytes.Equal(want, wire) {
		return fmt.Errorf("want\n%x", want)
	}
	return nil
}

// odd does something to the outer headers of a packet that is delivered, one thing after the other:
// the program at the NIC leaves it as it is then.
func (w *judges) odd(t *rapid.T, p Packet, frame, plain []byte) {
	w.directConfig.Underlay = w.device["a"]
	if got, wire := w.underlay(t, p, plain); got != (Verdict{}) || !bytes.Equal(plain, wire) {
		t.Fatalf("%v:\n%x\nis taken at another NIC than the underlay's as %+v:\n%x", p, plain, got, wire)
	}
	w.directConfig.Underlay = testNIC
	var out []byte
	bit := func(at int) func() { return func() { out[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit") } }
	for _, oddity := range []struct {
		what string
		do   func()
	}{
		{"CE", func() { out[15] |= 3 }},
		{"version or options", bit(14)},
		{"total length", bit(17)},
		{"more fragments", func() { out[20] |= 0x20 }},
		{"fragment", bit(21)},
		{"protocol", bit(23)},
		{"sender", bit(29)},
		{"not to this host", bit(33)},
		{"port", bit(37)},
		{"UDP length", bit(39)},
		{"UDP checksum", bit(41)},
		{"VXLAN flags", bit(42)},
		{"reserved", bit(45)},
		{"VNID", bit(48)},
		{"reserved in the end", bit(49)},
		{"IP checksum", bit(24)},
		{"to somebody else's MAC address", func() { out[5] = 1 }},
		{"to all", func() { copy(out, "\xff\xff\xff\xff\xff\xff") }},
		{"tag", func() { out = slices.Concat(out[:12], []byte{0x81, 0, 0, 0}, out[12:]) }},
		{"padded", func() { out = append(out, 0, 0, 0) }},
		{"cut", func() { out = out[:rapid.IntRange(54, len(out)-1).Draw(t, "length")] }},
		{"IPv6", func() { out[12], out[13] = 0x86, 0xdd }},
	} {
		out = bytes.Clone(plain)
		oddity.do()
		if out[12] == 8 && oddity.what != "IP checksum" {
			sumOuter(out)
		}
		var want Verdict
		if oddity.what == "sender" || oddity.what == "VNID" { // who may send it as well
			told := p
			told.From, told.VNID = netip.AddrFrom4([4]byte(out[26:])), binary.BigEndian.Uint32(out[46:])>>8
			if v, mtu, _ := w.program(t, told, frame); mtu == 0 {
				want = v
			}
		}
		before, err := w.tables.tally()
		must(t, err)
		got, wire := w.underlay(t, p, out)
		if got != want || want == (Verdict{}) && !bytes.Equal(out, wire) {
			t.Fatalf("%v, %s:\n%x\nis taken as %+v, want %+v:\n%x", p, oddity.what, out, got, want, wire)
		}
		after, err := w.tables.tally()
		must(t, err)
		if counted := less(after, before); (len(counted) == 0) != (want == Verdict{}) {
			t.Fatalf("%v, %s:\n%x\nis counted as %+v", p, oddity.what, out, counted)
		}
	}
}

// program asks the program what it would do. The MTU is not 0 if that is to answer.
func (w *judges) program(t *rapid.T, p Packet, frame []byte) (Verdict, int, []byte) {
	tally, err := w.tables.tally()
	must(t, err)
	w.last = tally
	var skb [48]uint32 // struct __sk_buff
	prog := w.objs.GvEndpoint
	const ifindex, cb = 10, 12
	skb[ifindex] = p.Ifindex
	if p.Gateway {
		prog, skb[ifindex] = w.objs.GvDeliver, w.config.Gateway
	}
	if p.From.IsValid() {
		prog, skb[ifindex] = w.objs.GvTunnel, 0
		skb[cb] = p.VNID
		a := p.From.As16()
		for i := range 4 {
			skb[cb+1+i] = binary.NativeEndian.Uint32(a[4*i:])
		}
	}
	out := make([]byte, len(frame)+256)
	run := &ebpf.RunOptions{Data: frame, DataOut: out, Context: skb}
	must(t, w.objs.GvCopies.Put(uint32(0), drawnCopies{}))
	ret, err := prog.Run(run)
	if errors.Is(err, unix.EINVAL) && len(frame) < 14+40 {
		return Verdict{}, 0, frame // newer kernels do not even try a cut IP header
	}
	must(t, err)
	return w.verdict(t, p, ret, run.DataOut)
}

// verdict is what a program says.
func (w *judges) verdict(t *rapid.T, p Packet, ret uint32, out []byte) (Verdict, int, []byte) {
	const goOn, redirect = ^uint32(0), 7
	if ret == goOn {
		return Verdict{}, 0, out
	}
	if ret != redirect {
		t.Fatalf("%v: the program says %d", p, ret)
	}
	var raw struct {
		Ifindex uint32
		VTEP    address
		VNID    uint32
		MTU     uint32
	}
	must(t, w.objs.GvVerdict.Lookup(uint32(0), &raw))
	var copies drawnCopies
	must(t, w.objs.GvCopies.Lookup(uint32(0), &copies))
	if copies.OfGroup != 0 {
		last := Copy{Ifindex: raw.Ifindex, VTEP: raw.VTEP.addr(), VNID: raw.VNID}
		if !last.VTEP.IsValid() {
			last.MAC = [6]byte(out)
		}
		w.lastOf = Verdict{VTEP: last.VTEP, VNID: last.VNID}
		list := []Copy{last}
		for _, c := range copies.List[:copies.N] {
			list = append(list, Copy{c.Ifindex, c.MAC, c.VTEP.addr(), c.VNID})
		}
		return Verdict{Copies: Copies(list)}, int(raw.MTU), out
	}
	if raw.VTEP != (address{}) {
		return Verdict{VTEP: raw.VTEP.addr(), VNID: raw.VNID}, int(raw.MTU), out
	}
	if raw.Ifindex == w.config.Gateway {
		return Verdict{Gateway: true, MAC: [6]byte(out)}, int(raw.MTU), out
	}
	return Verdict{Ifindex: raw.Ifindex, MAC: [6]byte(out)}, int(raw.MTU), out
}

// drawnCopies is struct copies of bpf/fastpath.c.
type drawnCopies struct {
	OfGroup, N uint32
	List       [8]struct {
		Ifindex uint32
		VTEP    address
		VNID    uint32
		MAC     [6]byte
		_       uint16
	}
}

var (
	setMAC     = regexp.MustCompile(`^ *set_field:([0-9a-f:]+)->eth_(src|dst)$`)
	setVNID    = regexp.MustCompile(`NXM_OF_ETH_SRC\[0\.\.23\] is now (0x[0-9a-f]+|0)`)
	toGroups   = regexp.MustCompile(`(?m)^70\. .*priority 3100,`)
	outputs    = regexp.MustCompile(`-> output port is (\d+)|^ *output:(\d+)$`)
	finalMACs  = regexp.MustCompile(`Final flow: .*dl_src=([0-9a-f:]+),dl_dst=([0-9a-f:]+)`)
	unexpected = regexp.MustCompile(`\nDatapath actions: drop`)
)

// ovs asks the switch, for a packet with the tunnel's header bits.
func (w *judges) ovs(t *rapid.T, in pipeline.Input, p Packet, frame []byte) (Verdict, string) {
	v, text, _ := w.ovsTracking(t, in, p, frame, "")
	return v, text
}

// ovsTracking is ovs of a packet of whose connection the switch knows something. It returns the MAC addresses with which the
// packet leaves, too, the destination's first.
func (w *judges) ovsTracking(t *rapid.T, in pipeline.Input, p Packet, frame []byte, known string, next ...string) (Verdict, string, []byte) {
	frame = bytes.Clone(frame)
	port := w.tunnel
	hint := pipeline.Hint(0)
	for _, h := range []pipeline.Hint{pipeline.Call, pipeline.Answer} {
		if in.Secret != 0 && bytes.Equal(frame[:6], h.MAC(in.Secret)) {
			hint = h
		}
	}
	if p.Gateway {
		port = w.gateway
	} else if p.From.IsValid() {
		copy(frame, []byte{2, 1, 0, 0, 0, 0xff})
		for _, v := range in.VTEPs {
			if v.Addr == p.From {
				binary.BigEndian.PutUint32(frame[2:], v.Index)
			}
		}
		behind := [2]byte{}
		if hint != 0 {
			behind = hint.Behind(in.Secret)
		}
		copy(frame[6:], []byte{2, behind[0], behind[1], byte(p.VNID >> 16), byte(p.VNID >> 8), byte(p.VNID)})
	} else {
		for e, ifindex := range w.device {
			if ifindex == p.Ifindex {
				port = w.ports[e]
			}
		}
	}
	params := []string{w.bridge.Name, fmt.Sprintf("in_port=%d", port), hex.EncodeToString(frame)}
	if known != "" { // with a frame the switch forgets this
		params = append([]string{w.bridge.Name, fmt.Sprintf("in_port=%d,%s", port, flowOf(frame, known))}, next...)
	}
	must(t, w.ask.Encode(map[string]any{"id": 1, "method": "ofproto/trace", "params": params}))
	var answer struct{ Result, Error any }
	must(t, w.trace.Decode(&answer))
	text, ok := answer.Result.(string)
	if !ok {
		t.Fatalf("trace: %v", answer.Error)
	}
	if toGroups.MatchString(text) {
		return w.copies(t, in, text), text, nil
	}
	var out uint64
	copies := 0
	for _, line := range strings.Split(text, "\n") {
		if m := outputs.FindStringSubmatch(line); m != nil {
			out, _ = strconv.ParseUint(m[1]+m[2], 10, 32)
			copies++
		}
	}
	if copies > 1 { // to several: no Verdict
		return Verdict{}, text, nil
	}
	all := finalMACs.FindAllStringSubmatch(text, -1)
	if out == 0 || len(all) == 0 || unexpected.MatchString(text) {
		return Verdict{}, text, nil
	}
	m := all[len(all)-1] // of a packet that goes on behind conntrack the headers are those in the end
	src, _ := net.ParseMAC(m[1])
	dst, _ := net.ParseMAC(m[2])
	both := slices.Concat(dst, src)
	if out == uint64(w.tunnel) {
		for _, v := range in.VTEPs {
			if v.Index == binary.BigEndian.Uint32(dst[2:]) {
				return Verdict{VTEP: v.Addr, VNID: uint32(src[3])<<16 | uint32(src[4])<<8 | uint32(src[5])}, text, both
			}
		}
		return Verdict{}, text, nil
	}
	if out == uint64(w.gateway) {
		return Verdict{Gateway: true, MAC: [6]byte(dst)}, text, both
	}
	for number, e := range w.endOf {
		if out == uint64(number) {
			return Verdict{Ifindex: w.device[e], MAC: [6]byte(dst)}, text, both
		}
	}
	return Verdict{}, text, nil
}

// copies are those of the switch's, by its trace.
func (w *judges) copies(t *rapid.T, in pipeline.Input, text string) Verdict {
	var list []Copy
	var src, dst net.HardwareAddr
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if m := setMAC.FindStringSubmatch(line); m != nil {
			mac, err := net.ParseMAC(m[1])
			must(t, err)
			if m[2] == "src" {
				src = mac
			} else {
				dst = mac
			}
		}
		if m := setVNID.FindStringSubmatch(line); m != nil {
			vnid, err := strconv.ParseUint(m[1], 0, 24)
			must(t, err)
			src = net.HardwareAddr{2, 0, 0, byte(vnid >> 16), byte(vnid >> 8), byte(vnid)}
		}
		m := outputs.FindStringSubmatch(line)
		if m == nil || strings.Contains(lines[i+1], "skipping output") {
			continue
		}
		out, err := strconv.ParseUint(m[1]+m[2], 10, 32)
		must(t, err)
		c := Copy{Ifindex: w.device[w.endOf[uint32(out)]], MAC: [6]byte(dst)}
		if out == uint64(w.tunnel) {
			c = Copy{VNID: uint32(src[3])<<16 | uint32(src[4])<<8 | uint32(src[5])}
			for _, v := range in.VTEPs {
				if v.Index == binary.BigEndian.Uint32(dst[2:]) {
					c.VTEP = v.Addr
				}
			}
		} else if !bytes.Equal(src, pipeline.RouterMAC) {
			t.Fatalf("a copy has source MAC %s\n%s", src, text)
		}
		list = append(list, c)
	}
	return Verdict{Copies: Copies(list)}
}

// frame builds the packet, sound or with something odd about it.
func (w *judges) frame(t *rapid.T, p *Packet) (frame []byte, sound bool) {
	frame = append(frame, pipeline.RouterMAC...)
	frame = append(frame, p.MAC[:]...)
	payload := transport(t, p.Src.Is4(), p.Protocol)
	if p.Protocol = payload.protocol; p.Protocol == 6 || p.Protocol == 17 {
		p.Port = binary.BigEndian.Uint16(payload.bytes[2:])
	}
	tos := byte(rapid.IntRange(0, 3).Draw(t, "ECN"))
	if p.Src.Is4() {
		frame = append(frame, 8, 0)
		ip := make([]byte, 20)
		ip[0], ip[1], ip[8], ip[9] = 0x45, tos, 64, payload.protocol
		binary.BigEndian.PutUint16(ip[2:], uint16(20+len(payload.bytes)))
		src, dst := p.Src.As4(), p.Dst.As4()
		copy(ip[12:], src[:])
		copy(ip[16:], dst[:])
		frame = append(append(frame, ip...), payload.bytes...)
	} else {
		frame = append(frame, 0x86, 0xdd)
		ip := make([]byte, 40)
		ip[0], ip[1], ip[6], ip[7] = 0x60, tos<<4, payload.protocol, 64
		binary.BigEndian.PutUint16(ip[4:], uint16(len(payload.bytes)))
		src, dst := p.Src.As16(), p.Dst.As16()
		copy(ip[8:], src[:])
		copy(ip[24:], dst[:])
		frame = append(append(frame, ip...), payload.bytes...)
	}
	switch rapid.SampledFrom([]string{"sound", "sound", "sound", "sound", "cut", "bits", "vlan", "arp", "options", "padded", "fragment", "broadcast", "version"}).Draw(t, "oddity") {
	case "sound":
		return frame, payload.plain
	case "cut":
		return frame[:rapid.IntRange(15, len(frame)).Draw(t, "length")], false
	case "bits": // not in the addresses, which would make it another packet
		for range rapid.IntRange(1, 3).Draw(t, "how many") {
			i := rapid.IntRange(12, len(frame)-1).Draw(t, "byte")
			frame[i] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		}
		return frame, false
	case "vlan":
		tag := []byte{0x81, 0, 0, byte(rapid.IntRange(0, 255).Draw(t, "VLAN"))}
		return append(append(bytes.Clone(frame[:12]), tag...), frame[12:]...), false
	case "arp":
		frame[12], frame[13] = 8, 6
		return frame, false
	case "options":
		if p.Src.Is4() {
			frame[14] = 0x40 | byte(rapid.IntRange(0, 15).Draw(t, "IHL"))
		}
		return frame, false
	case "version":
		frame[14] = frame[14]&0xf | byte(rapid.IntRange(0, 15).Draw(t, "version"))<<4
		return frame, false
	case "padded":
		return append(frame, make([]byte, rapid.SampledFrom([]int{1, 30, 100}).Draw(t, "padding"))...), payload.plain
	case "fragment":
		if p.Src.Is4() {
			binary.BigEndian.PutUint16(frame[20:], uint16(rapid.IntRange(0, 65535).Draw(t, "fragment")))
		}
		return frame, false
	default:
		for i := range 6 {
			frame[i] = 0xff
		}
		return frame, payload.plain
	}
}

type segment struct {
	protocol byte
	bytes    []byte
	plain    bool // IPv6: nothing that the switch would answer or have to look into
}

func transport(t *rapid.T, four bool, protocol byte) segment {
	s := segment{plain: true, bytes: make([]byte, 40)}
	if rapid.Bool().Draw(t, "large") {
		s.bytes = make([]byte, rapid.SampledFrom([]int{580, 1260, 1280, 1360, 1380}).Draw(t, "about")+rapid.IntRange(-2, 60).Draw(t, "more"))
		for i := range s.bytes[8:] {
			s.bytes[8+i] = byte(i * i)
		}
	}
	kinds := []string{"tcp", "udp", "echo", "error"}
	if four {
		kinds = append(kinds, "tunnel")
	}
	if !four {
		kinds = append(kinds, "neighbour", "extension", "fragment")
	}
	if protocol == 17 {
		kinds = append(kinds, "udp", "udp", "udp", "udp", "udp", "udp")
	}
	switch rapid.SampledFrom(kinds).Draw(t, "transport") {
	case "tcp":
		s.protocol, s.bytes[12] = 6, 0x50
		binary.BigEndian.PutUint16(s.bytes[2:], rapid.SampledFrom([]uint16{80, vxlanPort, gossipPort}).Draw(t, "port"))
	case "tunnel":
		s.protocol = rapid.SampledFrom([]byte{4, 41, 47, 137}).Draw(t, "protocol")
	case "udp":
		s.protocol = 17
		port := rapid.SampledFrom([]uint16{53, vxlanPort, gossipPort}).Draw(t, "port")
		binary.BigEndian.PutUint16(s.bytes[2:], port)
		binary.BigEndian.PutUint16(s.bytes[4:], uint16(len(s.bytes)))
	case "echo":
		s.protocol, s.bytes[0] = 1, 8
		if !four {
			s.protocol, s.bytes[0] = 58, 128
		}
	case "error":
		s.protocol, s.bytes[0] = 1, rapid.SampledFrom([]byte{3, 4, 5, 11, 12}).Draw(t, "type")
		if !four {
			s.protocol, s.bytes[0] = 58, byte(rapid.IntRange(1, 4).Draw(t, "type"))
		}
	case "neighbour":
		s.protocol, s.bytes[0], s.plain = 58, byte(rapid.IntRange(133, 137).Draw(t, "type")), false
	case "extension":
		s.protocol, s.bytes[0], s.plain = rapid.SampledFrom([]byte{0, 43, 60, 51}).Draw(t, "header"), 6, false
	case "fragment":
		s.protocol, s.bytes[0], s.plain = 44, 6, false
	}
	return s
}
