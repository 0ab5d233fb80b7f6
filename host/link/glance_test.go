package link

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// TestGlance: it tells what Get does, of an interface that is up, down, or not there.
func TestGlance(t *testing.T) {
	linktest.New(t).Do(func() {
		addLink(t, &netlink.Veth{PeerName: "d1"}, "d0")
		d, err := netlink.LinkByName("d0")
		ok(t, err)
		ok(t, netlink.LinkSetMTU(d, 1234))
		for _, up := range []bool{false, true} {
			if up {
				ok(t, netlink.LinkSetUp(d))
			}
			want, err := Get("d0")
			ok(t, err)
			if got, err := Glance("d0"); err != nil || got != (Seen{Index: want.Index, MTU: 1234, Up: up}) || want.Up != up {
				t.Errorf("Glance: %+v, %v; Get: %+v", got, err, want)
			}
		}
		if got := NameOf(d.Attrs().Index); got != "d0" {
			t.Errorf("the name of d0: %q", got)
		}
		if got := NameOf(999999); got != "" {
			t.Errorf("the name of an interface that is not there: %q", got)
		}
		for _, name := range []string{"none", "a-name-of-sixteen"} {
			if got, err := Glance(name); err == nil {
				t.Errorf("%s: %+v", name, got)
			}
		}
		if _, err := Glance("none"); !errors.Is(err, ErrNotFound) {
			t.Errorf("none: %v", err)
		}
	})
}

func BenchmarkLook(b *testing.B) {
	b.Run("Get", func(b *testing.B) {
		for b.Loop() {
			_, _ = Get("lo")
		}
	})
	b.Run("Glance", func(b *testing.B) {
		for b.Loop() {
			_, _ = Glance("lo")
		}
	})
}
