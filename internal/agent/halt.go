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

var errUnproven = errors.New("its state is from a backup, and not every host has said yet that nothing is missing in it")

// halt says why this host must hand out nothing at present: what it takes for its
// own may be another one's.
func (a *Agent) halt() error {
	if err := a.replica.Trouble(); err != nil {
		return err
	}
	if at, ok := a.gossip.Clone(); ok {
		return fmt.Errorf("a host at %s has this host's ID %s", at, a.id.Node)
	}
	if a.unproven.Load() {
		return errUnproven
	}
	return nil
}

// gate says why this host must write no records: what it writes would have the
// versions of writes that it may have forgotten.
func (a *Agent) gate() error {
	if a.unproven.Load() {
		return fmt.Errorf("%w: wait until `grapevine status` says that all is well", errUnproven)
	}
	return nil
}

// waitProven returns when this host may write, and false if ctx ends first.
func (a *Agent) waitProven(ctx context.Context) bool {
	for a.unproven.Load() {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(100 * time.Millisecond):
		}
	}
	return true
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
