package link

import (
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// The container's TCP hands no more at once to its interface than the bucket takes, and what is lost is lost packet by packet.
func TestPieces(t *testing.T) {
	host, box := linktest.New(t), linktest.New(t)
	sandbox := fmt.Sprintf("/proc/self/fd/%d", box.FD())
	linktest.Wire(t, "gv0123", host, box, []string{"10.9.0.1/24"}, []string{"10.9.0.2/24"})
	for _, step := range []struct {
		egress uint64
		size   uint32
	}{{10e6, 12500}, {1e6, 1564}, {1e9, gsoMaxSize}, {5e6, 6250}, {0, gsoMaxSize}} {
		host.Do(func() { ok(t, Limit("gv0123", sandbox, Limits{Egress: step.egress})) })
		box.Do(func() {
			list, err := netlink.LinkList()
			ok(t, err)
			for _, l := range list {
				if a := l.Attrs(); l.Type() == "veth" && (a.GSOMaxSize != step.size || a.GSOMaxSegs != gsoMaxSegs) {
					t.Errorf("%d bit/s: at once %d bytes, %d segments, want %d", step.egress, a.GSOMaxSize, a.GSOMaxSegs, step.size)
				}
			}
		})
	}
}
