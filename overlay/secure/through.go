package secure

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/wireguard"
	"github.com/grapevine-net/grapevine/overlay/fastpath"
)

// Through is what the keeper needs to have packets go by the device without VXLAN: to hosts that take them so, between containers that the fast
// path carries. A peer may have the addresses of its ranges then, as well as its own inside, and the programs know the same ranges.
type Through struct {
	Path   fastpath.Inside
	Port   uint16                          // of VXLAN, for what the switch is to judge
	Ranges func(*cluster.Snapshot) []Range // whose addresses are whose, the same on all hosts
	Tell   func(cluster.Body) error        // writes this host's record
	// CaughtUp is closed when this host knows what it knew when it was there last, or has waited for that; nil: it does.
	CaughtUp <-chan struct{}
}

// behind reports whether this host may know fewer hosts than the device that its former agent has left: what it had just heard is not on the disk.
func (t *through) behind() bool {
	if t == nil || t.CaughtUp == nil {
		return false
	}
	select {
	case <-t.CaughtUp:
		return false
	default:
		return true
	}
}

// Range is a range of addresses of a network that is encrypted, and whose it is.
type Range struct {
	Prefix netip.Prefix
	VNID   uint32
	Owner  cluster.NodeID
}

// maxRanges is how many the programs have room for.
const maxRanges = 32768

// apart is how long it is at least between two records of what is taken; until then packets have VXLAN.
const apart = 2 * time.Second

// through is what goes so, and what was said of it.
type through struct {
	Through
	snap   *cluster.Snapshot // of ranges
	ranges map[cluster.NodeID][]Range
	many   int
	ways   fastpath.InsideWays
	takes  []uint64  // what this host's record is to say
	told   time.Time // when it was written last
	whole  bool      // the device's process takes VXLAN whole, so that what this host sends is quicker in it
	why    error     // why nothing goes so
}

// GoThrough has packets go so. It comes before Run.
func (k *Keeper) GoThrough(t Through) { k.through = &through{Through: t} }

// stamp is a number of what a host has to know of another one to take its packets without VXLAN: its ranges. And of where the host that takes
// them is in changing its keys: what it said before is void when it has gone on.
func stamp(of cluster.NodeID, turn uint64, ranges []Range) uint64 {
	h := sha256.New()
	fmt.Fprintln(h, of, turn)
	for _, r := range ranges {
		fmt.Fprintln(h, r.Prefix, r.VNID)
	}
	return binary.BigEndian.Uint64(h.Sum(nil))
}

// byOwner are ranges of each host, in order.
func byOwner(list []Range) map[cluster.NodeID][]Range {
	out := map[cluster.NodeID][]Range{}
	for _, r := range list {
		out[r.Owner] = append(out[r.Owner], r)
	}
	for _, own := range out {
		slices.SortFunc(own, func(a, b Range) int {
			return cmp.Or(a.Prefix.Addr().Compare(b.Prefix.Addr()), cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()))
		})
	}
	return out
}

// plan gives peers their ranges, and says what goes to whom: between the hosts of a snapshot of which this one is self, at a turn of its keys. It is pure.
func plan(snap *cluster.Snapshot, self cluster.NodeID, turn uint64, ranges map[cluster.NodeID][]Range, peers []wireguard.Peer) (ways fastpath.InsideWays, takes []uint64) {
	at := map[netip.Addr]int{}
	for i := range peers {
		at[peers[i].Inside.Addr()] = i
		peers[i].Ranges = []netip.Prefix{}
	}
	for owner, list := range ranges {
		vtep := cluster.SecureVTEP(owner)
		i, is := at[vtep]
		if owner != self && !is {
			continue
		}
		for _, r := range list {
			if owner != self {
				peers[i].Ranges = append(peers[i].Ranges, r.Prefix)
			}
			ways.Ranges = append(ways.Ranges, fastpath.InsideRange{Prefix: r.Prefix, VTEP: vtep, VNID: r.VNID, Own: owner == self})
		}
	}
	for n := range cluster.All[cluster.Node](snap) {
		vtep := cluster.SecureVTEP(n.ID)
		if _, is := at[vtep]; !is || n.ID == self {
			continue
		}
		if len(ranges[n.ID]) > 0 && len(takes) < cluster.MaxThrough {
			takes = append(takes, stamp(n.ID, turn, ranges[n.ID]))
		}
		said, _ := cluster.Get[cluster.Through](snap, string(n.ID))
		if len(said.Takes) > 0 && len(ranges[self]) > 0 && slices.Contains(said.Takes, stamp(self, n.Turn.At, ranges[self])) {
			ways.Hosts = append(ways.Hosts, vtep)
		}
	}
	slices.Sort(takes)
	return ways, takes
}

// lead says what is to go by the device without VXLAN, which is there, and gives its peers their ranges. A process that takes VXLAN whole
// has nothing sent so: it takes plain packets so, too, and has more to do for each. ensuring is held.
func (k *Keeper) lead(snap *cluster.Snapshot, peers []wireguard.Peer, whole bool) {
	t := k.through
	t.whole = whole
	t.why = t.Path.Begin(k.device.Name)
	seen := t.why == nil
	if !seen {
		seen, _ = t.Path.Sees(k.device.Name)
	}
	if t.snap != snap {
		list := t.Ranges(snap)
		t.snap, t.ranges, t.many = snap, byOwner(list), len(list)
	}
	ranges := t.ranges
	switch {
	case t.many > maxRanges:
		t.why = fmt.Errorf("the cluster has more than %d ranges of encrypted networks", maxRanges)
		ranges = nil
	case !seen: // what came so would be nobody's
		ranges = nil
	case k.now.two && (k.now.step() == renewed || k.now.step() == steady): // all others have gone on from the device before, and take nothing so
		ranges = nil
	}
	if k.now.two {
		t.why = cmp.Or(t.why, errors.New("keys are being changed"))
	}
	t.ways, t.takes = plan(snap, k.cfg.Self, k.now.turn, ranges, peers)
	t.ways.Device, t.ways.VTEP, t.ways.Port, t.ways.On = k.device.Name, k.device.Addr, t.Port, t.why == nil
	if t.why != nil {
		t.ways.Hosts, t.takes = nil, nil
	}
	if whole {
		t.ways.Hosts = nil
	}
}

// set is Device.Set, while the programs take and send none of what the device is about to have otherwise. Where that cannot be had of them
// all goes in VXLAN, and the device is as it is to be.
func (t *through) set(d wireguard.Device, have, want wireguard.State, said map[wireguard.Key]netip.AddrPort, set func(wireguard.Change) error) error {
	change := wireguard.Diff(have, want, said)
	if err := t.Path.Narrow(d.Name, change.Touches(have), t.ways.Ranges); err != nil {
		if end := t.Path.End(d.Name); end != nil {
			return errors.Join(err, end)
		}
		for i := range want.Peers {
			want.Peers[i].Ranges = []netip.Prefix{}
		}
		t.why, t.takes, t.ways = err, nil, fastpath.InsideWays{}
		return set(wireguard.Diff(have, want, said))
	}
	if err := set(change); err != nil {
		return err
	}
	if err := t.Path.Widen(t.ways); err != nil {
		t.why, t.takes, t.ways.Hosts = err, nil, nil
	}
	return nil
}

// say has this host's record say what it takes. ensuring is held.
func (t *through) say(snap *cluster.Snapshot, self cluster.NodeID) error {
	if t == nil || t.Tell == nil || t.behind() {
		return nil
	}
	said, there := cluster.Get[cluster.Through](snap, string(self))
	if slices.Equal(said.Takes, t.takes) && (there || len(t.takes) == 0) {
		return nil
	}
	if len(t.takes) > 0 && time.Since(t.told) < apart {
		return nil // in the next pass
	}
	t.told = time.Now()
	return t.Tell(cluster.Through{Host: self, Takes: t.takes})
}

// line is what status says of it.
func (t *through) line(peers int) string {
	switch {
	case t == nil:
		return ""
	case t.why != nil:
		return "; all of it in VXLAN: " + t.why.Error()
	}
	if t.whole {
		return "; what it sends in VXLAN, which its process takes whole" + t.counted()
	}
	return fmt.Sprintf("; without VXLAN to %d of %d", len(t.ways.Hosts), peers) + t.counted()
}

// counted is what of it came to nothing.
func (t *through) counted() (text string) {
	if c, err := t.Path.Counts(); err == nil {
		if c.Lost.Packets > 0 {
			text += fmt.Sprintf("; %d lost on their way to the switch", c.Lost.Packets)
		}
		if c.Stray.Packets > 0 {
			text += fmt.Sprintf("; %d dropped whose addresses are nobody's", c.Stray.Packets)
		}
	}
	return text
}
