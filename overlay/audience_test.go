package overlay

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// TestHearersFollow: whatever containers come, go, and join groups, on networks that carry multicast and on one that does not, a plan
// made of an earlier one has the same members and neighbours as one made anew.
func TestHearersFollow(t *testing.T) {
	kept := 0
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		w.hosts()
		w.put(casting("blue", 5), casting("red", 6), network("plain", 7),
			subnet("10.128.0.0/22", "blue", ""), subnet("10.129.0.0/22", "red", ""), subnet("10.130.0.0/22", "plain", ""))
		ids := rapid.SampledFrom([]cluster.NodeID{me, other, third})
		byte4 := rapid.Uint8Range(0, 3)
		var all []cluster.Endpoint
		var p plans
		ports := Ports{Tunnel: 1, Endpoints: map[string]uint32{}}
		for i := range 24 {
			switch kind := rapid.IntRange(0, 4).Draw(t, "kind"); {
			case kind < 2 || len(all) == 0:
				e := endpoint(ids.Draw(t, "host"), byte('a'+i), rapid.SampledFrom([]string{"blue", "red", "plain"}).Draw(t, "network"), "10.128.0.7")
				e.Addrs = []netip.Addr{netip.AddrFrom4([4]byte{10, 128, 0, byte(7 + i)}), netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(7 + i)})}
				if rapid.IntRange(0, 2).Draw(t, "link-local") == 0 {
					e.LinkLocal = []netip.Addr{netip.AddrFrom4([4]byte{169, 254, 1, byte4.Draw(t, "which")})}
				}
				all = append(all, e)
				w.by(e.Host, e)
				if e.Host == me {
					ports.Endpoints = maps.Clone(ports.Endpoints)
					ports.Endpoints[e.ID] = uint32(10 + i)
				}
			case kind < 4:
				e := rapid.SampledFrom(all).Draw(t, "whose")
				l := cluster.Listen{Endpoint: e.ID, Host: e.Host}
				for _, b := range rapid.SliceOfNDistinct(byte4, 0, 2, rapid.ID).Draw(t, "groups") {
					l.Groups = append(l.Groups, netip.AddrFrom4([4]byte{239, 1, 1, b}))
				}
				w.by(e.Host, l)
			default:
				e := rapid.SampledFrom(all).Draw(t, "whose")
				w.end(e.Host, e.Key())
			}
			if rapid.IntRange(0, 2).Draw(t, "look") == 0 {
				continue
			}
			before := p.topology
			got, _ := p.plan(w.Snapshot(), me, pipeline.Metadata, ports)
			want, _ := Plan(w.Snapshot(), me, pipeline.Metadata, ports)
			if d := cmp.Diff(want.Groups, got.Groups, equalNet) + cmp.Diff(want.Neighbours, got.Neighbours, equalNet) + cmp.Diff(want.Ports, got.Ports, equalNet); d != "" {
				t.Fatal(d)
			}
			if before == p.topology && len(got.Groups) > 0 {
				kept++
			}
		}
	})
	if kept == 0 {
		t.Error("no plan with groups was made of an earlier one")
	}
}
