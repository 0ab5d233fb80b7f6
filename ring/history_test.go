package ring

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// history is a cluster of hosts that own one small space among them. Its messages
// are lost, repeated and delivered in any order, or not to all.
type history struct {
	t     *rapid.T
	space netip.Prefix
	hosts []*host
	sent  []message
}

type host struct {
	id   Owner
	ring *Ring
	// disk is what a restart leaves.
	disk  []Claim
	clock uint64
	dead  bool
	// forgetful hosts write their own claims to disk before they send them, as all
	// do, but what they hear from others only now and then.
	forgetful bool
}

type message struct {
	from   Owner
	claims []Claim
}

func (h *host) learn(claims ...Claim) {
	accepted, _ := h.ring.Merge(claims...)
	if !h.forgetful {
		h.disk = append(h.disk, accepted...)
	}
	for _, c := range claims {
		h.clock = max(h.clock, c.Version.Counter)
	}
}

// claim is the one rule: write it down, then tell others.
func (h *host) claim(block netip.Prefix, owner Owner) Claim {
	c := Claim{block, Version{h.clock + 1, h.id}, owner}
	h.disk = append(h.disk, c)
	h.learn(c)
	return c
}

func (h *host) restart() {
	disk := h.disk
	h.ring, h.disk, h.clock = &Ring{}, nil, 0
	h.learn(disk...)
	h.disk = disk
}

func newHistory(t *rapid.T, forgetful bool) *history {
	h := &history{t: t, space: drawSpace(t)}
	for i := range rapid.IntRange(2, 5).Draw(t, "hosts") {
		h.hosts = append(h.hosts, &host{id: Owner(fmt.Sprintf("%016x", i+1)), ring: &Ring{}, forgetful: forgetful})
	}
	seed := h.hosts[0]
	first := seed.claim(h.space, seed.id)
	for _, x := range h.hosts {
		x.learn(first) // or it would not have joined
		x.disk = []Claim{first}
	}
	h.send(seed, first)
	return h
}

func (h *history) send(from *host, claims ...Claim) {
	h.sent = append(h.sent, message{from.id, claims})
}

func (h *history) alive() []*host {
	return slices.DeleteFunc(slices.Clone(h.hosts), func(x *host) bool { return x.dead })
}

func (h *history) pick(label string) *host {
	return rapid.SampledFrom(h.alive()).Draw(h.t, label)
}

// check is the promise: no number has two hosts that believe they own it.
func (h *history) check() {
	for _, a := range numbers(h.space) {
		var believers []Owner
		for _, x := range h.alive() {
			if c, ok := x.ring.Owner(a); ok && c.Owner == x.id {
				believers = append(believers, x.id)
			}
		}
		if len(believers) > 1 {
			h.t.Fatalf("%s is owned by %v", a, believers)
		}
	}
}

func (h *history) donate(t *rapid.T) {
	giver, taker := h.pick("giver"), h.pick("taker")
	owned := giver.ring.Owned(giver.id, h.space)
	if len(owned) == 0 {
		t.Skip("nothing to give")
	}
	block, ok := Donation(owned, h.space.Addr().BitLen())
	if !ok || rapid.Bool().Draw(t, "any block") {
		block = drawBlock(t, rapid.SampledFrom(owned).Draw(t, "from"))
	}
	if !giver.ring.OwnsAll(giver.id, block) {
		t.Fatalf("%s gives %s, which is not all its own", giver.id, block)
	}
	h.send(giver, giver.claim(block, taker.id))
}

// coalesce writes one claim for several neighbouring ones.
func (h *history) coalesce(t *rapid.T) {
	x := h.pick("host")
	owned := x.ring.Owned(x.id, h.space)
	if len(owned) == 0 {
		t.Skip("owns nothing")
	}
	h.send(x, x.claim(rapid.SampledFrom(owned).Draw(t, "block"), x.id))
}

func (h *history) deliver(t *rapid.T) {
	i := rapid.IntRange(0, len(h.sent)-1).Draw(t, "message")
	h.pick("to").learn(h.sent[i].claims...)
	if len(h.sent) > 1 && rapid.Bool().Draw(t, "for the last time") {
		h.sent = slices.Delete(h.sent, i, i+1)
	}
}

// exchange is anti-entropy, one way, and perhaps broken off.
func (h *history) exchange(t *rapid.T) {
	claims := claimsOf(h.pick("from").ring)
	h.pick("to").learn(claims[:rapid.IntRange(0, len(claims)).Draw(t, "until")]...)
}

func (h *history) flush(*rapid.T) {
	x := h.pick("host")
	x.disk = claimsOf(x.ring)
}

func (h *history) restart(*rapid.T) { h.pick("host").restart() }

// takeOver stops a host for good and gives what it owned to another one, as
// `forget` does: that one first hears everything that any living host knows, and
// nobody listens any more to what only the dead host can have sent.
func (h *history) takeOver(t *rapid.T) {
	if len(h.alive()) < 3 {
		t.Skip("too few hosts")
	}
	dead := h.pick("dead")
	dead.dead = true
	heir := h.pick("heir")
	known := map[Claim]bool{}
	for _, x := range h.alive() {
		heir.learn(claimsOf(x.ring)...)
		for c := range x.ring.Claims() {
			known[c] = true
		}
	}
	h.sent = slices.DeleteFunc(h.sent, func(m message) bool {
		return m.from == dead.id && slices.ContainsFunc(m.claims, func(c Claim) bool { return !known[c] })
	})
	// An earlier heir may have died before anybody heard it: all the dead count.
	for _, x := range h.hosts {
		for _, block := range heir.ring.Owned(x.id, h.space) {
			if x.dead {
				h.send(heir, heir.claim(block, heir.id))
			}
		}
	}
	if len(h.sent) == 0 {
		h.send(heir, claimsOf(heir.ring)...)
	}
}

// settle lets all living hosts hear everything, and checks that nothing leaked.
func (h *history) settle() {
	alive := h.alive()
	all := &Ring{}
	for _, x := range alive {
		all.Merge(claimsOf(x.ring)...)
	}
	for _, x := range alive {
		for _, y := range alive {
			x.learn(claimsOf(y.ring)...)
		}
		if !slices.Equal(claimsOf(x.ring), claimsOf(all)) {
			h.t.Fatalf("%s has %v, all together %v", x.id, claimsOf(x.ring), claimsOf(all))
		}
	}
	h.check()
	total := uint64(0)
	for owner, n := range all.Counts(h.space) {
		if !slices.ContainsFunc(alive, func(x *host) bool { return x.id == owner }) {
			h.t.Fatalf("%d numbers belong to %s, which is gone: %v", n, owner, claimsOf(all))
		}
		total += n
	}
	if total != size(h.space).lo {
		h.t.Fatalf("%d of %d numbers have an owner", total, size(h.space).lo)
	}
}

// TestNoHistoryGivesANumberTwoOwners runs random histories of donations, lost,
// repeated and reordered messages, broken exchanges, restarts and takeovers.
func TestNoHistoryGivesANumberTwoOwners(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t, false)
		actions := h.actions()
		actions["take over"] = h.takeOver
		t.Repeat(actions)
		h.settle()
	})
}

// TestForgettingWhatOthersSaidIsSafe: hosts whose restart loses claims of others
// still never own a number twice. (But who takes over from a host that only they
// had heard may find its numbers without an owner: so an agent does write them.)
func TestForgettingWhatOthersSaidIsSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t, true)
		actions := h.actions()
		actions["flush"] = h.flush
		t.Repeat(actions)
		h.settle()
	})
}

func (h *history) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"donate": h.donate, "donate again": h.donate, "coalesce": h.coalesce,
		"deliver": h.deliver, "deliver again": h.deliver, "exchange": h.exchange,
		"restart": h.restart, "": func(*rapid.T) { h.check() },
	}
}

// TestWithoutTheRuleNumbersGetTwoOwners shows that the histories would find a
// breach: a host that tells before it writes down, and loses power in between.
func TestWithoutTheRuleNumbersGetTwoOwners(t *testing.T) {
	space := netip.MustParsePrefix("10.0.0.0/27")
	a, b := &host{id: owners[0], ring: &Ring{}}, &host{id: owners[1], ring: &Ring{}}
	a.claim(space, a.id)
	durable := slices.Clone(a.disk)
	given := a.claim(netip.MustParsePrefix("10.0.0.16/28"), b.id)
	b.learn(given)
	a.disk = durable
	a.restart()
	both := map[Owner]bool{}
	for _, x := range []*host{a, b} {
		if c, _ := x.ring.Owner(netip.MustParseAddr("10.0.0.20")); c.Owner == x.id {
			both[x.id] = true
		}
	}
	if len(both) != 2 {
		t.Fatalf("only %v believe they own it", slices.Collect(maps.Keys(both)))
	}
}
