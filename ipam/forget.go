package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/ipam/ring"
	"github.com/grapevine-net/grapevine/replica"
)

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
func (a *Allocator) Takeover(ctx context.Context, dead ...cluster.NodeID) error {
	if a.cfg.Halt != nil {
		if err := a.cfg.Halt(); err != nil {
			return fmt.Errorf("forget: not on this host now: %w; see `grapevine status`", err)
		}
	}
	others, err := a.electorate(dead)
	if err != nil {
		return err
	}
	if err := a.promise(a.cfg.Self, dead); err != nil {
		return fmt.Errorf("forget: %w", err)
	}
	asked := []cluster.NodeID{}
	for len(others) > 0 {
		peer := others[0]
		asked = append(asked, peer)
		err := a.askPromise(ctx, peer, dead)
		if err != nil {
			err = fmt.Errorf("forget: host %s does not agree: %w", a.name(peer), err)
		} else {
			// Again, since that host may have named others that were not known here.
			others, err = a.electorate(dead)
		}
		if err != nil {
			a.withdraw(context.WithoutCancel(ctx), asked, dead)
			return fmt.Errorf("%w; nothing was changed", err)
		}
		others = slices.DeleteFunc(others, func(n cluster.NodeID) bool { return slices.Contains(asked, n) })
	}
	return a.inherit(dead)
}

// wardenship is a number that is never handed out: the VNID that any number of networks may
// have. Like every number it has one owner at any time, on whichever side of a cut.
var wardenship = single(ring.VNIDAddr(0))

// ErrNotWarden says that it is another host that may take over unasked.
var ErrNotWarden = errors.New("another host decides that")

// Warden returns the one host that may take over from others unasked, "" before the ring
// is known: the cluster's first, or who took over from it when it left or was forgotten.
func (a *Allocator) Warden() cluster.NodeID {
	c, _ := a.replica.Snapshot().Ring().Owner(wardenship.Addr())
	return c.Owner
}

// TakeoverUnasked is Takeover where no person vouches that the silent hosts are gone: they
// may be alive behind a cut, with as good a reason to forget this side. So only the warden
// does it, which is on one side (else the error is ErrNotWarden), and only if it keeps more
// than half of all hosts, lest a warden that is cut off alone forgets the cluster.
func (a *Allocator) TakeoverUnasked(ctx context.Context, silent ...cluster.NodeID) error {
	if a.Warden() != a.cfg.Self {
		return ErrNotWarden
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

// electorate returns the hosts whose promise is needed, all others than the dead, as
// far as they are known here: those of the records, and those that answer, whose record
// may not be here yet.
func (a *Allocator) electorate(dead []cluster.NodeID) (others []cluster.NodeID, err error) {
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
func (a *Allocator) promise(heir cluster.NodeID, dead []cluster.NodeID) error {
	alive := a.peers.Alive()
	a.mu.Lock()
	defer a.mu.Unlock()
	// A promise to an heir that is gone itself binds no more: what it took over is
	// taken over from it now.
	gone := func(heir cluster.NodeID) bool {
		return slices.Contains(dead, heir) || a.replica.Snapshot().Tombstone(cluster.Node{ID: heir}.Key())
	}
	for _, d := range dead {
		other, promised := a.state.promises[d]
		switch {
		case d == a.cfg.Self:
			return errors.New("that host is me, and I am alive")
		case !d.Valid():
			return fmt.Errorf("%.40q is not a host ID", string(d))
		case slices.Contains(alive, string(d)):
			return fmt.Errorf("host %s is alive for host %s", a.name(d), a.name(a.cfg.Self))
		case promised && other != heir && !gone(other):
			return fmt.Errorf("host %s is being forgotten, or was, at host %s; do it there", a.name(d), a.name(other))
		}
	}
	for _, d := range dead {
		a.state.setPromise(d, heir)
	}
	if err := a.state.save(a.disk); err != nil {
		return err
	}
	for _, d := range dead {
		a.promised.Store(d, heir)
	}
	return nil
}

// Promised reports whether this host has promised heir that it may take over from
// dead. It does not block.
func (a *Allocator) Promised(heir, dead cluster.NodeID) bool {
	to, ok := a.promised.Load(dead)
	return ok && to == heir
}

// PromisedAway reports whether this host has promised that another one may take over
// from dead. It does not block.
func (a *Allocator) PromisedAway(dead cluster.NodeID) bool {
	to, ok := a.promised.Load(dead)
	return ok && to != a.cfg.Self
}

func (a *Allocator) askPromise(ctx context.Context, peer cluster.NodeID, dead []cluster.NodeID) error {
	body, err := encode(askForget{Dead: dead})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	b, err := a.peers.Call(ctx, string(peer), methodForget, body)
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
	return a.accept(peer, reply.Claims)
}

// serveForget is the promiser's side of Takeover.
func (a *Allocator) serveForget(_ context.Context, from string, body []byte) ([]byte, error) {
	ask, err := decode[askForget](body)
	if err != nil {
		return nil, err
	}
	heir := cluster.NodeID(from)
	if !heir.Valid() || len(ask.Dead) == 0 {
		return nil, errors.New("malformed request to forget hosts")
	}
	if ask.Withdraw {
		return nil, a.unpromise(heir, ask.Dead)
	}
	if err := a.mayInherit(heir); err != nil {
		return encode(replyForget{Refused: err.Error()})
	}
	if err := a.promise(heir, ask.Dead); err != nil {
		return encode(replyForget{Refused: err.Error()})
	}
	return encode(replyForget{Claims: cluster.Encode(a.testimony(ask.Dead))})
}

// mayInherit refuses heirs that were forgotten and have not heard of it.
func (a *Allocator) mayInherit(heir cluster.NodeID) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mayHave(heir)
}

// testimony returns the claims that this host owns, and those it knows of the
// dead: an owner knows the newest claim on what it owns, so all owners together
// know all that is no longer the dead's. Those the dead wrote are among them
// whoever owns them now: none may reach the heir later than its own claims. It names
// the hosts, too, since one that the heir has not heard of has to promise as well.
func (a *Allocator) testimony(dead []cluster.NodeID) []cluster.Record {
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
func (a *Allocator) withdraw(ctx context.Context, asked, dead []cluster.NodeID) {
	body, err := encode(askForget{Dead: dead, Withdraw: true})
	if err != nil {
		a.cfg.Log.Warn("withdraw forget", "err", err)
		return
	}
	for _, peer := range asked {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		if _, err := a.peers.Call(ctx, string(peer), methodForget, body); err != nil {
			a.cfg.Log.Warn("host was not told that a host is not forgotten after all", "host", a.name(peer), "err", err)
		}
		cancel()
	}
	if err := a.unpromise(a.cfg.Self, dead); err != nil {
		a.cfg.Log.Warn("withdraw forget", "err", err)
	}
}

// unpromise takes back promises to heir; others stay. What the cluster has
// forgotten already stays forgotten.
func (a *Allocator) unpromise(heir cluster.NodeID, dead []cluster.NodeID) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, d := range dead {
		if a.state.promises[d] == heir && !a.replica.Snapshot().Tombstone(cluster.Node{ID: d}.Key()) {
			a.state.dropPromise(d)
			a.promised.Delete(d)
		}
	}
	return a.state.save(a.disk)
}

// inherit claims what the dead own and deletes their records, in one write.
func (a *Allocator) inherit(dead []cluster.NodeID) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, err := a.replica.Update(func(tx *replica.Tx) error {
		snap := tx.Snapshot()
		for _, d := range dead {
			for _, all := range everything {
				for _, block := range snap.Ring().Owned(d, all) {
					_ = tx.Put(cluster.Claim{Block: block, Owner: a.cfg.Self}) // Update reports it
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
	return keys
}
