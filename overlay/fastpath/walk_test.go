package fastpath

import (
	"testing"

	"github.com/grapevine-net/grapevine/overlay/walk"
)

// TestWalk: where a packet is taken is read from the maps as they are, and not from what the agent put there.
func TestWalk(t *testing.T) {
	a, _ := twoHosts(t)
	ask := func(p walk.Packet) string {
		t.Helper()
		fast, err := a.path.Walk(p, a.in)
		must(t, err)
		switch {
		case !fast.On:
			return "off"
		case fast.End == nil:
			return "the switch"
		}
		return fast.End.String()
	}
	want := func(p walk.Packet, want string) {
		t.Helper()
		var got string
		if a.Do(func() { got = ask(p) }); got != want {
			t.Errorf("%+v: %q, want %q", p, got, want)
		}
	}
	here, there := addrs("10.128.0.7")[0], addrs("10.128.1.7")[0]
	out := walk.Packet{Src: here, Dst: there, Proto: walk.ICMP, Endpoint: "a"}
	in := walk.Packet{Src: there, Dst: here, Proto: walk.ICMP, Reply: true, VTEP: a.in.VTEPs[0].Addr, VNID: 5}
	to := "to VTEP " + a.in.VTEPs[0].Addr.String() + " with VNID 5"
	want(out, to)
	want(in, "to endpoint a")
	want(walk.Packet{Src: addrs("10.128.0.9")[0], Dst: there, Proto: walk.ICMP, Endpoint: "a"}, "the switch")

	// Somebody, or a fault, changes an entry behind the agent's back.
	stale := addrs("192.0.2.99")[0]
	wide := prefixes("10.128.1.0/24")[0]
	must(t, a.path.objs.GvRanges.Put(keyOf(wide), rangeValue{VTEP: addressOf(stale), VNID: 5, Slot: firstSlot}))
	want(out, "to VTEP 192.0.2.99 with VNID 5")
	want(in, "the switch")
	must(t, a.path.objs.GvLocals.Put(address(here.As16()), localValue{Ifindex: 4711, VNID: 5, MAC: [6]byte(macs["a"])}))
	want(walk.Packet{Src: there, Dst: here, Proto: walk.ICMP, VTEP: stale, VNID: 5}, "to interface 4711, which is no container's")

	a.Do(func() { must(t, a.path.Stop()) })
	want(out, "off")
}
