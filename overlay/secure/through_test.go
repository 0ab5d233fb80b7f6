package secure

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/wireguard"
	"github.com/grapevine-net/grapevine/overlay/fastpath"
)

const (
	hostA = cluster.NodeID("00000000000000a1")
	hostB = cluster.NodeID("00000000000000b2")
	hostC = cluster.NodeID("00000000000000c3")
)

func peersOf(ids ...cluster.NodeID) (list []wireguard.Peer) {
	for i, id := range ids {
		list = append(list, wireguard.Peer{Key: wireguard.Key{byte(i + 1)}, Inside: netip.PrefixFrom(cluster.SecureVTEP(id), 128)})
	}
	return list
}

// A host sends without VXLAN to who has said that it takes all that this one has, and does so with the keys of now.
func TestPlan(t *testing.T) {
	p := netip.MustParsePrefix
	ranges := []Range{{p("10.8.1.0/24"), 7, hostA}, {p("10.8.2.0/24"), 7, hostB}, {p("10.8.2.128/25"), 7, hostA}, {p("10.8.3.0/24"), 7, hostC}}
	own := byOwner(ranges)
	says := func(turn uint64, takes ...uint64) *cluster.Snapshot {
		b, here := cluster.New(hostB), cluster.New(hostA)
		var recs []cluster.Record
		for _, body := range []cluster.Body{cluster.Node{ID: hostB, Name: "b", Turn: cluster.KeyTurn{At: turn}}, cluster.Through{Host: hostB, Takes: takes}} {
			r, _, err := b.Put(body)
			if err != nil {
				t.Fatal(err)
			}
			recs = append(recs, r)
		}
		if _, err := here.Merge(recs); err != nil {
			t.Fatal(err)
		}
		return here.Snapshot()
	}
	vtep := cluster.SecureVTEP(hostB)
	for _, c := range []struct {
		what string
		snap *cluster.Snapshot
		want []netip.Addr
	}{
		{"it has said so", says(4, 1, stamp(hostA, 4, own[hostA])), []netip.Addr{vtep}},
		{"it has said nothing", says(4), nil},
		{"of other ranges", says(4, stamp(hostA, 4, own[hostA][:1])), nil},
		{"before its keys changed", says(5, stamp(hostA, 4, own[hostA])), nil},
		{"of another host's", says(4, stamp(hostC, 4, own[hostA])), nil},
	} {
		peers := peersOf(hostB)
		ways, takes := plan(c.snap, hostA, 9, own, peers)
		if !slices.Equal(ways.Hosts, c.want) {
			t.Errorf("%s: it sends to %v", c.what, ways.Hosts)
		}
		if !slices.Equal(takes, []uint64{stamp(hostB, 9, own[hostB])}) {
			t.Errorf("%s: it takes %v", c.what, takes)
		}
		if !slices.Equal(peers[0].Ranges, []netip.Prefix{p("10.8.2.0/24")}) || len(ways.Ranges) != 3 {
			t.Errorf("%s: the peer may have %v, and the programs know %v", c.what, peers[0].Ranges, ways.Ranges)
		}
	}
}

// device is what WireGuard does with the addresses of peers: one belongs to the peer that was given it last.
type device map[netip.Prefix]wireguard.Key

func (d device) of(a netip.Addr) (k wireguard.Key) {
	longest := -1
	for p, key := range d {
		if p.Contains(a) && p.Bits() > longest {
			longest, k = p.Bits(), key
		}
	}
	return k
}

func (d device) take(k wireguard.Key) {
	for p, key := range d {
		if key == k {
			delete(d, p)
		}
	}
}

// state is what it says of itself.
func (d device) state(peers map[wireguard.Key]wireguard.Peer) (s wireguard.State) {
	for k, p := range peers {
		p.Ranges = nil
		for one, key := range d {
			if key == k && one != p.Inside {
				p.Ranges = append(p.Ranges, one)
			}
		}
		s.Peers = append(s.Peers, p)
	}
	return s
}

// At no moment do the programs know an address as one host's that WireGuard takes from another one, or sends to it: whatever changes, and in
// whichever order the device does what it is told.
func TestRangesChangeTogether(t *testing.T) {
	ids := []cluster.NodeID{hostA, hostB, hostC, "00000000000000d4"}
	rapid.Check(t, func(t *rapid.T) {
		dev, known, there := device{}, map[netip.Prefix]netip.Addr{}, map[wireguard.Key]wireguard.Peer{}
		keyOf := map[netip.Addr]wireguard.Key{}
		look := func(when string) {
			for i := range 64 {
				a := netip.AddrFrom4([4]byte{10, 8, 0, byte(i * 4)})
				longest, vtep := -1, netip.Addr{}
				for p, v := range known {
					if p.Contains(a) && p.Bits() > longest {
						longest, vtep = p.Bits(), v
					}
				}
				if vtep.IsValid() && vtep != cluster.SecureVTEP(hostA) && dev.of(a) != keyOf[vtep] {
					t.Fatalf("%s: %v is %v for the programs, and %v for WireGuard", when, a, vtep, dev.of(a))
				}
			}
		}
		for step := range rapid.IntRange(2, 5).Draw(t, "steps") {
			var ranges []Range
			seen := map[netip.Prefix]bool{}
			for range rapid.IntRange(0, 8).Draw(t, "ranges") {
				bits := rapid.SampledFrom([]int{24, 25, 26, 28}).Draw(t, "bits")
				p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 8, 0, rapid.Byte().Draw(t, "at")}), bits).Masked()
				if !seen[p] {
					seen[p] = true
					ranges = append(ranges, Range{p, 7, rapid.SampledFrom(ids).Draw(t, "owner")})
				}
			}
			var peers []wireguard.Peer
			for i, p := range peersOf(ids[1:]...) {
				if rapid.IntRange(0, 5).Draw(t, fmt.Sprint("there ", i)) > 0 {
					p.Endpoint = netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), rapid.SampledFrom([]uint16{1, 2}).Draw(t, "port"))
					peers = append(peers, p)
					keyOf[p.Inside.Addr()] = p.Key
				}
			}
			ways, _ := plan(cluster.New(hostA).Snapshot(), hostA, 0, byOwner(ranges), peers)
			have := dev.state(there)
			change := wireguard.Diff(have, wireguard.State{Peers: peers}, nil)
			next := map[netip.Prefix]fastpath.InsideRange{}
			for _, r := range ways.Ranges {
				next[r.Prefix] = r
			}
			// Narrow.
			for _, p := range change.Touches(have) {
				if _, is := known[p]; is {
					known[p] = netip.Addr{}
					look(fmt.Sprint(step, " narrow"))
				}
			}
			for p, v := range known {
				if next[p].VTEP != v {
					known[p] = netip.Addr{}
				}
			}
			for p := range next {
				if _, is := known[p]; !is {
					known[p] = netip.Addr{}
				}
				look(fmt.Sprint(step, " narrow"))
			}
			// The device, one thing after the other.
			for _, k := range change.Remove {
				dev.take(k)
				delete(there, k)
				look(fmt.Sprint(step, " remove"))
			}
			for _, p := range change.Set {
				dev.take(p.Key)
				look(fmt.Sprint(step, " replace"))
				for _, one := range append([]netip.Prefix{p.Inside}, p.Ranges...) {
					dev[one] = p.Key
					look(fmt.Sprint(step, " set"))
				}
				if !p.Endpoint.IsValid() {
					p.Endpoint = there[p.Key].Endpoint
				}
				there[p.Key] = wireguard.Peer{Key: p.Key, Inside: p.Inside, Endpoint: p.Endpoint}
			}
			for _, p := range change.Less {
				for _, one := range p.Ranges {
					if dev[one] == p.Key {
						delete(dev, one)
					}
					look(fmt.Sprint(step, " less"))
				}
			}
			for _, p := range change.More {
				for _, one := range p.Ranges {
					dev[one] = p.Key
					look(fmt.Sprint(step, " more"))
				}
			}
			// Widen.
			for p, r := range next {
				known[p] = r.VTEP
				look(fmt.Sprint(step, " widen"))
			}
			for p := range known {
				if _, stays := next[p]; !stays {
					delete(known, p)
					look(fmt.Sprint(step, " widen"))
				}
			}
			if again := wireguard.Diff(dev.state(there), wireguard.State{Peers: peers}, nil); !again.Empty() {
				t.Fatalf("there is still to be changed: %+v", again)
			}
		}
	})
}
