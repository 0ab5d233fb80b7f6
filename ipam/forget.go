package ipam

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
	"github.com/grapevine-net/grapevine/ring"
)

// forgetter takes over from hosts that are gone, with the promise of all others.
type forgetter struct {
	core  *core
	asker *asker
	// promised has the durable promises: dead host -> heir. Promised reads it
	// without mu, under which the replica may be asking.
	promised sync.Map
	// withdrawn has the last attempt that an heir has withdrawn: its requests may come late.
	withdrawn map[cluster.NodeID]uint64
}

// Everything is all the numbers there are, of both families, VNIDs among them.
var everything = []netip.Prefix{
	netip.PrefixFrom(netip.IPv4Unspecified(), 0),
	netip.PrefixFrom(netip.IPv6Unspecified(), 0),
}

// takeover is Allocator.Takeover.
func (a *forgetter) takeover(ctx context.Context, dead ...cluster.NodeID) error {
	if a.core.cfg.Halt != nil {
		if err := a.core.cfg.Halt(); err != nil {
			return fmt.Errorf("forget: not on this host now: %w; see `grapevine status`", err)
		}
	}
	others, err := a.voters(dead)
	if err != nil {
		return err
	}
	attempt, err := a.promiseSelf(ctx, dead)
	if err != nil {
		return fmt.Errorf("forget: %w", err)
	}
	asked := []cluster.NodeID{}
	for len(others) > 0 {
		asked = append(asked, others...)
		err := a.askPromises(ctx, others, dead, attempt)
		if err == nil {
			// Again, since they may have named others that were not known here.
			others, err = a.voters(dead)
		}
		if err != nil {
			a.withdraw(context.WithoutCancel(ctx), asked, dead, attempt)
			return fmt.Errorf("%w; nothing was changed", err)
		}
		others = slices.DeleteFunc(others, func(n cluster.NodeID) bool { return slices.Contains(asked, n) })
	}
	return a.inherit(dead)
}

// promiseSelf promises that to this host itself, and numbers the attempt.
func (a *forgetter) promiseSelf(ctx context.Context, dead []cluster.NodeID) (attempt uint64, err error) {
	if err := a.absent(ctx, dead); err != nil {
		return 0, err
	}
	a.core.mu.Lock()
	// It rises though the clock goes back, and though the state is one from a backup.
	attempt = max(uint64(a.core.cfg.Now().UnixNano()), a.core.state.attempts[a.core.cfg.Self]+1)
	a.core.state.setAttempt(a.core.cfg.Self, attempt) // with the promise it is saved
	a.core.mu.Unlock()
	return attempt, a.promise(a.core.cfg.Self, dead, attempt)
}

// absent asks hosts that gossip takes for dead to prove that they are there, and is an error
// if one does. What gossip says any host can have said that has the cluster's key.
func (a *forgetter) absent(ctx context.Context, dead []cluster.NodeID) error {
	asks, ctx := errgroup.WithContext(ctx)
	for _, d := range dead {
		asks.Go(func() error {
			if d != a.core.cfg.Self && a.core.cfg.Present(ctx, d) {
				return fmt.Errorf("host %s is alive: host %s has just asked it; run `grapevine leave` there, or stop it for good first", a.core.name(d), a.core.name(a.core.cfg.Self))
			}
			return nil
		})
	}
	return asks.Wait()
}

// coordinatorVNID is a number that is never handed out: the VNID that any number of networks may
// have. Like every number it has one owner at any time, on whichever side of a cut.
var coordinatorVNID = single(ring.VNIDAddr(0))

// ErrNotCoordinator says that it is another host that may take over unasked.
var ErrNotCoordinator = errors.New("another host decides that")

// coordinator is Allocator.Coordinator.
func (a *forgetter) coordinator() cluster.NodeID {
	c, _ := a.core.replica.Snapshot().Ring().Owner(coordinatorVNID.Addr())
	return c.Owner
}

// takeoverUnasked is Allocator.TakeoverUnasked.
func (a *forgetter) takeoverUnasked(ctx context.Context, silent ...cluster.NodeID) error {
	if a.coordinator() != a.core.cfg.Self {
		return ErrNotCoordinator
	}
	all := 0
	for range cluster.All[cluster.Node](a.core.replica.Snapshot()) {
		all++
	}
	if 2*len(silent) >= all {
		return fmt.Errorf("forget: %d of %d hosts do not answer, and without a person's word more than half must be left", len(silent), all)
	}
	return a.takeover(ctx, silent...)
}

// voters returns the hosts whose promise is needed, all others than the dead, as
// far as they are known here: those of the records, and those that answer, whose record
// may not be here yet.
func (a *forgetter) voters(dead []cluster.NodeID) (others []cluster.NodeID, err error) {
	snap := a.core.replica.Snapshot()
	alive := a.core.peers.Alive()
	for _, d := range dead {
		switch {
		case d == a.core.cfg.Self:
			return nil, errors.New("forget: this is the host itself; use `grapevine leave` to take it out of the cluster")
		case slices.Contains(alive, string(d)):
			return nil, fmt.Errorf("forget: host %s is alive; run `grapevine leave` there, or stop it for good first", a.core.name(d))
		}
		_, known := snap.Record(cluster.Node{ID: d}.Key())
		if !known && snap.Ring().Counts(everything[0])[d] == 0 {
			return nil, fmt.Errorf("forget: host %s is not known here; see `grapevine nodes`", d)
		}
	}
	for n := range cluster.All[cluster.Node](snap) {
		if n.ID == a.core.cfg.Self || slices.Contains(dead, n.ID) {
			continue
		}
		if !slices.Contains(alive, string(n.ID)) {
			return nil, fmt.Errorf("forget: host %s does not answer, and every host must agree; bring it back, or forget it in the same command", a.core.name(n.ID))
		}
		others = append(others, n.ID)
	}
	for _, id := range alive {
		if n := cluster.NodeID(id); !slices.Contains(others, n) && !snap.Tombstone(cluster.Node{ID: n}.Key()) {
			others = append(others, n)
		}
	}
	return others, nil
}

// promise notes that heir may take over from the dead, durably, or says why not.
func (a *forgetter) promise(heir cluster.NodeID, dead []cluster.NodeID, attempt uint64) error {
	alive := a.core.peers.Alive()
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	// A promise to an heir that is gone itself binds no more: what it took over is
	// taken over from it now.
	gone := func(heir cluster.NodeID) bool {
		return slices.Contains(dead, heir) || a.core.replica.Snapshot().Tombstone(cluster.Node{ID: heir}.Key())
	}
	if attempt <= a.withdrawn[heir] {
		return fmt.Errorf("host %s has withdrawn this request", a.core.name(heir))
	}
	for _, d := range dead {
		other, promised := a.core.state.promises[d]
		switch {
		case d == a.core.cfg.Self:
			return errors.New("that host is me, and I am alive")
		case !d.Valid() || d == Commons:
			return fmt.Errorf("%.40q is not a host ID", string(d))
		case slices.Contains(alive, string(d)):
			return fmt.Errorf("host %s is alive for host %s", a.core.name(d), a.core.name(a.core.cfg.Self))
		case promised && other != heir && !gone(other):
			return fmt.Errorf("host %s is being forgotten, or was, at host %s; do it there", a.core.name(d), a.core.name(other))
		case promised && other == heir && attempt < a.core.state.attempts[d]:
			return fmt.Errorf("host %s asks to forget host %s by a request from before its last one", a.core.name(heir), a.core.name(d))
		}
	}
	for _, d := range dead {
		a.core.state.setPromise(d, heir, attempt)
	}
	if err := a.core.state.save(a.core.disk); err != nil {
		return err
	}
	for _, d := range dead {
		a.promised.Store(d, heir)
	}
	return nil
}

// mayForget is Allocator.MayForget.
func (a *forgetter) mayForget(heir, dead cluster.NodeID, silent func() bool) bool {
	to, ok := a.promised.Load(dead)
	if ok && to != heir && a.core.replica.Snapshot().Tombstone(cluster.Node{ID: to.(cluster.NodeID)}.Key()) {
		ok = false
	}
	return ok && to == heir || !ok && silent()
}

// promisedAway is Allocator.PromisedAway.
func (a *forgetter) promisedAway(dead cluster.NodeID) bool {
	to, ok := a.promised.Load(dead)
	return ok && to != a.core.cfg.Self
}

// forgetTimeout bounds a forget call: the promiser asks the dead first.
const (
	forgetTimeout = 6 * time.Second
	forgetAtOnce  = 64
)

// askPromises asks hosts, many at once, and waits for all, whatever one says: a promise must
// not be given after it was withdrawn.
func (a *forgetter) askPromises(ctx context.Context, peers, dead []cluster.NodeID, attempt uint64) error {
	var asks errgroup.Group
	asks.SetLimit(forgetAtOnce)
	for _, peer := range peers {
		asks.Go(func() error {
			if err := a.askPromise(ctx, peer, dead, attempt); err != nil {
				return fmt.Errorf("forget: host %s does not agree: %w", a.core.name(peer), err)
			}
			return nil
		})
	}
	return asks.Wait()
}

func (a *forgetter) askPromise(ctx context.Context, peer cluster.NodeID, dead []cluster.NodeID, attempt uint64) error {
	b, err := a.callForget(ctx, peer, askForget{Dead: dead, Attempt: attempt})
	if err != nil {
		return err
	}
	reply, err := decode[replyForget](b)
	switch {
	case err != nil:
		return err
	case reply.Refused != "":
		return errors.New(reply.Refused)
	}
	word := forgetWord{Heir: a.core.cfg.Self, Promiser: peer, Dead: dead, Attempt: attempt, Promised: true, Claims: reply.Claims}
	if err := a.checkWord(peer, word, reply.Signature); err != nil {
		return err
	}
	return a.asker.accept(peer, reply.Claims)
}

func (a *forgetter) callForget(ctx context.Context, peer cluster.NodeID, ask askForget) (reply []byte, err error) {
	ask.Signature, err = a.signWord(forgetWord{Heir: a.core.cfg.Self, Promiser: peer, Dead: ask.Dead, Attempt: ask.Attempt, Withdraw: ask.Withdraw})
	if err != nil {
		return nil, err
	}
	body, err := encode(ask)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, forgetTimeout)
	defer cancel()
	return a.core.peers.Call(ctx, string(peer), methodForget, body)
}

func (w forgetWord) bytes() ([]byte, error) {
	b, err := encode(w)
	return append([]byte("grapevine forget\x00"), b...), err
}

func (a *forgetter) signWord(w forgetWord) ([]byte, error) {
	b, err := w.bytes()
	if err != nil {
		return nil, err
	}
	return a.core.cfg.Sign(b), nil
}

// checkWord is an error if a word is not by a host.
func (a *forgetter) checkWord(by cluster.NodeID, w forgetWord, signature []byte) error {
	b, err := w.bytes()
	if err != nil {
		return err
	}
	if !a.core.cfg.Signed(by, b, signature) {
		return fmt.Errorf("the word of host %s is not signed by it: upgrade it, if its agent is older than that of host %s", a.core.name(by), a.core.name(a.core.cfg.Self))
	}
	return nil
}

// serveForget is the promiser's side of Takeover.
func (a *forgetter) serveForget(ctx context.Context, from string, body []byte) ([]byte, error) {
	ask, err := decode[askForget](body)
	if err != nil {
		return nil, err
	}
	heir := cluster.NodeID(from)
	if !heir.Valid() || len(ask.Dead) == 0 {
		return nil, errors.New("malformed request to forget hosts")
	}
	word := forgetWord{Heir: heir, Promiser: a.core.cfg.Self, Dead: ask.Dead, Attempt: ask.Attempt, Withdraw: ask.Withdraw}
	if err := a.checkWord(heir, word, ask.Signature); err != nil {
		return nil, err
	}
	if ask.Withdraw {
		return nil, a.unpromise(heir, ask.Dead, ask.Attempt)
	}
	if err := a.consent(ctx, heir, ask); err != nil {
		return encode(replyForget{Refused: err.Error()})
	}
	word.Promised, word.Claims = true, cluster.Encode(a.testimony(ask.Dead))
	signature, err := a.signWord(word)
	if err != nil {
		return nil, err
	}
	return encode(replyForget{Claims: word.Claims, Signature: signature})
}

// consent promises what is asked for, or says why not.
func (a *forgetter) consent(ctx context.Context, heir cluster.NodeID, ask askForget) error {
	if err := a.mayInherit(heir); err != nil {
		return err
	}
	if err := a.absent(ctx, ask.Dead); err != nil {
		return err
	}
	return a.promise(heir, ask.Dead, ask.Attempt)
}

// mayInherit refuses heirs that were forgotten and have not heard of it.
func (a *forgetter) mayInherit(heir cluster.NodeID) error {
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	return a.core.mayHave(heir)
}

// testimony returns the claims that this host owns, and those it knows of the
// dead: an owner knows the newest claim on what it owns, so all owners together
// know all that is no longer the dead's. Those the dead wrote are among them
// whoever owns them now: none may reach the heir later than its own claims. It names
// the hosts, too, since one that the heir has not heard of has to promise as well, and brings the word of one of the dead that it
// has left: a Node has one tombstone, and by that others leave out what they need not prove any more (cluster.State.Provable).
func (a *forgetter) testimony(dead []cluster.NodeID) []cluster.Record {
	snap := a.core.replica.Snapshot()
	var recs []cluster.Record
	for n := range cluster.All[cluster.Node](snap) {
		if r, ok := snap.Record(n.Key()); ok {
			recs = append(recs, r)
		}
	}
	for _, d := range dead {
		if snap.Left(d) {
			r, _ := snap.Record(cluster.Node{ID: d}.Key())
			recs = append(recs, r)
		}
	}
	for c := range snap.Ring().Claims() {
		if c.Owner != a.core.cfg.Self && !slices.Contains(dead, c.Owner) && !slices.Contains(dead, c.Version.By) {
			continue
		}
		if r, ok := snap.Record(cluster.Claim{Block: c.Block}.Key()); ok {
			recs = append(recs, r)
		}
	}
	return recs
}

// withdraw releases hosts from the promise they gave, as far as they answer. One
// that does not goes on believing that this host forgets the dead, until this
// host tries again, which it may at any time.
func (a *forgetter) withdraw(ctx context.Context, asked, dead []cluster.NodeID, attempt uint64) {
	for _, peer := range asked {
		if _, err := a.callForget(ctx, peer, askForget{Dead: dead, Attempt: attempt, Withdraw: true}); err != nil {
			a.core.cfg.Log.Warn("host was not told that a host is not forgotten after all", "host", a.core.name(peer), "err", err)
		}
	}
	if err := a.unpromise(a.core.cfg.Self, dead, attempt); err != nil {
		a.core.cfg.Log.Warn("withdraw forget", "err", err)
	}
}

// maxWithdrawn bounds how many heirs' last withdrawals are remembered.
const maxWithdrawn = 1 << 12

// unpromise takes back promises to heir that an attempt of its has got; others stay. What the cluster has
// forgotten already stays forgotten.
func (a *forgetter) unpromise(heir cluster.NodeID, dead []cluster.NodeID, attempt uint64) error {
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	if a.withdrawn[heir] = max(a.withdrawn[heir], attempt); len(a.withdrawn) > maxWithdrawn {
		clear(a.withdrawn)
	}
	for _, d := range dead {
		if a.core.state.promises[d] == heir && a.core.state.attempts[d] == attempt && !a.core.replica.Snapshot().Tombstone(cluster.Node{ID: d}.Key()) {
			a.core.state.dropPromise(d)
			a.promised.Delete(d)
		}
	}
	return a.core.state.save(a.core.disk)
}

// inherit claims what the dead own, for whom it came from or for this host, and deletes their
// records, in one write.
func (a *forgetter) inherit(dead []cluster.NodeID) error {
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	_, err := a.core.replica.Update(func(tx *replica.Tx) error {
		snap := tx.Snapshot()
		for _, d := range dead {
			// What it may have taken out of the commons, unheard: it had most of the lines.
			for _, block := range mightTake(snap.Ring(), d) {
				_ = tx.Put(cluster.Claim{Block: block, Owner: a.core.cfg.Self}) // Update reports it
			}
			owned := homes(tx.Snapshot().Ring(), d, a.core.cfg.Self, func(id cluster.NodeID) bool {
				return id == a.core.cfg.Self || !slices.Contains(dead, id) && a.core.isThere(snap, id)
			})
			for _, to := range slices.Sorted(maps.Keys(owned)) {
				for _, block := range owned[to] {
					_ = tx.Put(cluster.Claim{Block: block, Owner: to}) // Update reports it
				}
			}
			// The tombstone after the claims, which are held until it comes: who has heard
			// all up to it knows what was taken over. It is the first of the records.
			for _, key := range recordsOf(snap, d) {
				tx.Delete(key)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("take over the ranges of %v: %w", dead, err)
	}
	a.core.cfg.Log.Info("took over the ranges of forgotten hosts", "hosts", dead)
	return nil
}

// recordsOf returns the keys of what only that host writes.
func recordsOf(snap *cluster.Snapshot, id cluster.NodeID) []cluster.Key {
	keys := []cluster.Key{cluster.Node{ID: id}.Key()}
	for e := range cluster.Written[cluster.Endpoint](snap, id) {
		keys = append(keys, e.Key())
	}
	for u := range cluster.Written[cluster.Use](snap, id) {
		keys = append(keys, u.Key())
	}
	return append(keys, cluster.Only(snap, id)...)
}

// askForget asks for the promise that the hosts Dead are never asked or believed
// again, for the caller to take over their ranges; or takes that back.
type askForget struct {
	Dead     []cluster.NodeID `cbor:"1,keyasint"`
	Withdraw bool             `cbor:"2,keyasint,omitempty"`
	// Attempt rises from one try of the caller's to the next. What is withdrawn is the
	// promise that was given to this one.
	Attempt uint64 `cbor:"3,keyasint,omitempty"`
	// Signature is that of the caller's forgetWord. Agents of version 2 send none.
	Signature []byte `cbor:"4,keyasint,omitempty"`
}

// replyForget carries all claims that the promiser owns or knows of the dead.
type replyForget struct {
	Claims    []byte `cbor:"1,keyasint,omitempty"`
	Refused   string `cbor:"2,keyasint,omitempty"`
	Signature []byte `cbor:"3,keyasint,omitempty"` // that of the promiser's forgetWord
}

// forgetWord is what the caller and the promiser of a forget call sign, so that nobody else
// can say it in their names, nor again what they once said.
type forgetWord struct {
	Heir, Promiser cluster.NodeID
	Dead           []cluster.NodeID
	Attempt        uint64
	Withdraw       bool
	Promised       bool   // the promiser's word
	Claims         []byte // that come with it
}
