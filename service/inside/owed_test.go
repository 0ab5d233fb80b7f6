package inside

import (
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"

	"github.com/grapevine-net/grapevine/service"
)

// TestOwed: what changes while something is owed counts as it is when that is done: a connection to a replica that was gone
// for a moment stays, and one ends to a replica that is gone still. The first change is due at once.
func TestOwed(t *testing.T) {
	a, b, vip := netip.MustParseAddr("10.1.0.11"), netip.MustParseAddr("10.1.0.12"), netip.MustParseAddr("10.1.0.9")
	front, other := service.Front{Addr: vip, Proto: service.TCP, Port: 80}, service.Front{Addr: vip, Proto: service.UDP, Port: 53}
	back := func(addrs ...netip.Addr) (back service.Back) {
		for _, a := range addrs {
			back.To, back.There = append(back.To, netip.AddrPortFrom(a, 8080)), append(back.There, a)
		}
		return back
	}
	table := func(f service.Front, b service.Back) service.Table { return service.Table{f: b} }
	connection := func(f service.Front, to netip.Addr) *netlink.ConntrackFlow {
		c := &netlink.ConntrackFlow{}
		c.Forward.Protocol, c.Forward.DstIP, c.Forward.DstPort = f.Proto, f.Addr.AsSlice(), f.Port
		c.Reverse.SrcIP, c.Reverse.SrcPort = to.AsSlice(), 8080
		if f.Proto == service.TCP {
			c.ProtoInfo = &netlink.ProtoInfoTCP{State: nl.TCP_CONNTRACK_ESTABLISHED}
		}
		return c
	}
	ends := func(o owed, f service.Front, to netip.Addr) bool {
		about, table := o.all()
		return stale{about, table}.MatchConntrackFlow(connection(f, to))
	}
	var o owed
	if o.add(table(front, back(a)), table(front, back(a, b))); o.due(time.Now()) {
		t.Error("a replica more has something forgotten")
	}
	if o.add(table(front, back(a, b)), table(front, back(b))); !o.due(time.Now()) {
		t.Error("the first change is not due at once")
	}
	if !ends(o, front, a) || ends(o, front, b) || ends(o, other, a) {
		t.Error("a is gone: connections to it do not end, or others do")
	}
	if o.add(table(front, back(b)), table(front, back(a, b))); ends(o, front, a) {
		t.Error("a is back, and connections to it end")
	}
	o.add(table(front, back(a, b)), nil)
	o.add(table(other, back(a)), nil)
	if ends(o, front, a) || !ends(o, other, a) { // open connections to who may be there stay
		t.Error("a service is gone: its datagrams go on, or its open connections do not")
	}
	o = rest(time.Hour)
	if o.add(table(front, back(a)), nil); o.due(time.Now()) || !o.due(time.Now().Add(latest)) {
		t.Error("what follows is due at once, or later than is allowed")
	}
}
