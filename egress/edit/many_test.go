package edit

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/egress/hold"
	"github.com/grapevine-net/grapevine/replica/replicatest"
)

// TestOneCause: what has one cause is one problem, of however many egresses, and it names the first ones and says how many more there
// are. What has several causes is several.
func TestOneCause(t *testing.T) {
	const many = 15
	third := cluster.NodeID("00000000000000cc")
	var cut []cluster.UnfitCase
	for i := range many {
		cut = append(cut, cluster.UnfitCase{Egress: fmt.Sprintf("e%02d", i), NIC: "lan"})
	}
	for name, c := range map[string]struct {
		holder cluster.NodeID
		unfit  []cluster.UnfitCase
		cause  func(w *world)
		want   []string // each problem says it
	}{
		"a cable": {holder: self, unfit: cut, want: []string{"egress-unfit: host host3 is a gateway of egresses e00, e01, e02 and 12 more, and cannot hold 192.0.2.10, 192.0.2.11, 192.0.2.12 and 12 more: its interface lan has no link"}},
		"two cables": {holder: self, unfit: append([]cluster.UnfitCase{{Egress: "e00", NIC: "eth0"}}, cut[1:]...), want: []string{
			"host3 is a gateway of egress e00, and cannot hold 192.0.2.10: its interface eth0", "egresses e01, e02, e03 and 11 more, and cannot hold 192.0.2.11, 192.0.2.12, 192.0.2.13 and 11 more: its interface lan"}},
		"its holder died": {holder: other, cause: func(w *world) { w.dead[other] = true }, want: []string{
			"egress-unheld: containers of network n00, network n01, network n02 and 12 more may not reach the outside from 192.0.2.10, 192.0.2.11, 192.0.2.12 and 12 more, by egresses e00, e01, e02 and 12 more: host host2"}},
		"nobody": {want: []string{"egress-unheld: containers of network n00, network n01, network n02 and 12 more do not reach the outside from 192.0.2.10, 192.0.2.11, 192.0.2.12 and 12 more, by egresses e00, e01, e02 and 12 more: no host"}},
		"no interface": {holder: other, cause: func(w *world) {
			for _, u := range cut {
				w.notes[u.Egress] = hold.Note{Unfit: true}
			}
		}, want: []string{"egress-unfit: this host is to be a gateway of egresses e00, e01, e02 and 12 more, and has no interface"}},
		"one machine has them": {holder: other, cause: func(w *world) {
			for _, u := range cut {
				w.notes[u.Egress] = hold.Note{Occupied: net.HardwareAddr{2, 0, 0, 0, 0, 9}}
			}
		}, want: []string{"egress-taken: this host cannot hold 192.0.2.10, 192.0.2.11, 192.0.2.12 and 12 more for egresses e00, e01, e02 and 12 more: another machine on its LAN, 02:00:00:00:00:09, has these addresses"}},
	} {
		w := newWorld(t)
		if c.unfit != nil {
			replicatest.Hear(t, w.r, third, cluster.Node{ID: third, Name: "host3", HoldsIPv6: true}, cluster.Unfit{Host: third, Egresses: c.unfit})
		}
		for i := range many {
			e := cluster.Egress{Name: fmt.Sprintf("e%02d", i), Networks: []string{fmt.Sprintf("n%02d", i)}, Gateways: []string{"host1", "host2", "host3"}, Addrs: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(10 + i)})}}
			replicatest.Put(t, w.r, cluster.Network{Name: e.Networks[0], VNID: uint32(10 + i)}, e)
			if c.holder != "" {
				replicatest.Put(t, w.r, cluster.EgressHolder{Egress: e.Name, Host: c.holder})
			}
		}
		if c.cause != nil {
			c.cause(w)
		}
		var said []string
		for _, p := range w.Problems(w.r.Snapshot()) {
			said = append(said, fmt.Sprintf("%s: %s", p.Code, p.What))
			if strings.Contains(p.What+p.Do, "{") || len(c.want) == 1 && strings.Contains(p.Do, "e00 ") {
				t.Errorf("%s: %+v", name, p)
			}
		}
		ok := len(said) == len(c.want)
		for i, want := range c.want {
			ok = ok && strings.Contains(said[i], want)
		}
		if !ok {
			t.Errorf("%s: status says\n%s\nwant\n%s", name, strings.Join(said, "\n"), strings.Join(c.want, "\n"))
		}
	}
}
