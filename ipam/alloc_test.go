package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/reach"
	"github.com/grapevine-net/grapevine/replica"
)

var ctx = context.Background()

func TestAddressesComeFromTheOwnShare(t *testing.T) {
	w := newWorld(t, 3)
	a, b := w.hosts[0], w.hosts[1]
	p := w.network(a, "blue", 0)
	if p.String() != "10.128.0.0/24" {
		t.Fatalf("first network got %s", p)
	}
	w.spread()
	got := get(a.Address(ctx, p, anywhere, anyAddr))(t)
	if got.String() != "10.128.0.2" {
		t.Errorf("first address at home is %s", got)
	}
	got = get(b.Address(ctx, p, anywhere, anyAddr))(t)
	if got.String() != "10.128.0.128" {
		t.Errorf("first address of the second host is %s, want the start of the upper half", got)
	}
	w.unique(t)
	// Not the address that was just freed.
	must(t, b.Release(got))
	if next := get(b.Address(ctx, p, anywhere, anyAddr))(t); next == got {
		t.Errorf("%s was handed out again at once", next)
	}
}

func TestExactAddressOfAnotherShare(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	p := w.network(a, "blue", 0)
	w.spread()
	want := netip.MustParseAddr("10.128.0.77")
	if got := get(b.Address(ctx, p, anywhere, want))(t); got != want {
		t.Fatalf("got %s", got)
	}
	// The same again is a replay; another host must not get it.
	_ = get(b.Address(ctx, p, anywhere, want))(t)
	must(t, b.Bind(p, want, "endpoint-1"))
	if _, err := a.Address(ctx, p, anywhere, want); err == nil || !strings.Contains(err.Error(), "in use there by endpoint endpoint-1") {
		t.Errorf("asked for an address in use: %v", err)
	}
	if err := b.Bind(p, want, "endpoint-2"); !errors.Is(err, ErrInUse) {
		t.Errorf("second endpoint on one address: %v", err)
	}
	// When Docker has told the container's name, it is named.
	_, err := b.replica.Update(func(tx *replica.Tx) error {
		return tx.Put(cluster.Endpoint{ID: "endpoint-1", Network: "blue", Name: "db", Host: b.id, MAC: "02:42:0a:80:00:4d", Addrs: []netip.Addr{want}})
	})
	must(t, err)
	if err := b.Bind(p, want, "endpoint-2"); err == nil || !strings.Contains(err.Error(), "in use by container db on network blue") {
		t.Errorf("second endpoint on one address: %v", err)
	}
	// Docker's rollback of the second must not take it from the first.
	must(t, b.Release(want))
	if len(b.Leases()) != 1 {
		t.Error("an address in use was freed")
	}
	must(t, b.Unbind("endpoint-1"))
	must(t, b.Release(want))
	if len(b.Leases()) != 0 {
		t.Error("the address was not freed")
	}
	w.unique(t)
}

// IPv6 networks, from the seed's part of the space and from another host's, in shares
// of any size and in host subnets, of which there are more than can be tried.
// handed notes what is asked of it, and what it is given.
type handed struct {
	blocks []netip.Prefix
	took   []string
	fails  error
}

func (h *handed) Given(blocks []netip.Prefix) ([]byte, error) {
	h.blocks = append(h.blocks, blocks...)
	return []byte("former"), nil
}

func (h *handed) Take(given []byte) error {
	h.took = append(h.took, string(given))
	return h.fails
}

// TestFormerGoesWithAddresses: what is known of who had an address before goes with it, and where that is not noted the address is not
// given to a container.
func TestFormerGoesWithAddresses(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	gives, gets := &handed{}, &handed{}
	a.core.cfg.Former, b.core.cfg.Former = gives, gets
	p := w.network(a, "blue", 0)
	w.spread()
	want := netip.MustParseAddr("10.128.0.77")
	_ = get(b.Address(ctx, p, anywhere, want))(t)
	if len(gives.blocks) != 1 || gives.blocks[0] != single(want) {
		t.Errorf("asked what is known of %v", gives.blocks)
	}
	if len(gets.took) != 1 || gets.took[0] != "former" {
		t.Errorf("took %q", gets.took)
	}
	gets.fails = errors.New("the disk is full")
	if _, err := b.Address(ctx, p, anywhere, want.Next()); err == nil || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("with nothing noted: %v", err)
	}
}

func TestIPv6(t *testing.T) {
	w := newWorld(t, 3)
	a, b, c := w.hosts[0], w.hosts[1], w.hosts[2]
	p := get(a.Prefix(ctx, 6, Bits6, 0))(t)
	a.announce("blue", p)
	q := get(b.Prefix(ctx, 6, Bits6, 8))(t)
	b.announce("green", q)
	w.spread()
	if p.String() != "fd12:3456:789a::/64" || q.String() != "fd12:3456:789a:8000::/64" {
		t.Errorf("the networks got %s and %s", p, q)
	}
	for _, want := range []string{"fd12:3456:789a::2", "fd12:3456:789a::3"} {
		if got := get(a.Address(ctx, p, anywhere, anyAddr))(t); got.String() != want {
			t.Errorf("at home: %s, want %s", got, want)
		}
	}
	if got := get(b.Address(ctx, p, anywhere, anyAddr))(t); got.String() != "fd12:3456:789a:0:8000::" {
		t.Errorf("elsewhere: %s, want the start of the upper half", got)
	}
	exact := netip.MustParseAddr("fd12:3456:789a::77")
	if got := get(c.Address(ctx, p, anywhere, exact))(t); got != exact {
		t.Errorf("--ip6 of another host's share: %s", got)
	}
	if _, err := a.Address(ctx, p, anywhere, exact); !errors.Is(err, ErrNoSpace) {
		t.Errorf("--ip6 a second time: %v", err)
	}
	// The first host subnet is left out, as OpenShift does.
	for i, h := range []*host{b, a, c} {
		got := get(h.Address(ctx, q, anywhere, anyAddr))(t)
		if want := netip.MustParsePrefix(fmt.Sprintf("fd12:3456:789a:8000::%x00/120", i+1)); !want.Contains(got) {
			t.Errorf("host subnet %d: got %s, want one of %s", i, got, want)
		}
		w.spread()
	}
	far := netip.MustParsePrefix("fd12:3456:789a:8000::ffff:0:0/96")
	if got, err := b.Address(ctx, q, far, anyAddr); !errors.Is(err, ErrNoSpace) {
		t.Errorf("an --ip-range without a host subnet: %s, %v", got, err)
	}
	w.unique(t)
}

func TestRefusesWhatNobodyMayHave(t *testing.T) {
	w := newWorld(t, 1)
	a := w.hosts[0]
	must(t, a.Pool(ctx, PoolID{Prefix: netip.MustParsePrefix("10.9.0.0/24")}, 0))
	p := netip.MustParsePrefix("10.9.0.0/24")
	_ = get(a.Gateway(p, netip.MustParseAddr("10.9.0.9")))(t)
	for addr, want := range map[string]string{
		"10.9.0.0": "network's own", "10.9.0.255": "broadcast", "10.9.0.9": "gateway", "10.9.1.1": "not in the subnet",
	} {
		if _, err := a.Address(ctx, p, anywhere, netip.MustParseAddr(addr)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", addr, err)
		}
	}
	if _, err := a.Gateway(p, netip.MustParseAddr("10.9.0.255")); err == nil {
		t.Error("broadcast address as gateway")
	}
}

func TestSubnetsOverlap(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	a.has(reach.OnLink, "eth7", "192.168.1.0/24")
	must(t, b.Pool(ctx, PoolID{Prefix: netip.MustParsePrefix("192.168.5.0/24")}, 0)) // outside the CIDRs: asked of the seed
	b.announce("blue", netip.MustParsePrefix("192.168.5.0/24"))
	w.spread()
	for _, h := range w.hosts {
		err := h.Pool(ctx, PoolID{Prefix: netip.MustParsePrefix("192.168.4.0/22")}, 0)
		if err == nil || !strings.Contains(err.Error(), "192.168.4.0/22 overlaps the subnet 192.168.5.0/24 of network blue") {
			t.Errorf("overlap with a subnet: %v", err)
		}
		must(t, h.Pool(ctx, PoolID{Prefix: netip.MustParsePrefix("192.168.5.0/24")}, 0)) // joins
	}
	err := a.Pool(ctx, PoolID{Prefix: netip.MustParsePrefix("192.168.0.0/16")}, 0)
	if err == nil || !strings.Contains(err.Error(), "192.168.0.0/16 cannot be a network's: it overlaps 192.168.1.0/24 on eth7 of this host") {
		t.Errorf("overlap with a route: %v", err)
	}
	a.has(reach.OnLink, "eth7", "10.128.0.0/20")
	if p := get(a.Prefix(ctx, 4, 24, 0))(t); p.String() != "10.128.16.0/24" {
		t.Errorf("new network got %s, with a route to 10.128.0.0/20", p)
	}
}

// Two hosts name a subnet at the same moment: one begins it, and the other joins it as
// soon as it hears of it.
func TestSubnetBegunElsewhere(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	p := netip.MustParsePrefix("192.168.5.0/24")
	must(t, a.Pool(ctx, PoolID{Prefix: p}, 0))
	joined := make(chan error, 1)
	go func() { joined <- b.Pool(ctx, PoolID{Prefix: p}, 0) }()
	a.announce("blue", p)
	w.spread()
	must(t, <-joined)
	if got := b.Asked(time.Time{}); len(got) != 0 {
		t.Errorf("an Allocator's own call counts as Docker's: %v", got)
	}
}

// A host that has heard who owns the pieces of a subnet, and not yet of the subnet, as
// after a loss of power, waits for that.
func TestSubnetInPiecesElsewhere(t *testing.T) {
	w := newWorld(t, 3)
	a, b, c := w.hosts[0], w.hosts[1], w.hosts[2]
	p := w.network(a, "blue", 0)
	w.gossip(a, b)
	for _, h := range []*host{a, b} {
		addr := get(h.Address(ctx, p, anywhere, anyAddr))(t)
		must(t, h.Bind(p, addr, "endpoint"))
	}
	w.gossip(b, a)
	var claims []cluster.Record
	for rec := range a.replica.Snapshot().Records() {
		if rec.Key.Kind == cluster.KindClaim {
			claims = append(claims, rec)
		}
	}
	_ = get(c.replica.Merge(cluster.Encode(claims)))(t)
	joined := make(chan error, 1)
	go func() { joined <- c.Pool(ctx, PoolID{Prefix: p}, 0) }()
	time.Sleep(100 * time.Millisecond) // it has asked
	w.spread()
	must(t, <-joined)
	w.unique(t)
}

func TestHostSubnetsInOpenShiftsOrder(t *testing.T) {
	w := newWorld(t, 3)
	a, b, c := w.hosts[0], w.hosts[1], w.hosts[2]
	must(t, a.Pool(ctx, PoolID{Prefix: netip.MustParsePrefix("10.1.0.0/16")}, 6))
	p := netip.MustParsePrefix("10.1.0.0/16")
	sub, _ := a.Subnet(p)
	must(t, a.Begin(sub)) // the first is the creator's, whoever asks first
	a.announce("blue", p)
	w.spread()
	for _, i := range []int{1, 0, 2} {
		h := w.hosts[i]
		got := get(h.Address(ctx, p, anywhere, anyAddr))(t)
		w.spread()
		if got.As4()[2] != byte(i) {
			t.Errorf("host %d got %s, want one of 10.1.%d.0/26", i, got, i)
		}
	}
	for range 70 { // more than one host subnet
		_ = get(b.Address(ctx, p, anywhere, anyAddr))(t)
	}
	// An address of a host subnet that was asked for by --ip elsewhere is not that
	// host's any more.
	_ = get(c.Address(ctx, p, anywhere, netip.MustParseAddr("10.1.0.3")))(t)
	for range 3 {
		_ = get(a.Address(ctx, p, anywhere, anyAddr))(t)
	}
	w.unique(t)
	if got := get(b.Address(ctx, p, anywhere, anyAddr))(t); !netip.MustParsePrefix("10.1.3.0/26").Contains(got) {
		t.Errorf("second host subnet of host 1 has %s, want 10.1.3.0/26", got)
	}
}

func TestRangeLimitsAddresses(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	p, r := netip.MustParsePrefix("10.9.0.0/24"), netip.MustParsePrefix("10.9.0.64/29")
	must(t, a.Pool(ctx, PoolID{p, r}, 0))
	a.announce("blue", p)
	w.spread()
	for _, h := range []*host{a, b, a, b} {
		if got := get(h.Address(ctx, p, r, anyAddr))(t); !r.Contains(got) {
			t.Errorf("%s is outside %s", got, r)
		}
		w.spread()
	}
	for range 4 { // to the last one, wherever that is
		_ = get(a.Address(ctx, p, r, anyAddr))(t)
	}
	_, err := a.Address(ctx, p, r, anyAddr)
	if !errors.Is(err, ErrNoSpace) || !strings.Contains(err.Error(), "host h2") {
		t.Errorf("exhausted range: %v", err)
	}
	w.unique(t)
}

// What somebody waits for is found wherever it is, to the last one; what is only to be
// in stock leaves the others theirs.
func TestNothingStaysUnused(t *testing.T) {
	w := newWorld(t, 3)
	a := w.hosts[0]
	p := w.network(a, "blue", 0)
	w.spread()
	for range 253 { // all but the gateway
		_ = get(w.hosts[1].Address(ctx, p, anywhere, anyAddr))(t)
	}
	w.unique(t)
	if got, err := a.Address(ctx, p, anywhere, anyAddr); !errors.Is(err, ErrNoSpace) {
		t.Errorf("of a subnet that is full: %v, %v", got, err)
	}
}

func TestErrorsSayWhoWasAsked(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	p := w.network(a, "blue", 0)
	w.spread()
	a.down = true
	_, err := b.Address(ctx, p, anywhere, anyAddr)
	if !errors.Is(err, ErrNoSpace) || !strings.Contains(err.Error(), "do not answer now (h1 (0000000000000001))") {
		t.Errorf("owner down: %v", err)
	}
	lonely := newWorld(t, 2)
	lonely.hosts[1].down = true
	h := lonely.hosts[1]
	if _, err := h.Prefix(ctx, 4, 24, 0); !errors.Is(err, ErrNoSpace) {
		t.Errorf("alone: %v", err)
	}
}

func TestLostReplyLosesNothing(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	p := w.network(a, "blue", 0)
	w.spread()
	w.loseReplies = true
	if _, err := b.Address(ctx, p, anywhere, anyAddr); err == nil {
		t.Fatal("an address without a reply")
	}
	w.loseReplies = false
	w.spread()
	a.down = true // what was given is there
	_ = get(b.Address(ctx, p, anywhere, anyAddr))(t)
}

func TestStateOutlivesRestart(t *testing.T) {
	w := newWorld(t, 1)
	a := w.hosts[0]
	p := w.network(a, "blue", 0)
	addr := get(a.Address(ctx, p, anywhere, anyAddr))(t)
	must(t, a.Bind(p, addr, "endpoint-1"))
	v := get(a.VNID(ctx))(t)
	a.restart()
	if l := a.Leases(); len(l) != 1 || l[0].Addr != addr || l[0].Endpoint != "endpoint-1" {
		t.Errorf("leases after a restart: %v", l)
	}
	if again := get(a.VNID(ctx))(t); again == v {
		t.Errorf("VNID %d twice", v)
	}
	if again := get(a.Address(ctx, p, anywhere, anyAddr))(t); again.Compare(addr) <= 0 {
		t.Errorf("%s after %s", again, addr)
	}
}

func TestParallelRequests(t *testing.T) {
	w := newWorld(t, 3)
	p := w.network(w.hosts[0], "blue", 0)
	w.spread()
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			if _, err := w.hosts[i%3].Address(ctx, p, anywhere, anyAddr); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	w.unique(t)
	n := 0
	for _, h := range w.hosts {
		n += len(h.Leases())
	}
	if n != 60 {
		t.Errorf("%d leases", n)
	}
}

func TestSharesGoHome(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	p := w.network(a, "blue", 0)
	w.spread()
	addr := get(b.Address(ctx, p, anywhere, anyAddr))(t)
	w.spread()
	a.deleteSubnet(p)
	w.spread()
	must(t, b.homing.sendHome())
	w.spread()
	if a.replica.Snapshot().Ring().OwnsAll(a.id, p) {
		t.Fatal("the share went home with an address still leased")
	}
	must(t, b.Release(addr))
	b.restart()
	w.spread()
	must(t, b.homing.sendHome())
	w.spread()
	if !a.replica.Snapshot().Ring().OwnsAll(a.id, p) {
		t.Error("the share did not go home")
	}
}

func TestCollect(t *testing.T) {
	w := newWorld(t, 1)
	a := w.hosts[0]
	p := w.network(a, "blue", 0)
	kept := get(a.Address(ctx, p, anywhere, anyAddr))(t)
	must(t, a.Bind(p, kept, "alive"))
	lost := get(a.Address(ctx, p, anywhere, anyAddr))(t)
	must(t, a.Bind(p, lost, "dead"))
	unborn := get(a.Address(ctx, p, anywhere, anyAddr))(t)
	pool := get(a.Prefix(ctx, 4, 24, 0))(t)
	alive := func(e string) bool { return e == "alive" }
	if freed := get(a.Collect(w.now, nil, alive))(t); len(freed) != 0 {
		t.Errorf("freed %v at once", freed)
	}
	w.now = w.now.Add(time.Hour)
	freed := get(a.Collect(w.now.Add(-time.Minute), nil, alive))(t)
	if len(freed) != 2 || len(a.Leases()) != 1 || a.Leases()[0].Addr != kept {
		t.Errorf("freed %v, want %s and %s", freed, lost, unborn)
	}
	if _, ok := a.Subnet(pool); ok {
		t.Error("the pool leaked")
	}
}

func TestVNIDs(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	if v := get(a.VNID(ctx))(t); v != 1 {
		t.Errorf("first VNID is %d", v)
	}
	must(t, b.VNIDExact(ctx, 0, "global"))
	must(t, b.VNIDExact(ctx, 4711, "blue"))
	if err := a.VNIDExact(ctx, 4711, "green"); !errors.Is(err, ErrNoSpace) || !strings.Contains(err.Error(), "in use there") {
		t.Errorf("VNID of a network that is being made: %v", err)
	}
	_ = get(b.replica.Update(func(tx *replica.Tx) error {
		_ = tx.Put(cluster.Network{Name: "blue", VNID: 4711})
		return nil
	}))(t)
	w.spread()
	if err := a.VNIDExact(ctx, 4711, "green"); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "network blue") {
		t.Errorf("VNID of a network: %v", err)
	}
	must(t, a.VNIDExact(ctx, 4711, "blue"))
	// It rests after its network is gone, and is free after that.
	_ = get(b.replica.Update(func(tx *replica.Tx) error { tx.Delete(cluster.Network{Name: "blue"}.Key()); return nil }))(t)
	must(t, b.vnids.restVNIDs())
	if err := b.VNIDExact(ctx, 4711, "green"); err == nil {
		t.Error("VNID handed out again at once")
	}
	w.now = w.now.Add(2 * vnidRest)
	must(t, b.vnids.restVNIDs())
	must(t, b.VNIDExact(ctx, 4711, "green"))
	w.unique(t)
}

func TestStockUp(t *testing.T) {
	w := newWorld(t, 3)
	p := w.network(w.hosts[0], "blue", 0)
	w.spread()
	for _, h := range w.hosts {
		h.stockUp(ctx)
		w.spread()
	}
	for _, h := range w.hosts { // each alone
		for _, o := range w.hosts {
			o.down = o != h
		}
		_ = get(h.Address(ctx, p, anywhere, anyAddr))(t)
		_ = get(h.VNID(ctx))(t)
		h.announce(fmt.Sprintf("alone-%s", h.id), get(h.Prefix(ctx, 4, 24, 0))(t))
	}
	for _, o := range w.hosts {
		o.down = false
	}
	w.spread()
	w.unique(t)
}

// TestCollectAfterJump: what is of no use is freed in its time, though the host's clock was
// set back or ahead by years since it was leased, and the agent is another one.
func TestCollectAfterJump(t *testing.T) {
	for _, jump := range []time.Duration{-50 * 8766 * time.Hour, 50 * 8766 * time.Hour} {
		w := newWorld(t, 1)
		a := w.hosts[0]
		p := w.network(a, "blue", 0)
		lost := get(a.Address(ctx, p, anywhere, anyAddr))(t)
		pool := get(a.Prefix(ctx, 4, 24, 0))(t)
		w.now = w.now.Add(jump)
		a.restart()
		none := func(string) bool { return false }
		if freed := get(a.Collect(w.now.Add(-time.Minute), nil, none))(t); len(freed) != 0 {
			t.Errorf("the clock jumped by %s: freed %v at once", jump, freed)
		}
		w.now = w.now.Add(time.Hour)
		if freed := get(a.Collect(w.now.Add(-time.Minute), nil, none))(t); !slices.Equal(freed, []netip.Addr{lost}) {
			t.Errorf("the clock jumped by %s: freed %v, want %s", jump, freed, lost)
		}
		if _, ok := a.Subnet(pool); ok {
			t.Errorf("the clock jumped by %s: the pool leaked", jump)
		}
	}
}

// TestUsedUpIsSaidSo: who asks for what is in use is not told to forget a host that answers.
func TestUsedUpIsSaidSo(t *testing.T) {
	w := newWorld(t, 3)
	a, b := w.hosts[0], w.hosts[1]
	p, limit := netip.MustParsePrefix("10.99.0.0/24"), netip.MustParsePrefix("10.99.0.64/30")
	must(t, a.Pool(ctx, PoolID{Prefix: p, Range: limit}, 0))
	a.announce("blue", p)
	for i := range 4 {
		addr := get(a.Address(ctx, p, limit, anyAddr))(t)
		_ = get(a.replica.Update(func(tx *replica.Tx) error {
			return tx.Put(cluster.Endpoint{ID: string(rune('a' + i)), Network: "blue", Host: a.id, Addrs: []netip.Addr{addr}})
		}))(t)
	}
	w.spread()
	_, err := b.Address(ctx, p, limit, anyAddr)
	if err == nil || strings.Contains(err.Error(), "forget") || !strings.Contains(err.Error(), "all of 10.99.0.64/30 is in use (by h1 (0000000000000001))") {
		t.Errorf("of a range that is used up: %v", err)
	}
	a.down = true
	if _, err = b.Address(ctx, p, limit, anyAddr); err == nil || !strings.Contains(err.Error(), "do not answer now (h1") {
		t.Errorf("of a range of a host that is off: %v", err)
	}
}

// TestSilentOwnerOfAnAddress: in the first seconds after a host's death a call to it ends with a
// deadline, which is not what people are told.
func TestSilentOwnerOfAnAddress(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	p := w.network(a, "blue", 0)
	w.spread()
	w.fakes = map[cluster.NodeID]func(string, []byte) ([]byte, error){
		a.id: func(string, []byte) ([]byte, error) { return nil, fmt.Errorf("call: %w", context.DeadlineExceeded) },
	}
	_, err := b.Address(ctx, p, anywhere, p.Addr().Next().Next())
	if err == nil || strings.Contains(err.Error(), "deadline") || !strings.Contains(err.Error(), "h1 (0000000000000001): does not answer") {
		t.Errorf("the address of a host that has just died: %v", err)
	}
}

// TestSmallestNetworks: a /30 has one container, on whichever host, as with bridge.
func TestSmallestNetworks(t *testing.T) {
	for _, subnet := range []string{"10.99.0.0/30", "10.99.0.0/29", "fd00:1::/126", "fd00:1::/125"} {
		w := newWorld(t, 2)
		a, b := w.hosts[0], w.hosts[1]
		p := netip.MustParsePrefix(subnet)
		must(t, checkSubnet(p))
		must(t, a.Pool(ctx, PoolID{Prefix: p}, 0))
		a.announce("blue", p)
		w.spread()
		b.stockUp(ctx)
		w.spread()
		n, last := 0, error(nil)
		for _, h := range []*host{b, a, b, a, b, a, b, a, b, a} {
			if _, err := h.Address(ctx, p, anywhere, anyAddr); err == nil {
				n++
			} else {
				last = err
			}
			w.spread()
		}
		size := 1 << (p.Addr().BitLen() - p.Bits())
		if want := size - 2 - map[bool]int{true: 1}[p.Addr().Is4()]; n != want {
			t.Errorf("%s has %d addresses for containers, want %d", p, n, want)
		}
		if last == nil || strings.Contains(last.Error(), "block of a") || strings.Contains(last.Error(), "forget") {
			t.Errorf("a full %s: %v", p, last)
		}
		w.unique(t)
	}
}

// TestPrefixLengthsAreOneRule: what the setting takes is what networks are made of.
func TestPrefixLengthsAreOneRule(t *testing.T) {
	for bits := 1; bits <= 32; bits++ {
		_, err := config.Load(pflag.NewFlagSet("agent", pflag.ContinueOnError), []string{"GRAPEVINE_CIDR4=10.0.0.0/8", fmt.Sprintf("GRAPEVINE_PREFIXLEN=%d", bits)}, os.ReadFile)
		subnet := checkSubnet(netip.PrefixFrom(netip.MustParseAddr("10.0.0.0"), bits).Masked())
		_, opt := parseOptions(map[string]string{"prefixlen": strconv.Itoa(bits)}, options{})
		if bits >= 8 && (err == nil) != (subnet == nil) || (opt == nil) != (subnet == nil) && bits >= 8 {
			t.Errorf("/%d: the setting says %v, a subnet %v, the option %v", bits, err, subnet, opt)
		}
	}
}

// TestReleasedHostSubnet: that of a host that is gone is had by the next one, although all are handed out.
func TestReleasedHostSubnet(t *testing.T) {
	for _, how := range []string{"forget", "leave"} {
		t.Run(how, func(t *testing.T) {
			w := newWorld(t, 3)
			a, b, c := w.hosts[0], w.hosts[1], w.hosts[2]
			p := netip.MustParsePrefix("10.52.0.0/24")
			must(t, a.Pool(ctx, PoolID{Prefix: p}, 7))
			s, _ := a.Subnet(p)
			a.announce("blue", p)
			must(t, a.Begin(s))
			w.spread()
			_ = get(a.Address(ctx, p, anywhere, anyAddr))(t)
			addr := get(b.Address(ctx, p, anywhere, anyAddr))(t)
			w.spread()
			if _, err := c.Address(ctx, p, anywhere, anyAddr); err == nil {
				t.Fatal("there are only two host subnets")
			}
			if how == "leave" {
				c.down = true // so that it is not the heir
				must(t, b.Release(addr))
				must(t, b.Leave(ctx))
				w.spread()
				c.down = false
			}
			b.down, b.gone = true, true
			if how == "forget" {
				must(t, a.Takeover(ctx, b.id))
			}
			w.spread()
			got := get(c.Address(ctx, p, anywhere, anyAddr))(t)
			if !netip.MustParsePrefix("10.52.0.128/25").Contains(got) {
				t.Errorf("the third host has %s", got)
			}
			w.unique(t)
		})
	}
}

// TestSubnetThatWasJustGiven: so is one that this host has given to another one, which has not
// heard of it yet.
func TestSubnetThatWasJustGiven(t *testing.T) {
	w := newWorld(t, 3)
	w.open()
	a, b := w.hosts[0], w.hosts[2]
	p := netip.MustParsePrefix("10.128.4.0/24")
	must(t, b.try("blue", p.String()))
	w.spread()
	b.retire("blue", p)
	w.gossip(b, a) // of the end, not of the gift
	b.core.mu.Lock()
	_, err := b.core.claim(a.core.cfg.Self, p)
	b.core.mu.Unlock()
	must(t, err)
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		time.Sleep(50 * time.Millisecond) // long enough for the first try
		w.gossip(b, a)
	}()
	if err := b.Pool(ctx, PoolID{Prefix: p}, 0); err != nil {
		t.Error(err)
	}
	<-heard
}

// TestSubnetMadeAnewAtOnce: a subnet whose network has just been removed here is to be had
// again as soon as the host that has a share of it has heard of that.
func TestSubnetMadeAnewAtOnce(t *testing.T) {
	for _, subnet := range []string{"10.128.4.0/24", "192.168.9.0/24"} {
		w := newWorld(t, 3)
		w.open()
		a, b := w.hosts[0], w.hosts[2]
		must(t, b.try("blue", subnet))
		w.spread()
		a.stockUp(ctx)
		w.spread()
		p := netip.MustParsePrefix(subnet)
		b.retire("blue", p)
		heard := make(chan struct{})
		go func() {
			defer close(heard)
			time.Sleep(50 * time.Millisecond) // long enough for the first try
			w.gossip(b, a)
			if err := a.homing.sendHome(); err != nil {
				t.Error(err)
			}
			w.gossip(a, b)
		}()
		if err := b.Pool(ctx, PoolID{Prefix: p}, 0); err != nil {
			t.Errorf("%s: %v", p, err)
		}
		<-heard
	}
}
