package fastpath

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// The structs of bpf/fastpath.c.
type (
	address [16]byte // IPv4 mapped into IPv6

	localValue struct {
		Ifindex, VNID  uint32
		MAC            [6]byte
		Outside        uint16
		Slot, VNIDSlot uint32
		Realm          pipeline.Realm
		Guarded        uint32
		Router         address // zero: none
	}

	rangeKey struct {
		Bits uint32
		Addr address
	}

	rangeValue struct {
		VTEP       address
		VNID, Slot uint32
		To, From   uint8
		_          uint16
		Realm      pipeline.Realm
		VNIDSlot   uint32 // 0: that of the destination's VNID, which is the same
	}

	configValue struct {
		On, Tunnel, TunnelMTU uint32
		Source                address // zero: as the kernel chooses
		GatewayMAC            [6]byte
		VXLANPort, GossipPort [2]byte // network order
		Unsummed              uint16  // not 0: see encap.Kind.Summed
		Gateway               uint32
		VTEP                  [4]byte
		Port                  [2]byte // network order
		LeastPort, EndPort    uint16
		Bare                  uint16 // not 0: packets go without headers to who takes them so
		Underlay              uint32
		Judged                uint32
	}
)

// Bits of configValue.On, as in bpf/fastpath.c.
const (
	carriesOn     = 1
	carriesSecure = 2 // of what goes to other hosts only what goes in WireGuard without VXLAN (Secure)
)

// addressOf is a as the programs have it; zero if there is none.
func addressOf(a netip.Addr) address {
	if !a.IsValid() {
		return address{}
	}
	return a.As16()
}

func (a address) addr() netip.Addr {
	if a == (address{}) {
		return netip.Addr{}
	}
	return netip.AddrFrom16(a).Unmap()
}

// tables are the programs' maps and what they hold. Methods that fail leave held as it
// may not be: read it again. All writes pass by put and remove, which call before first,
// unless it is nil: an error of it keeps the map as it is.
type tables struct {
	config, locals, ranges, counters *ebpf.Map
	groups                           *ebpf.Map
	settled, generation, rules       *ebpf.Map
	own, granted, seats, swept       *ebpf.Map
	before                           func() error

	held  Contents
	slots slots
	known known           // of settled
	begun map[uint32]bool // rules that count from nothing when the next flows come

	rested uint32 // connections that had begun without the switch when it was last waited for their answers

	left []netip.Addr // of which connections may be known still

	refused, refusals uint32 // connections that found no seat, since the last but one sweep, and until the last one
}

// read fills held and slots from the maps.
func (t *tables) read() error {
	t.held, t.slots = Contents{Locals: map[netip.Addr]Local{}, Ranges: map[netip.Prefix]Range{}}, newSlots()
	var a address
	var l localValue
	it := t.locals.Iterate()
	for it.Next(&a, &l) {
		addr := netip.AddrFrom16(a).Unmap()
		t.held.Locals[addr] = Local{l.Ifindex, l.MAC, l.VNID, l.Outside != 0, l.Router.addr(), l.Realm, l.Guarded != 0}
		t.slots.adopt(addr, l.Slot)
		if l.Ifindex != 0 && l.VNID != 0 {
			t.slots.adopt(l.VNID, l.VNIDSlot)
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("read the fast path's addresses: %w", err)
	}
	var k rangeKey
	var r rangeValue
	it = t.ranges.Iterate()
	for it.Next(&k, &r) {
		p := k.prefix()
		held := Range{r.VTEP.addr(), r.VNID, r.Realm, To(r.To), r.From != 0}
		if r.VNIDSlot != 0 {
			t.slots.adopt(r.VNID, r.VNIDSlot)
		}
		t.held.Ranges[p] = held
		t.slots.adopt(slotOf(p, held), r.Slot)
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("read the fast path's ranges: %w", err)
	}
	return t.readGroups()
}

// write makes the maps hold want, entry by entry: what is set first, what is deleted
// last. That is right at every moment if want is Between what is held and what is to
// come, or if what is held is Between something and want.
func (t *tables) write(want Contents) error {
	if t.held.Locals == nil {
		if err := t.read(); err != nil {
			return err
		}
	}
	if err := t.setLocals(want.Locals); err != nil {
		return err
	}
	for p, r := range want.Ranges {
		if old, there := t.held.Ranges[p]; !there || old != r {
			if err := t.setRange(p, r); err != nil {
				return err
			}
		}
	}
	if err := t.writeGroups(want.Groups); err != nil {
		return err
	}
	if err := t.removeLocals(want.Locals); err != nil {
		return err
	}
	for p := range t.held.Ranges {
		if _, wanted := want.Ranges[p]; !wanted {
			if err := t.remove(t.ranges, keyOf(p)); err != nil {
				return fmt.Errorf("take range %s out of the fast path: %w", p, err)
			}
			delete(t.held.Ranges, p)
			t.slots.release(p)
			t.slots.release(gatewayRange(p))
		}
	}
	t.forgetVNIDs()
	return nil
}

// writeLocals is write of what is held, but for the addresses of this host, and for groups.
func (t *tables) writeLocals(want Contents) error {
	if err := t.setLocals(want.Locals); err != nil {
		return err
	}
	if err := t.writeGroups(want.Groups); err != nil {
		return err
	}
	if err := t.removeLocals(want.Locals); err != nil {
		return err
	}
	t.forgetVNIDs()
	return nil
}

func (t *tables) setLocals(want map[netip.Addr]Local) error {
	for a, l := range want {
		if old, there := t.held.Locals[a]; !there || old != l {
			if err := t.setLocal(a, l); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *tables) removeLocals(want map[netip.Addr]Local) error {
	for a := range t.held.Locals {
		if _, wanted := want[a]; !wanted {
			if err := t.remove(t.locals, address(a.As16())); err != nil {
				return fmt.Errorf("take address %s out of the fast path: %w", a, err)
			}
			delete(t.held.Locals, a)
			t.slots.release(a)
		}
	}
	return nil
}

// forgetVNIDs releases the slots of VNIDs that no address has any more, and no range that counts them.
func (t *tables) forgetVNIDs() {
	used := map[uint32]bool{}
	for _, l := range t.held.Locals {
		used[l.VNID] = true
	}
	unused := func() (list []uint32) {
		for k := range t.slots.of {
			if v, isVNID := k.(uint32); isVNID && !used[v] {
				list = append(list, v)
			}
		}
		return list
	}
	if len(unused()) == 0 {
		return // as nearly always: the ranges are many
	}
	for _, r := range t.held.Ranges {
		if r.counts() {
			used[r.VNID] = true
		}
	}
	for _, v := range unused() {
		t.slots.release(v)
	}
}

// counts reports whether what comes from a range may be for another VNID, so that it is counted by the range's.
func (r Range) counts() bool { return r.VTEP.IsValid() && r.Realm != 0 && r.VNID != 0 }

func (t *tables) setLocal(a netip.Addr, l Local) error {
	value := localValue{Ifindex: l.Ifindex, VNID: l.VNID, MAC: l.MAC, Realm: l.Realm, Router: addressOf(l.Router)}
	if l.Outside {
		value.Outside = 1
	}
	if l.Guarded {
		value.Guarded = 1
	}
	var err error
	if value.Slot, err = t.slot(a); err != nil {
		return err
	}
	if l.Ifindex != 0 && l.VNID != 0 {
		if value.VNIDSlot, err = t.slot(l.VNID); err != nil {
			return err
		}
	}
	if err := t.put(t.locals, address(a.As16()), value); err != nil {
		return fmt.Errorf("put address %s into the fast path: %w", a, err)
	}
	t.held.Locals[a] = l
	return nil
}

func (t *tables) setRange(p netip.Prefix, r Range) error {
	value := rangeValue{VTEP: addressOf(r.VTEP), VNID: r.VNID, To: uint8(r.To), Realm: r.Realm}
	if r.From {
		value.From = 1
	}
	var err error
	if value.Slot, err = t.slot(slotOf(p, r)); err != nil {
		return err
	}
	if r.counts() {
		if value.VNIDSlot, err = t.slot(r.VNID); err != nil {
			return err
		}
	}
	if err := t.put(t.ranges, keyOf(p), value); err != nil {
		return fmt.Errorf("put range %s into the fast path: %w", p, err)
	}
	t.held.Ranges[p] = r
	if r.byGateway() {
		t.slots.release(p)
	} else {
		t.slots.release(gatewayRange(p))
	}
	return nil
}

func (t *tables) put(m *ebpf.Map, key, value any) error {
	if t.before != nil {
		if err := t.before(); err != nil {
			return err
		}
	}
	return put(m, key, value)
}

// put has a map hold an entry. Maps whose entries are not made beforehand take them from a short list of the processor's, since Linux 6.1,
// which the kernel fills again a moment later: after a burst of entries it says that there is no memory, and a moment later there is.
func put(m *ebpf.Map, key, value any) error {
	return persist(func() error { return m.Put(key, value) })
}

func persist(put func() error) (err error) {
	for wait := time.Millisecond; ; wait *= 2 {
		if err = put(); !errors.Is(err, unix.ENOMEM) || wait > longest {
			return err
		}
		time.Sleep(wait)
	}
}

// longest is how long persist waits at last; it is twice that in all.
const longest = 64 * time.Millisecond

func (t *tables) remove(m *ebpf.Map, key any) error {
	_, err := t.removed(m, key)
	return err
}

// removed is remove, and reports whether it was there.
func (t *tables) removed(m *ebpf.Map, key any) (did bool, err error) {
	if t.before != nil {
		if err := t.before(); err != nil {
			return false, err
		}
	}
	err = m.Delete(key)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return false, nil
	}
	return err == nil, err
}

// keyOf is the key of a range: in the trie an IPv4 address is one of IPv6.
func keyOf(p netip.Prefix) rangeKey {
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	return rangeKey{uint32(bits), p.Addr().As16()}
}

func (k rangeKey) prefix() netip.Prefix {
	a := netip.AddrFrom16(k.Addr)
	if a.Is4In6() && k.Bits >= 96 {
		return netip.PrefixFrom(a.Unmap(), int(k.Bits)-96)
	}
	return netip.PrefixFrom(a, int(k.Bits))
}

// counter is struct counter of bpf/fastpath.c. Packets that the kernel left in one piece, to be
// segmented later, count once, as in the switch.
type counter struct{ Sent, SentBytes, Received, ReceivedBytes uint64 }

func (c counter) sent() pipeline.Count { return pipeline.Count{Packets: c.Sent, Bytes: c.SentBytes} }

func (c counter) received() pipeline.Count {
	return pipeline.Count{Packets: c.Received, Bytes: c.ReceivedBytes}
}

// Slots of bpf/fastpath.c that belong to no entry.
const (
	slotFromZero = 0
	slotToZero   = 1
	slotSettled  = 2
	slotOthers   = slotSettled + 10
	firstSlot    = slotOthers + 10
	maxSlots     = 32768
)

// tally is what the programs carried, for each entry since it has been there.
func (t *tables) tally() (pipeline.Tally, error) {
	out := pipeline.Tally{
		From: map[netip.Addr]pipeline.Count{}, To: map[netip.Addr]pipeline.Count{},
		Into: map[netip.Prefix]pipeline.Count{}, OutOf: map[netip.Prefix]pipeline.Count{}, VNIDs: map[uint32]pipeline.Count{},
		ToGateway: map[netip.Prefix]pipeline.Count{}, FromGateway: map[netip.Prefix]pipeline.Count{},
		ToGroups: map[pipeline.GroupKey]pipeline.Count{}, InGroups: map[pipeline.GroupKey]pipeline.Count{},
	}
	privileged := map[uint32]*pipeline.Count{slotFromZero: &out.FromVNID0, slotToZero: &out.OnlyToOf0}
	for slot, sum := range privileged {
		n, err := t.counter(slot)
		if err != nil {
			return out, err
		}
		*sum = n.sent()
	}
	for key, slot := range t.slots.of {
		n, err := t.counter(slot)
		if err != nil {
			return out, err
		}
		switch k := key.(type) {
		case netip.Addr:
			out.From[k], out.To[k] = n.sent(), n.received()
		case netip.Prefix:
			out.Into[k], out.OutOf[k] = n.sent(), n.received()
		case gatewayRange:
			out.ToGateway[netip.Prefix(k)], out.FromGateway[netip.Prefix(k)] = n.sent(), n.received()
		case uint32:
			out.VNIDs[k] = n.sent()
		case pipeline.GroupKey:
			out.ToGroups[k], out.InGroups[k] = n.sent(), n.received()
		}
	}
	return out, t.tallySettled(&out)
}

func (t *tables) counter(slot uint32) (sum counter, err error) {
	var cpus []counter
	if err := t.counters.Lookup(slot, &cpus); err != nil {
		return sum, fmt.Errorf("read counter %d of the fast path: %w", slot, err)
	}
	for _, c := range cpus {
		sum.Sent += c.Sent
		sum.SentBytes += c.SentBytes
		sum.Received += c.Received
		sum.ReceivedBytes += c.ReceivedBytes
	}
	return sum, nil
}

// slot is the counter of an address, a range or a VNID, at zero if it is new.
func (t *tables) slot(key any) (uint32, error) {
	slot, isNew, err := t.slots.take(key)
	if err != nil || !isNew {
		return slot, err
	}
	cpus, err := ebpf.PossibleCPU()
	if err == nil {
		err = t.put(t.counters, slot, make([]counter, cpus))
	}
	if err != nil {
		return slot, fmt.Errorf("reset counter %d of the fast path: %w", slot, err)
	}
	return slot, nil
}

// gatewayRange is the key of the counter of a range whose packets are the gateway's.
type gatewayRange netip.Prefix

func slotOf(p netip.Prefix, r Range) any {
	if r.byGateway() {
		return gatewayRange(p)
	}
	return p
}

// slots says which counter is whose: that of a netip.Addr, a netip.Prefix, a gatewayRange, a VNID
// (uint32) or a pipeline.GroupKey.
type slots struct {
	of   map[any]uint32
	free []uint32 // that were released
	next uint32   // never used from here on
}

func newSlots() slots { return slots{of: map[any]uint32{}, next: firstSlot} }

func (s *slots) take(key any) (slot uint32, isNew bool, err error) {
	if slot, ok := s.of[key]; ok {
		return slot, false, nil
	}
	if n := len(s.free); n > 0 {
		slot, s.free = s.free[n-1], s.free[:n-1]
	} else {
		if s.next == maxSlots {
			return 0, false, fmt.Errorf("the fast path counts %d addresses, ranges and VNIDs, and there are more", maxSlots)
		}
		slot = s.next
		s.next++
	}
	s.of[key] = slot
	return slot, true, nil
}

func (s *slots) release(key any) {
	if slot, ok := s.of[key]; ok {
		s.free = append(s.free, slot)
		delete(s.of, key)
	}
}

// adopt notes a slot that was found in a map.
func (s *slots) adopt(key any, slot uint32) {
	if _, known := s.of[key]; known || slot < firstSlot || slot >= maxSlots {
		return
	}
	for ; s.next < slot; s.next++ {
		s.free = append(s.free, s.next)
	}
	if i := slices.Index(s.free, slot); i >= 0 {
		s.free = slices.Delete(s.free, i, i+1)
	}
	s.next = max(s.next, slot+1)
	s.of[key] = slot
}

// clone is for what must not change with held.
func (c Contents) clone() Contents {
	return Contents{maps.Clone(c.Locals), maps.Clone(c.Ranges), maps.Clone(c.Groups), c.Gate}
}
