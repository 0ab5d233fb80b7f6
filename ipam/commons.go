package ipam

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
	"github.com/grapevine-net/grapevine/ring"
)

// commons has what is nobody's until most hosts lend their lines of its book.
type commons struct {
	core       *core
	asker      *asker
	collecting []netip.Prefix          // what is being taken out
	modern     map[cluster.NodeID]bool // the hosts that know of it; belongs to Run
}

// Commons owns what is outside the cluster's ranges and no network has. It is no host, but
// looks to older agents like one that has left by its own word: they believe any host's claim
// on what such a one owned. What keeps two hosts from the same numbers are the books:
//
//   - a host claims numbers of the commons only while it has three of the five books' lines
//     of them, and has heard all that those said who wrote that these are its own;
//   - it keeps the lines until the numbers are back in the commons, which it claims first.
//
// So who has three lines knows that nobody has the numbers, or claims them over what it has
// not heard of: its version is above that of the claim by which they came back, since that
// one was known to who lent the lines.
const Commons cluster.NodeID = "91bbaa37d60965c3"

// commonsWord is the commons' word that they have left, signed by the commons' key.
var commonsWord = sync.OnceValue(func() []byte {
	key := commonsKey()
	s := cluster.New(cluster.HostID(cluster.Public(key)))
	if err := s.SignWith(key); err != nil {
		panic(err) // of constants
	}
	r, _ := s.Delete(cluster.Node{ID: Commons}.Key(), time.Unix(1, 0))
	return cluster.Encode([]cluster.Record{r})
})

// commonsKey is the commons' key, which everybody has.
func commonsKey() ed25519.PrivateKey {
	seed := sha256.Sum256([]byte("grapevine commons"))
	return ed25519.NewKeyFromSeed(seed[:])
}

// Alone reports whether no other host has any IPv4 address: self has them all, but for what is in
// the commons.
func Alone(r *ring.Ring, self cluster.NodeID) bool {
	return len(ring.Subtract(everything[:1], append(r.Owned(self, everything[0]), r.Owned(Commons, everything[0])...))) == 0
}

// openCommons puts what this host owns outside the cluster's ranges, and no network has, into
// the commons, once all hosts know of them.
func (a *commons) openCommons(ctx context.Context) error {
	if err := a.sayCommons(false); err != nil {
		return err
	}
	if a.core.leaving() || len(a.surplus()) == 0 || !a.allKnowCommons(ctx) {
		return nil
	}
	if err := a.sayCommons(true); err != nil {
		return err
	}
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	if err := a.core.mayHandOut(); err != nil || a.core.beginning > 0 {
		return nil // another time
	}
	blocks := a.surplusLocked()
	if len(blocks) == 0 {
		return nil
	}
	_, err := a.core.claim(Commons, blocks...)
	return err
}

// sayCommons makes sure that what the commons are is in this host's state, and so with the
// others, from when there are any: it need not have been on the disk when the power went.
func (a *commons) sayCommons(begin bool) error {
	snap := a.core.replica.Snapshot()
	if snap.Tombstone(cluster.Node{ID: Commons}.Key()) {
		return nil
	}
	for c := range snap.Ring().Claims() {
		if begin = begin || c.Owner == Commons; begin {
			break
		}
	}
	if !begin {
		return nil
	}
	if _, err := a.core.replica.Merge(commonsWord()); err != nil {
		return fmt.Errorf("make the commons known: %w", err)
	}
	return nil
}

func (a *commons) surplus() []netip.Prefix {
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	return a.surplusLocked()
}

// surplusLocked is what this host owns outside, from before there were commons.
func (a *commons) surplusLocked() []netip.Prefix {
	cidrs := a.core.cfg.CIDRs()
	if len(ofFamily(cidrs, 4)) == 0 || len(ofFamily(cidrs, 6)) == 0 {
		return nil // what is outside is not known yet
	}
	snap := a.core.replica.Snapshot()
	var owned []netip.Prefix
	for _, p := range outside() {
		owned = append(owned, snap.Ring().Owned(a.core.cfg.Self, p)...)
	}
	if len(owned) == 0 {
		return nil
	}
	return ring.Subtract(owned, slices.Concat(cidrs, a.core.occupied(snap), taken(snap.Ring())))
}

// taken are the blocks that hosts have out of the commons, in address order.
func taken(r *ring.Ring) (out []netip.Prefix) {
	var common, top netip.Prefix // the narrowest blocks around the next claim
	for c := range r.Claims() {
		if top.IsValid() && within(c.Block, top) && c.Owner != Commons {
			continue
		}
		switch {
		case c.Owner == Commons:
			common = c.Block
		case common.IsValid() && within(c.Block, common):
			top, out = c.Block, append(out, c.Block)
		}
	}
	return out
}

// allKnowCommons asks the other hosts, each until it has said so.
func (a *commons) allKnowCommons(ctx context.Context) bool {
	const key = "commons"
	if !a.asker.backoff.ready(key, a.core.cfg.Now()) {
		return false
	}
	for n := range cluster.All[cluster.Node](a.core.replica.Snapshot()) {
		if n.ID == a.core.cfg.Self || a.modern[n.ID] {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		_, err := a.core.peers.Call(ctx, string(n.ID), methodBooks, []byte{1})
		cancel()
		if err != nil { // older, or not there
			a.asker.backoff.failed(key, a.core.cfg.Now())
			return false
		}
		a.modern[n.ID] = true
	}
	a.asker.backoff.worked(key)
	return true
}

// spreadBooks asks for a book where another host keeps two more than this one.
func (a *commons) spreadBooks(ctx context.Context) {
	if a.core.leaving() {
		return
	}
	kept := map[cluster.NodeID][]int{}
	r := a.core.replica.Snapshot().Ring()
	for book := range books {
		kept[keeper(r, book)] = append(kept[keeper(r, book)], book)
	}
	for _, id := range a.core.peers.Alive() {
		if peer := cluster.NodeID(id); len(kept[peer]) >= len(kept[a.core.cfg.Self])+2 {
			last := kept[peer][len(kept[peer])-1]
			a.fetchFrom(ctx, peer, askGive{Kind: giveBook, Within: inBook(last, pages)})
			return
		}
	}
}

// fetchFrom is fetch from one peer.
func (a *commons) fetchFrom(ctx context.Context, peer cluster.NodeID, g askGive) {
	key := g.String() + string(peer)
	if !a.asker.backoff.ready(key, a.core.cfg.Now()) || ctx.Err() != nil {
		return
	}
	if err := a.asker.askPeer(ctx, peer, g); err != nil {
		a.core.cfg.Log.Debug("a book is not to be had", "host", peer, "err", err)
		a.asker.backoff.failed(key, a.core.cfg.Now())
		return
	}
	a.asker.backoff.worked(key)
}

// bookFor returns the blocks of a whole book for a peer that keeps fewer. a.mu is held.
func (a *commons) bookFor(to cluster.NodeID, whole netip.Prefix) ([]netip.Prefix, error) {
	book, page, ok := bookOf(whole)
	if !ok || page != pages {
		return nil, fmt.Errorf("%s is not a book", whole)
	}
	r := a.core.replica.Snapshot().Ring()
	kept := map[cluster.NodeID]int{}
	for b := range books {
		kept[keeper(r, b)]++
	}
	if keeper(r, book) != a.core.cfg.Self || kept[a.core.cfg.Self] < kept[to]+2 {
		return nil, errors.New("has no book to spare")
	}
	var held []netip.Prefix
	for _, p := range slices.Concat(ring.Subtract(outside(), append(r.Owned(Commons, everything[0]), append(r.Owned(Commons, everything[1]), a.core.cfg.CIDRs()...)...)), taken(r), a.collecting) {
		held = append(held, inBook(book, pageOf(p)))
	}
	blocks := ring.Subtract(r.Owned(a.core.cfg.Self, whole), held)
	if len(blocks) > maxAtOnce || !slices.ContainsFunc(blocks, func(b netip.Prefix) bool { return b.Addr() == whole.Addr() }) {
		return nil, fmt.Errorf("keeps a book of which too much is lent (%d parts are left)", len(blocks))
	}
	return blocks, nil
}

// lends says why a line of a book must not be given, if so. a.mu is held.
func (a *commons) lends(page netip.Prefix) error {
	if page.Bits() == pages.Bits() {
		return errors.New("gives no book as a line")
	}
	r := a.core.replica.Snapshot().Ring()
	for _, p := range realOf(page) {
		for _, c := range a.collecting {
			if c.Overlaps(p) {
				return fmt.Errorf("%w: it is making a network of %s", errCollecting, c)
			}
		}
		for _, s := range a.core.subnets() {
			if s.Prefix.Overlaps(p) {
				return fmt.Errorf("%s overlaps the subnet %s of %s", p, s.Prefix, describe(s))
			}
		}
		if !r.OwnsAll(Commons, p) {
			return fmt.Errorf("%s is not free: %s", p, a.ownersOf(p))
		}
	}
	return nil
}

// ownersOf names the hosts that own parts of p, for people.
func (a *commons) ownersOf(p netip.Prefix) string {
	var names []string
	for o := range a.core.replica.Snapshot().Ring().Counts(p) {
		if o != Commons {
			names = append(names, a.core.name(o))
		}
	}
	slices.Sort(names)
	return "host " + strings.Join(names, " and ") + " has it, or a part of it"
}

// errCollecting is a refusal that may be over in a moment.
var errCollecting = errors.New("ask again")

// understood reports whether this host has heard all that those said who wrote the claims
// by which it has a block: also that the numbers behind a line were taken. What it was lent
// for this very purpose the lender has looked at. a.mu is held.
func (a *commons) understood(snap *cluster.Snapshot, line netip.Prefix) bool {
	for c := range snap.Ring().Within(line) {
		v := cluster.Version{Counter: c.Version.Counter, Node: c.Version.By}
		if c.Owner == a.core.cfg.Self && c.Version.By != a.core.cfg.Self && !a.asker.lent[v] && snap.Mark(c.Version.By) < c.Version.Counter {
			return false
		}
	}
	return true
}

// takeCommons makes p, which is the commons', this host's own if it has most of its lines. a.mu is held.
func (a *commons) takeCommons(p netip.Prefix) (took bool, lacking []int, err error) {
	if err := a.core.mayHandOut(); err != nil {
		return false, nil, err
	}
	snap := a.core.replica.Snapshot()
	for book := range books {
		if line := inBook(book, pageOf(p)); !snap.Ring().OwnsAll(a.core.cfg.Self, line) || !a.understood(snap, line) {
			lacking = append(lacking, book)
		}
	}
	if len(lacking) > books-majority {
		return false, lacking, nil
	}
	_, err = a.core.replica.Update(func(tx *replica.Tx) error {
		if !tx.Snapshot().Ring().OwnsAll(Commons, p) {
			return fmt.Errorf("%s is not free any more", p)
		}
		return tx.Put(cluster.Claim{Block: p, Owner: a.core.cfg.Self})
	})
	return err == nil, nil, err
}

// obtainCommons takes p out of the commons.
func (a *commons) obtainCommons(ctx context.Context, p netip.Prefix) error {
	const tries = 4
	for try := 1; ; try++ {
		enough := func() bool { return a.core.replica.Snapshot().Ring().OwnsAll(a.core.cfg.Self, p) }
		err := a.asker.flights.do(ctx, "commons "+p.String(), enough, func() error { return a.tryCommons(ctx, p) })
		if err == nil {
			return nil
		}
		if err := a.giveLinesBack(p); err != nil {
			return err
		}
		// Another host may want the same: one of the two is to come first.
		if !errors.Is(err, errCollecting) || try == tries {
			return err
		}
		select {
		case <-time.After(time.Duration(20+rand.IntN(80<<try)) * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (a *commons) tryCommons(ctx context.Context, p netip.Prefix) error {
	defer a.collects(p)()
	var said []string
	var busy error
	for round := 0; ; round++ {
		a.core.mu.Lock()
		took, lacking, err := a.takeCommons(p)
		a.core.mu.Unlock()
		if took || err != nil {
			return err
		}
		if round == len(lacking) || round == books {
			break
		}
		said, busy = nil, nil
		a.surestFirst(lacking)
		for _, book := range lacking {
			err := a.obtainLine(ctx, inBook(book, pageOf(p)))
			switch {
			case errors.Is(err, errBegun):
				return err
			case errors.Is(err, errCollecting):
				busy = errCollecting
			}
			if err != nil {
				said = append(said, err.Error())
			}
			a.core.mu.Lock()
			took, _, err = a.takeCommons(p)
			a.core.mu.Unlock()
			if took || err != nil {
				return err
			}
		}
		if busy != nil || len(said) > books-majority {
			break
		}
		if !a.awaitWord(ctx) {
			break
		}
	}
	slices.Sort(said)
	err := fmt.Errorf("%w: %s is outside the cluster's ranges, for which %d of the %d copies of the books are needed, which the hosts keep among them: %s",
		ErrNoSpace, p, majority, books, strings.Join(slices.Compact(said), "; "))
	return errors.Join(err, busy)
}

// surestFirst sorts books by their keepers: those that do not seem to answer come last.
func (a *commons) surestFirst(list []int) {
	r, alive := a.core.replica.Snapshot().Ring(), a.core.peers.Alive() // those in doubt are last
	place := func(book int) int {
		i := slices.Index(alive, string(keeper(r, book)))
		if i < 0 {
			return len(alive)
		}
		return i
	}
	slices.SortStableFunc(list, func(x, y int) int { return cmp.Compare(place(x), place(y)) })
}

// awaitWord waits a moment for what others have said and has not come yet.
func (a *commons) awaitWord(ctx context.Context) bool {
	select {
	case <-a.core.replica.Watch():
	case <-time.After(300 * time.Millisecond):
	case <-ctx.Done():
		return false
	}
	return true
}

// collects notes that this host is after p, and so keeps what it gets, until what it
// returns is called.
func (a *commons) collects(p netip.Prefix) (done func()) {
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	a.collecting = append(a.collecting, p)
	return func() {
		a.core.mu.Lock()
		defer a.core.mu.Unlock()
		i := slices.Index(a.collecting, p)
		a.collecting = slices.Delete(a.collecting, i, i+1)
	}
}

// obtainLine asks the owners of a line for it.
func (a *commons) obtainLine(ctx context.Context, line netip.Prefix) error {
	r := a.core.replica.Snapshot().Ring()
	for owner := range r.Counts(line) {
		if owner == a.core.cfg.Self {
			continue
		}
		if !slices.Contains(a.core.peers.Alive(), string(owner)) || a.core.heir(owner) != "" {
			return fmt.Errorf("host %s does not answer", a.core.name(owner))
		}
		for _, piece := range r.Owned(owner, line) {
			if err := a.asker.askPeer(ctx, owner, askGive{Kind: giveExact, Within: piece}); err != nil {
				return fmt.Errorf("host %s: %w", a.core.name(owner), err)
			}
		}
	}
	return nil
}

// giveLinesBack gives lines back at once that were lent for nothing: the numbers did not come here.
func (a *commons) giveLinesBack(p netip.Prefix) error {
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	return a.returnLines(p)
}

// returnLines gives the lines of p to those who keep the books, if it is in the commons. a.mu is held.
func (a *commons) returnLines(p netip.Prefix) error {
	snap := a.core.replica.Snapshot()
	for book := range books {
		for _, c := range a.collecting {
			if pageOf(c).Overlaps(pageOf(p)) {
				return nil
			}
		}
		home := keeper(snap.Ring(), book)
		blocks := snap.Ring().Owned(a.core.cfg.Self, inBook(book, pageOf(p)))
		if _, ok := a.core.heirOf(snap, home); !ok || home == a.core.cfg.Self || len(blocks) == 0 || !a.commonsHas(snap.Ring(), pageOf(p)) {
			continue
		}
		if _, err := a.core.claim(home, blocks...); err != nil {
			return err
		}
	}
	return nil
}

// commonsHas reports whether nobody has anything that shares a page.
func (a *commons) commonsHas(r *ring.Ring, page netip.Prefix) bool {
	return !slices.ContainsFunc(realOf(page), func(p netip.Prefix) bool { return !r.OwnsAll(Commons, p) })
}

// mightTake is what a host could take out of the commons without another's word.
func mightTake(r *ring.Ring, id cluster.NodeID) (out []netip.Prefix) {
	lines := make([][]netip.Prefix, books)
	for book := range books {
		for _, b := range r.Owned(id, inBook(book, pages)) {
			_, page, _ := bookOf(b)
			lines[book] = append(lines[book], page)
		}
	}
	var most []netip.Prefix
	for i := range books {
		for j := range i {
			for k := range j {
				most = append(most, intersect(intersect(lines[i], lines[j]), lines[k])...)
			}
		}
	}
	for _, page := range ring.Union(most) {
		for _, p := range realOf(page) {
			out = append(out, r.Owned(Commons, p)...)
		}
	}
	return ring.Union(out)
}

func intersect(a, b []netip.Prefix) []netip.Prefix { return ring.Subtract(a, ring.Subtract(a, b)) }
