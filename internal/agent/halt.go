package agent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
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

// recall answers methodRecall.
func (a *Agent) recall(_ context.Context, from string, _ []byte) ([]byte, error) {
	return binary.BigEndian.AppendUint64(nil, a.replica.Snapshot().Highest(cluster.NodeID(from))), nil
}

// proveRestored asks every host of the cluster, after a restore, whether it has
// heard more of this host than the backup has. If none has, the backup is as good
// as what was lost. If one has, this host must join as a new one.
func (a *Agent) proveRestored(ctx context.Context) error {
	if !a.unproven.Load() {
		return nil
	}
	own := a.replica.Snapshot().Mark(a.self()) // as the backup has it
	agreed := map[cluster.NodeID]bool{a.self(): true}
	for {
		missing := 0
		for n := range cluster.All[cluster.Node](a.replica.Snapshot()) {
			if agreed[n.ID] {
				continue
			}
			known, err := a.askRecall(ctx, n.ID)
			switch {
			case err != nil:
				missing++
			case known > own:
				a.log.Error("the backup is older than what the cluster knows", "host", n.Name)
				a.replica.Distrust(fmt.Errorf("%w: restored from a backup with write %d, host %s has heard of %d", cluster.ErrLostWrites, own, hostName(a.replica.Snapshot(), n.ID), known))
				return nil
			default:
				agreed[n.ID] = true
			}
		}
		// Not before the others' records are here: there may be hosts since the backup.
		if missing == 0 && (len(agreed) > 1 || !a.hadPeers()) && a.replica.Settled() {
			next := a.id
			next.Restored = false
			if err := next.Save(a.cfg.State); err != nil {
				return err
			}
			a.id.Restored = false
			a.unproven.Store(false)
			a.log.Info("every host agrees that nothing is missing in the backup")
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

// hadPeers reports whether there is, or was, another host in the cluster.
func (a *Agent) hadPeers() bool {
	for r := range a.replica.Snapshot().Records() {
		if r.Version.Node != a.self() {
			return true
		}
	}
	return false
}

func (a *Agent) askRecall(ctx context.Context, id cluster.NodeID) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	b, err := a.gossip.Call(ctx, string(id), methodRecall, nil)
	if err != nil {
		return 0, err
	}
	if len(b) != 8 {
		return 0, fmt.Errorf("host %s answers %d bytes to %s", id, len(b), methodRecall)
	}
	return binary.BigEndian.Uint64(b), nil
}
