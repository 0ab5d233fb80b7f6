package fastpath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
	"github.com/grapevine-net/grapevine/overlay/walk"
)

// InsideRange says whose addresses these are that WireGuard takes from that host, and sends to it, and of which network.
type InsideRange struct {
	Prefix netip.Prefix
	VTEP   netip.Addr // inside WireGuard
	VNID   uint32
	Own    bool // this host's
}

// InsideWays is what goes in WireGuard without VXLAN.
type InsideWays struct {
	Device string
	VTEP   netip.Addr // this host's
	Port   uint16     // of VXLAN
	Ranges []InsideRange
	Hosts  []netip.Addr // those that take all that this host sends so, by their VTEPs, until BareLease is over
	On     bool         // something is to be sent so; else what comes so is the switch's
}

type (
	// insideValue is struct inside of the programs.
	insideValue struct {
		VTEP      address
		VNID, Own uint32
	}

	insideSelf struct {
		VTEP address
		Port [2]byte // network order
		On   uint16
		_    uint32
	}
)

const insideProgram = bpfProgGvInside

// insides are the programs' maps of what goes in WireGuard without VXLAN, and what they hold.
type insides struct {
	ranges, self  *ebpf.Map
	hosts, device *ebpf.Map   // nil: nothing is sent
	own           []*ebpf.Map // to be closed: of a program whose other maps are not held
	held          map[rangeKey]insideValue
	taking        map[address]bool
}

// Inside is the part of a path that sends and takes packets in WireGuard without VXLAN. What it holds of ranges is changed together with the
// peers of the device: Narrow, then the device, then Widen.
type Inside struct{ Path *Path }

var errNotYet = errors.New("the fast path does not carry yet")

// Begin has the device's packets seen.
func (i Inside) Begin(device string) error {
	p := i.Path
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.on || p.objs == nil:
		return errors.New("the fast path is off")
	case p.trouble != nil:
		return p.trouble
	case p.tables.held.Locals == nil || p.config.On == 0:
		return errNotYet
	}
	id, err := link.AttachedTC(device, link.Ingress, insideProgram)
	if err != nil || id != 0 && i.isOurs(id) {
		return err
	}
	return link.AttachTC(device, link.Ingress, link.First, p.objs.GvInside, insideProgram)
}

// Sees reports whether the device's packets are seen, maybe by a program of a former agent.
func (i Inside) Sees(device string) (bool, error) {
	id, err := link.AttachedTC(device, link.Ingress, insideProgram)
	return id != 0, err
}

// isOurs reports whether a program is that of this agent.
func (i Inside) isOurs(id ebpf.ProgramID) bool {
	info, err := i.Path.objs.GvInside.Info()
	if err != nil {
		return false
	}
	own, known := info.ID()
	return known && own == id
}

// open finds the maps of the program at the device: this agent's, or those of one that was there before. There may be none: then
// nothing comes or goes so.
func (i Inside) open(device string) (err error) {
	p := i.Path
	if p.inside.ranges != nil {
		return nil
	}
	n := insides{taking: map[address]bool{}}
	if o := p.objs; o != nil {
		n.ranges, n.hosts, n.self, n.device = o.GvInRanges, o.GvInHosts, o.GvInSelf, o.GvInDevice
	} else {
		found, err := i.found(device, nil)
		if err != nil || len(found) == 0 {
			return err
		}
		for _, m := range found {
			n.own = append(n.own, m)
		}
		n.ranges, n.self = found[bpfMapGvInRanges], found[bpfMapGvInSelf]
		if n.ranges == nil || n.self == nil { // of another version: it takes nothing any more
			n.close()
			return link.DetachTC(device, link.Ingress, insideProgram)
		}
	}
	n.held = map[rangeKey]insideValue{}
	var k rangeKey
	var v insideValue
	it := n.ranges.Iterate()
	for it.Next(&k, &v) {
		n.held[k] = v
	}
	if err := it.Err(); err != nil {
		n.close()
		return fmt.Errorf("read what goes in WireGuard without VXLAN: %w", err)
	}
	p.inside = n
	return nil
}

func (n insides) close() {
	for _, m := range n.own {
		_ = m.Close()
	}
}

// found are the maps of the program at the device that fit.
func (i Inside) found(device string, spec *ebpf.CollectionSpec) (map[string]*ebpf.Map, error) {
	id, err := link.AttachedTC(device, link.Ingress, insideProgram)
	if err != nil || id == 0 {
		return nil, err
	}
	if spec == nil {
		if spec, err = loadBpf(); err != nil {
			return nil, fmt.Errorf("read the fast path's programs: %w", err)
		}
	}
	found := map[string]*ebpf.Map{}
	return found, link.AdoptMaps(id, spec, found)
}

// Narrow makes nobody's the ranges that the device is about to have otherwise, and all that are not the same in next.
func (i Inside) Narrow(device string, touched []netip.Prefix, next []InsideRange) error {
	p := i.Path
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := i.open(device); err != nil || p.inside.ranges == nil {
		return err
	}
	want := insideValues(next)
	shut := func(k rangeKey) error {
		if v, there := p.inside.held[k]; there && v == (insideValue{}) {
			return nil
		}
		if err := put(p.inside.ranges, k, insideValue{}); err != nil {
			return fmt.Errorf("change what goes in WireGuard without VXLAN: %w", err)
		}
		p.inside.held[k] = insideValue{}
		return nil
	}
	for k, v := range p.inside.held {
		if want[k] != v {
			if err := shut(k); err != nil {
				return err
			}
		}
	}
	for k := range want {
		if _, there := p.inside.held[k]; !there {
			if err := shut(k); err != nil {
				return err
			}
		}
	}
	for _, t := range touched {
		if k := keyOf(t); p.inside.held[k] != (insideValue{}) {
			if err := shut(k); err != nil {
				return err
			}
		}
	}
	return nil
}

func insideValues(list []InsideRange) map[rangeKey]insideValue {
	out := make(map[rangeKey]insideValue, len(list))
	for _, r := range list {
		v := insideValue{VTEP: addressOf(r.VTEP), VNID: r.VNID}
		if r.Own {
			v.Own = 1
		}
		out[keyOf(r.Prefix)] = v
	}
	return out
}

// Widen says what the device has now.
func (i Inside) Widen(w InsideWays) error {
	p := i.Path
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := i.open(w.Device); err != nil || p.inside.ranges == nil {
		return err
	}
	if err := i.widen(w); err != nil {
		return fmt.Errorf("change what goes in WireGuard without VXLAN: %w", err)
	}
	return nil
}

func (i Inside) widen(w InsideWays) error {
	n := &i.Path.inside
	self := insideSelf{VTEP: addressOf(w.VTEP), Port: [2]byte{byte(w.Port >> 8), byte(w.Port)}}
	on := w.On && n.device != nil
	if on {
		self.On = 1
	}
	if !on {
		if err := put(n.self, uint32(0), self); err != nil {
			return err
		}
	}
	want := insideValues(w.Ranges)
	for k, v := range want {
		if held, there := n.held[k]; there && held == v {
			continue
		}
		if err := put(n.ranges, k, v); err != nil {
			return err
		}
		n.held[k] = v
	}
	for k := range n.held {
		if _, stays := want[k]; stays {
			continue
		}
		if err := n.ranges.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		delete(n.held, k)
	}
	if n.hosts == nil { // a former agent's programs that sent are gone
		return nil
	}
	takes, until := map[address]bool{}, uint64(clock()+BareLease)
	for _, a := range w.Hosts {
		takes[addressOf(a)] = true
	}
	for a := range n.taking {
		if takes[a] {
			continue
		}
		if err := n.hosts.Delete(a); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		delete(n.taking, a)
	}
	for a := range takes {
		if err := put(n.hosts, a, until); err != nil {
			return err
		}
		n.taking[a] = true
	}
	if !on {
		return nil
	}
	l, err := link.Get(w.Device)
	if err != nil {
		return err
	}
	if err := put(n.device, uint32(0), uint32(l.Index)); err != nil {
		return err
	}
	return put(n.self, uint32(0), self)
}

// End takes and sends nothing so any more: what still comes so is dropped.
func (i Inside) End(device string) error {
	p := i.Path
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inside.close()
	p.inside = insides{}
	var err error
	if p.objs != nil {
		err = put(p.objs.GvInSelf, uint32(0), insideSelf{})
	} else {
		err = i.quiet()
	}
	return errors.Join(err, link.DetachTC(device, link.Ingress, insideProgram))
}

// quiet hands to the switch what the program at the device still takes, since nobody keeps what it knows of containers any more.
func (i Inside) quiet() error {
	p := i.Path
	found, err := i.found(link.WireGuard, nil)
	if err != nil || len(found) == 0 {
		return err
	}
	defer func() {
		for _, m := range found {
			_ = m.Close()
		}
	}()
	if p.objs != nil && p.config.On != 0 {
		off := p.config
		off.On = 0
		if err := p.configure(off); err != nil {
			return err
		}
	}
	return hush(found)
}

// hush has programs with these maps hand all to the switch.
func hush(found map[string]*ebpf.Map) error {
	var theirs configValue
	config := found[bpfMapGvConfig]
	if config == nil {
		return nil
	}
	if err := config.Lookup(uint32(0), &theirs); err != nil {
		return err
	}
	theirs.On = 0
	return put(config, uint32(0), theirs)
}

// adoptInto adds to maps those of the program of a former agent at the device, which stays until Begin puts another one in its place.
func (i Inside) adoptInto(spec *ebpf.CollectionSpec, old map[string]*ebpf.Map) error {
	found, err := i.found(link.WireGuard, spec)
	if err != nil {
		return err
	}
	if len(found) > 0 && old[bpfMapGvConfig] == nil { // the other programs' maps are not taken over
		if err := hush(found); err != nil {
			return err
		}
	}
	if len(found) > 0 && found[bpfMapGvInRanges] == nil { // of another version: what it holds nobody would change
		if err := link.DetachTC(link.WireGuard, link.Ingress, insideProgram); err != nil {
			return err
		}
	}
	for name, m := range found {
		switch name {
		case bpfMapGvInRanges, bpfMapGvInSelf, bpfMapGvInCounts:
			old[name] = m
		default:
			_ = m.Close()
		}
	}
	return nil
}

// sends reports whether a packet of a container that goes to a VTEP goes there in WireGuard without VXLAN.
func (i Inside) sends(packet walk.Packet, to walk.End) bool {
	o := i.Path.objs
	var self insideSelf
	var until uint64
	var own, there insideValue
	all := func(a netip.Addr) rangeKey { return keyOf(netip.PrefixFrom(a, a.BitLen())) }
	vtep := addressOf(to.VTEP)
	for _, err := range []error{o.GvInSelf.Lookup(uint32(0), &self), o.GvInHosts.Lookup(vtep, &until), o.GvInRanges.Lookup(all(packet.Src), &own), o.GvInRanges.Lookup(all(packet.Dst), &there)} {
		if err != nil {
			return false
		}
	}
	port := binary.BigEndian.Uint16(self.Port[:])
	return self.On != 0 && to.VNID != 0 && uint64(clock()) < until && own.Own != 0 && own.VNID == to.VNID && there.Own == 0 && there.VTEP == vtep && !(packet.Proto == walk.UDP && packet.To == port) &&
		slices.Contains([]uint8{walk.ICMP, walk.ICMPv6, walk.TCP, walk.UDP}, packet.Proto)
}

// InsideCounts is what went and came in WireGuard without VXLAN, in packets. Stray had an address that was nobody's, as for a moment
// when ranges change, and was dropped.
type InsideCounts struct{ Sent, Delivered, Switched, Lost, Stray pipeline.Count }

// Counts reads them; nothing while the path is off.
func (i Inside) Counts() (c InsideCounts, err error) {
	p := i.Path
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.objs == nil {
		return c, nil
	}
	for slot, n := range []*pipeline.Count{&c.Sent, &c.Delivered, &c.Switched, &c.Lost, &c.Stray} {
		var cpus []bareCounter
		if err := p.objs.GvInCounts.Lookup(uint32(slot), &cpus); err != nil {
			return c, fmt.Errorf("read counter %d of packets in WireGuard without VXLAN: %w", slot, err)
		}
		for _, one := range cpus {
			n.Packets += one.Packets
			n.Bytes += one.Bytes
		}
	}
	return c, nil
}
