package agent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/ipam"
)

// methodRecall asks what the called host has heard of the caller: the highest
// counter of its writes, 8 bytes.
const methodRecall = "agent.recall"

var (
	errUnproven  = errors.New("its state is from a backup, and not every host has said yet that nothing is missing in it")
	errElsewhere = errors.New("it has another address than before, and is not sure yet that it is not a copy of a host that is still there")
)

// movePatience is how long a host at a new address looks for one of the others, which would
// know of a host that has this ID and is still at the old address.
const movePatience = 3 * time.Second

// halt says why this host must hand out nothing at present: what it takes for its
// own may be another one's.
func (a *Agent) halt() error {
	if err := a.replica.Trouble(); err != nil {
		return err
	}
	if at, ok := a.gossip.Clone(); ok {
		return fmt.Errorf("a host at %s has this host's ID %s", at, a.id.Node)
	}
	return a.doubt()
}

// doubt says why this host may not be the one that its state is of, nil if it is.
func (a *Agent) doubt() error {
	switch {
	case a.unproven.Load():
		return errUnproven
	case a.elsewhere.Load():
		return errElsewhere
	}
	return nil
}

// gate says why this host must write no records: what it writes would have the
// versions of writes that it may have forgotten.
func (a *Agent) gate() error {
	if err := a.doubt(); err != nil {
		return fmt.Errorf("%w: wait until `grapevine status` says that all is well", err)
	}
	return nil
}

// waitProven returns when this host may write, and false if ctx ends first.
func (a *Agent) waitProven(ctx context.Context) bool {
	for a.doubt() != nil {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(100 * time.Millisecond):
		}
	}
	return true
}

// proveMoved finds out, for a host whose address is not that of its Node record, whether it
// has moved or is a copy: then what it writes would draw the other one's traffic here. The
// first host that it meets knows of the other address, and whoever is there proves whether
// it is the other one. Where there is none, it goes on.
func (a *Agent) proveMoved(ctx context.Context) error {
	const look = 50 * time.Millisecond
	end := time.Now().Add(movePatience)
	for met := false; a.elsewhere.Load(); {
		_, cloned := a.gossip.Clone()
		if !cloned && !a.gossip.CloneSought() && (met || !a.hadPeers() || time.Now().After(end)) {
			a.elsewhere.Store(false)
		}
		met = len(a.gossip.Alive()) > 0 // and one more look, since it tells all that it knows one by one
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(look):
		}
	}
	return nil
}

// waitMoved lets Docker's calls wait until proveMoved knows, rather than fail for it.
func (a *Agent) waitMoved(ctx context.Context) {
	for end := time.Now().Add(movePatience); a.elsewhere.Load() && time.Now().Before(end) && ctx.Err() == nil; {
		if _, cloned := a.gossip.Clone(); cloned {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// anewPatience is how long a host that has just become a new one waits for what the others
// know.
const anewPatience = 10 * time.Second

// waitAnew lets Docker's calls wait while a host that was forgotten, and is a new one now, has
// not heard of the networks that it had: at its start Docker asks for their subnets, and
// some releases end for good when they are refused.
func (a *Agent) waitAnew(ctx context.Context) {
	if a.id.Former == "" || a.replica.Settled() {
		return
	}
	select {
	case <-a.replica.CaughtUp():
	case <-ctx.Done():
	case <-time.After(anewPatience):
	}
}

// recall answers methodRecall, to an agent of before the list with the counter alone.
func (a *Agent) recall(_ context.Context, from string, body []byte) ([]byte, error) {
	snap := a.replica.Snapshot()
	if snap.Tombstone(cluster.Node{ID: cluster.NodeID(from)}.Key()) {
		return nil, cluster.ErrForgotten
	}
	r := recollection{highest: snap.Highest(cluster.NodeID(from)), restored: a.unproven.Load()}
	for n := range cluster.All[cluster.Node](snap) {
		r.hosts = append(r.hosts, n.ID)
	}
	text := r.encode()
	if len(body) == 0 {
		if r.restored {
			return nil, errors.New("this host was restored from a backup itself")
		}
		return text[:8], nil
	}
	return text, nil
}

// recollection is the answer to methodRecall:
//
//	highest 8 | restored 1 | hosts 16 each
type recollection struct {
	highest  uint64 // version of what the caller wrote, and the host has heard of
	restored bool   // the host was restored itself, and does not know what it has lost
	hosts    []cluster.NodeID
	old      bool // an older agent's, with nothing but highest
}

const nodeIDSize = 16

func (r recollection) encode() []byte {
	b := binary.BigEndian.AppendUint64(nil, r.highest)
	b = append(b, map[bool]byte{true: 1}[r.restored])
	for _, id := range r.hosts {
		b = append(b, id...)
	}
	return b
}

func decodeRecollection(b []byte) (r recollection, err error) {
	if len(b) != 8 && (len(b) < 9 || (len(b)-9)%nodeIDSize != 0) {
		return r, fmt.Errorf("%d bytes are no answer to %s", len(b), methodRecall)
	}
	r.highest, r.old = binary.BigEndian.Uint64(b), len(b) == 8
	if !r.old {
		r.restored = b[8] != 0
		for rest := b[9:]; len(rest) > 0; rest = rest[nodeIDSize:] {
			r.hosts = append(r.hosts, cluster.NodeID(rest[:nodeIDSize]))
		}
	}
	return r, nil
}

// alonePatience is how long a host that was restored as the only one (`restore --alone`) asks
// all the same, lest somebody knows better.
const alonePatience = 5 * time.Second

// proveRestored asks every host of the cluster, after a restore, whether it has
// heard more of this host than the backup has. If none has, the backup is as good
// as what was lost. If one has, this host must join as a new one. What a host says that was
// restored itself proves nothing: of what both have lost neither knows.
func (a *Agent) proveRestored(ctx context.Context) error {
	if !a.unproven.Load() {
		return nil
	}
	begun, own := time.Now(), a.replica.Snapshot().Mark(a.self()) // as the backup has it
	answers := map[cluster.NodeID]recollection{}                  // of hosts that were not restored
	for {
		waiting, unheard := false, false // unheard: one that is alive has not answered
		for n := range cluster.All[cluster.Node](a.replica.Snapshot()) {
			if _, has := answers[n.ID]; has || n.ID == a.self() {
				continue
			}
			r, err := a.askRecall(ctx, n.ID)
			switch {
			case err != nil:
				waiting, unheard = true, unheard || a.answers(n.ID)
			case r.highest > own:
				a.log.Error("the backup is older than what the cluster knows", "host", n.Name)
				a.replica.Distrust(fmt.Errorf("%w: restored from a backup with write %d, host %s has heard of %d", cluster.ErrLostWrites, own, hostName(a.replica.Snapshot(), n.ID), r.highest))
				return nil
			case !r.restored:
				answers[n.ID] = r
			}
		}
		alone := a.id.Alone && !unheard && time.Since(begun) > alonePatience
		if a.replica.Trouble() == nil && (alone || !waiting && a.vouched(answers)) {
			next := a.id
			next.Restored, next.Alone = false, false
			if err := next.Save(a.cfg.State); err != nil {
				return err
			}
			a.id.Restored, a.id.Alone = false, false
			a.unproven.Store(false)
			a.log.Info("nothing is missing in the backup", "hosts that agree", len(answers), "alone", alone)
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

// vouched reports whether the answers are all that there are to be had, and worth something:
// this host has heard of all hosts that others know, since there may be some since the
// backup, and not all that answered are new, and know only what it has told them itself: those
// own nothing.
func (a *Agent) vouched(answers map[cluster.NodeID]recollection) bool {
	snap := a.replica.Snapshot()
	for _, r := range answers {
		if r.old {
			select {
			case <-a.replica.CaughtUp():
			default:
				return false
			}
		}
		for _, id := range r.hosts {
			if _, known := snap.Record(cluster.Node{ID: id}.Key()); !known {
				return false
			}
		}
	}
	for c := range snap.Ring().Claims() {
		if _, has := answers[c.Owner]; has {
			return true
		}
	}
	return false
}

// hadPeers reports whether there is, or was, another host in the cluster.
func (a *Agent) hadPeers() bool {
	for r := range a.replica.Snapshot().Records() {
		if r.Version.Node != a.self() && r.Version.Node != ipam.Commons {
			return true
		}
	}
	return false
}

func (a *Agent) askRecall(ctx context.Context, id cluster.NodeID) (r recollection, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	b, err := a.gossip.Call(ctx, string(id), methodRecall, []byte{1})
	if err != nil {
		return r, err
	}
	if r, err = decodeRecollection(b); err != nil {
		return r, fmt.Errorf("host %s: %w", id, err)
	}
	return r, nil
}
