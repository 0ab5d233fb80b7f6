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
	*core
	*asker
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

// Takeover makes this host the owner of all that hosts own that are gone for
// good, and deletes their Node, Endpoint and Use records. They must not be alive
// now, and can never come back under their identity.
//
// It is safe because every other host of the cluster must first promise, durably,
// to take nothing from the dead any more, and to let no other host take over from
// them; each sends along what it knows. So all that the dead ever gave away, but what
// nobody has heard of, which nobody will believe then, is known here before the rest is
// claimed. If one host cannot promise, nothing is
// changed and the error says which and why: bring that host back, or name it as
// dead as well. Repeating it after success is no error.
func (a *forgetter) Takeover(ctx context.Context, dead ...cluster.NodeID) error {
	if a.cfg.Halt != nil {
		if err := a.cfg.Halt(); err != nil {
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
	a.mu.Lock()
	// It rises though the clock goes back, and though the state is one from a backup.
	attempt = max(uint64(a.cfg.Now().UnixNano()), a.state.attempts[a.cfg.Self]+1)
	a.state.setAttempt(a.cfg.Self, attempt) // with the promise it is saved
	a.mu.Unlock()
	return attempt, a.promise(a.cfg.Self, dead, attempt)
}

// absent asks hosts that gossip takes for dead to prove that they are there, and is an error
// if one does. What gossip says any host can have said that has the cluster's key.
func (a *forgetter) absent(ctx context.Context, dead []cluster.NodeID) error {
	asks, ctx := errgroup.WithContext(ctx)
	for _, d := range dead {
		asks.Go(func() error {
			if d != a.cfg.Self && a.cfg.Present(ctx, d) {
				return fmt.Errorf("host %s is alive: host %s has just asked it; run `grapevine leave` there, or stop it for good first", a.name(d), a.name(a.cfg.Self))
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

// Coordinator returns the one host that may take over from others unasked, "" before the ring
// is known: the cluster's first, or who took over from it when it left or was forgotten.
func (a *forgetter) Coordinator() cluster.NodeID {
	c, _ := a.replica.Snapshot().Ring().Owner(coordinatorVNID.Addr())
	return c.Owner
}

// TakeoverUnasked is Takeover where no person vouches that the silent hosts are gone: they
// may be alive behind a cut, with as good a reason to forget this side. So only the coordinator
// does it, which is on one side (else the error is ErrNotCoordinator), and only if it keeps more
// than half of all hosts, lest a coordinator that is cut off alone forgets the cluster.
func (a *forgetter) TakeoverUnasked(ctx context.Context, silent ...cluster.NodeID) error {
	if a.Coordinator() != a.cfg.Self {
		return ErrNotCoordinator
	}
	all := 0
	for range cluster.All[cluster.Node](a.replica.Snapshot()) {
		all++
	}
	if 2*len(silent) >= all {
		return fmt.Errorf("forget: %d of %d hosts do not answer, and without a person's word more than half must be left", len(silent), all)
	}
	return a.Takeover(ctx, silent...)
}

// voters returns the hosts whose promise is needed, all others than the dead, as
// far as they are known here: those of the records, and those that answer, whose record
// may not be here yet.
func (a *forgetter) voters(dead []cluster.NodeID) (others []cluster.NodeID, err error) {
	snap := a.replica.Snapshot()
	alive := a.peers.Alive()
	for _, d := range dead {
		switch {
		case d == a.cfg.Self:
			return nil, errors.New("forget: this is the host itself; use `grapevine leave` to take it out of the cluster")
		case slices.Contains(alive, string(d)):
			return nil, fmt.Errorf("forget: host %s is alive; run `grapevine leave` there, or stop it for good first", a.name(d))
		}
		_, known := snap.Record(cluster.Node{ID: d}.Key())
		if !known && snap.Ring().Counts(everything[0])[d] == 0 {
			return nil, fmt.Errorf("forget: host %s is not known here; see `grapevine nodes`", d)
		}
	}
	for n := range cluster.All[cluster.Node](snap) {
		if n.ID == a.cfg.Self || slices.Contains(dead, n.ID) {
			continue
		}
		if !slices.Contains(alive, string(n.ID)) {
			return nil, fmt.Errorf("forget: host %s does not answer, and every host must agree; bring it back, or forget it in the same command", a.name(n.ID))
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
	alive := a.peers.Alive()
	a.mu.Lock()
	defer a.mu.Unlock()
	// A promise to an heir that is gone itself binds no more: what it took over is
	// taken over from it now.
	gone := func(heir cluster.NodeID) bool {
		return slices.Contains(dead, heir) || a.replica.Snapshot().Tombstone(cluster.Node{ID: heir}.Key())
	}
	if attempt <= a.withdrawn[heir] {
		return fmt.Errorf("host %s has withdrawn this request", a.name(heir))
	}
	for _, d := range dead {
		other, promised := a.state.promises[d]
		switch {
		case d == a.cfg.Self:
			return errors.New("that host is me, and I am alive")
		case !d.Valid() || d == Commons:
			return fmt.Errorf("%.40q is not a host ID", string(d))
		case slices.Contains(alive, string(d)):
			return fmt.Errorf("host %s is alive for host %s", a.name(d), a.name(a.cfg.Self))
		case promised && other != heir && !gone(other):
			return fmt.Errorf("host %s is being forgotten, or was, at host %s; do it there", a.name(d), a.name(other))
		case promised && other == heir && attempt < a.state.attempts[d]:
			return fmt.Errorf("host %s asks to forget host %s by a request from before its last one", a.name(heir), a.name(d))
		}
	}
	for _, d := range dead {
		a.state.setPromise(d, heir, attempt)
	}
	if err := a.state.save(a.disk); err != nil {
		return err
	}
	for _, d := range dead {
		a.promised.Store(d, heir)
	}
	return nil
}

// MayForget reports whether this host believes that heir has forgotten dead: it has promised
// heir so, and nobody else who is still there; or, where it was not asked, dead is silent. It
// does not block, if silent does not.
func (a *forgetter) MayForget(heir, dead cluster.NodeID, silent func() bool) bool {
	to, ok := a.promised.Load(dead)
	if ok && to != heir && a.replica.Snapshot().Tombstone(cluster.Node{ID: to.(cluster.NodeID)}.Key()) {
		ok = false
	}
	return ok && to == heir || !ok && silent()
}

// PromisedAway reports whether this host has promised that another one may take over
// from dead. It does not block.
func (a *forgetter) PromisedAway(dead cluster.NodeID) bool {
	to, ok := a.promised.Load(dead)
	return ok && to != a.cfg.Self
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
				return fmt.Errorf("forget: host %s does not agree: %w", a.name(peer), err)
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
	word := forgetWord{Heir: a.cfg.Self, Promiser: peer, Dead: dead, Attempt: attempt, Promised: true, Claims: reply.Claims}
	if err := a.checkWord(peer, word, reply.Signature); err != nil {
		return err
	}
	return a.accept(peer, reply.Claims)
}

func (a *forgetter) callForget(ctx context.Context, peer cluster.NodeID, ask askForget) (reply []byte, err error) {
	ask.Signature, err = a.signWord(forgetWord{Heir: a.cfg.Self, Promiser: peer, Dead: ask.Dead, Attempt: ask.Attempt, Withdraw: ask.Withdraw})
	if err != nil {
		return nil, err
	}
	body, err := encode(ask)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, forgetTimeout)
	defer cancel()
	return a.peers.Call(ctx, string(peer), methodForget, body)
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
	return a.cfg.Sign(b), nil
}

// checkWord is an error if a word is not by a host.
func (a *forgetter) checkWord(by cluster.NodeID, w forgetWord, signature []byte) error {
	b, err := w.bytes()
	if err != nil {
		return err
	}
	if !a.cfg.Signed(by, b, signature) {
		return fmt.Errorf("the word of host %s is not signed by it: upgrade it, if its agent is older than that of host %s", a.name(by), a.name(a.cfg.Self))
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
	word := forgetWord{Heir: heir, Promiser: a.cfg.Self, Dead: ask.Dead, Attempt: ask.Attempt, Withdraw: ask.Withdraw}
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
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mayHave(heir)
}

// testimony returns the claims that this host owns, and those it knows of the
// dead: an owner knows the newest claim on what it owns, so all owners together
// know all that is no longer the dead's. Those the dead wrote are among them
// whoever owns them now: none may reach the heir later than its own claims. It names
// the hosts, too, since one that the heir has not heard of has to promise as well.
func (a *forgetter) testimony(dead []cluster.NodeID) []cluster.Record {
	snap := a.replica.Snapshot()
	var recs []cluster.Record
	for n := range cluster.All[cluster.Node](snap) {
		if r, ok := snap.Record(n.Key()); ok {
			recs = append(recs, r)
		}
	}
	for c := range snap.Ring().Claims() {
		if c.Owner != a.cfg.Self && !slices.Contains(dead, c.Owner) && !slices.Contains(dead, c.Version.By) {
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
			a.cfg.Log.Warn("host was not told that a host is not forgotten after all", "host", a.name(peer), "err", err)
		}
	}
	if err := a.unpromise(a.cfg.Self, dead, attempt); err != nil {
		a.cfg.Log.Warn("withdraw forget", "err", err)
	}
}

// maxWithdrawn bounds how many heirs' last withdrawals are remembered.
const maxWithdrawn = 1 << 12

// unpromise takes back promises to heir that an attempt of its has got; others stay. What the cluster has
// forgotten already stays forgotten.
func (a *forgetter) unpromise(heir cluster.NodeID, dead []cluster.NodeID, attempt uint64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.withdrawn[heir] = max(a.withdrawn[heir], attempt); len(a.withdrawn) > maxWithdrawn {
		clear(a.withdrawn)
	}
	for _, d := range dead {
		if a.state.promises[d] == heir && a.state.attempts[d] == attempt && !a.replica.Snapshot().Tombstone(cluster.Node{ID: d}.Key()) {
			a.state.dropPromise(d)
			a.promised.Delete(d)
		}
	}
	return a.state.save(a.disk)
}

// inherit claims what the dead own, for whom it came from or for this host, and deletes their
// records, in one write.
func (a *forgetter) inherit(dead []cluster.NodeID) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, err := a.replica.Update(func(tx *replica.Tx) error {
		snap := tx.Snapshot()
		for _, d := range dead {
			// What it may have taken out of the commons, unheard: it had most of the lines.
			for _, block := range mightTake(snap.Ring(), d) {
				_ = tx.Put(cluster.Claim{Block: block, Owner: a.cfg.Self}) // Update reports it
			}
			owned := homes(tx.Snapshot().Ring(), d, a.cfg.Self, func(id cluster.NodeID) bool {
				return id == a.cfg.Self || !slices.Contains(dead, id) && a.isThere(snap, id)
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
	a.cfg.Log.Info("took over the ranges of forgotten hosts", "hosts", dead)
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
	if a, there := cluster.Get[cluster.Addresses](snap, string(id)); there {
		keys = append(keys, a.Key())
	}
	return keys
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
