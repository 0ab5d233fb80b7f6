package ipam

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/reach"
)

// A subnet that any host is known to reach by itself is refused where it is new, and the
// error names the host and the thing; one that exists is taken by those who can.
func TestPoolsThatOtherHostsHave(t *testing.T) {
	w := newWorld(t, 3)
	a, b, c := w.hosts[0], w.hosts[1], w.hosts[2]
	lan, made := netip.MustParsePrefix("192.168.7.0/24"), netip.MustParsePrefix("172.30.0.0/16")
	must(t, a.Pool(ctx, PoolID{Prefix: made}, 0))
	a.announce("two", made)
	w.spread()
	b.has(reach.OnLink, "lan0", "192.168.7.0/24")
	w.spread()
	err := a.Pool(ctx, PoolID{Prefix: lan}, 0)
	if err == nil || !strings.Contains(err.Error(), "it overlaps 192.168.7.0/24 on lan0 of host "+"h"+string(b.id[15:])) {
		t.Errorf("another host's LAN: %v", err)
	}
	b.has(reach.Docker, "plainnet", "172.30.0.0/16")
	w.spread()
	must(t, c.Pool(ctx, PoolID{Prefix: made}, 0)) // b's affair alone
	err = b.Pool(ctx, PoolID{Prefix: made}, 0)
	if err == nil || !strings.Contains(err.Error(), "it overlaps Docker's network plainnet (172.30.0.0/16) of this host") {
		t.Errorf("a network of the cluster that this host cannot take: %v", err)
	}
}

// New networks keep out of what any host has; out of what its Docker may take, as long as
// there is other room.
func TestPrefixesAvoidWhatAnyHostHas(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	b.has(reach.Routed, "by wg0", "10.128.0.0/17", "10.0.0.0/8")
	w.spread()
	if p := get(a.Prefix(ctx, 4, 24, 0))(t); p.String() != "10.128.128.0/24" {
		t.Errorf("new network got %s, with another host's route to 10.128.0.0/17", p)
	}
	b.has(reach.Pool, "", "10.128.0.0/16")
	w.spread()
	if p := get(a.Prefix(ctx, 4, 24, 0))(t); p.String() != "10.128.129.0/24" {
		t.Errorf("new network got %s, where all of the range is another host's Docker's pool", p)
	}
}

// A host takes nothing of the ring that it cannot use: not by trying to make a network
// where there is no room for one, nor by stocking up.
func TestTakesNothingThatIsBarred(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	cidr, made := netip.MustParsePrefix("10.128.0.0/16"), netip.MustParsePrefix("10.128.4.0/22")
	must(t, a.Pool(ctx, PoolID{Prefix: made}, 0))
	a.announce("blue", made)
	b.has(reach.Routed, "via 192.0.2.254 (eth0)", "10.128.0.0/16")
	w.spread()
	for range 3 {
		_, err := b.Prefix(ctx, 4, 22, 0)
		if !errors.Is(err, ErrNoSpace) || !strings.Contains(err.Error(), "no /22 is left beside the route 10.128.0.0/16 via 192.0.2.254 (eth0) of this host") {
			t.Errorf("a network where there is no room: %v", err)
		}
		b.stockUp(ctx)
		w.spread()
	}
	if got := b.replica.Snapshot().Ring().Counts(cidr)[b.id]; got != 0 {
		t.Errorf("the host has %d numbers of what it cannot use", got)
	}
	b.has(reach.Routed, "via 192.0.2.254 (eth0)", "10.128.0.0/17")
	if p, err := b.Prefix(ctx, 4, 22, 0); err != nil || !netip.MustParsePrefix("10.128.128.0/17").Overlaps(p) {
		t.Errorf("with half of the range in the way: %v, %v", p, err)
	}
	if got := b.replica.Snapshot().Ring().Counts(netip.MustParsePrefix("10.128.0.0/17"))[b.id]; got != 0 {
		t.Errorf("asking for half of the range brought %d numbers of the other", got)
	}
}
