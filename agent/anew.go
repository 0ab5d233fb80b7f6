package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/driver"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/membership/identity"
)

// A host that the cluster has forgotten joins as a new one, by itself. What it was is set
// aside, never deleted: its identity and its state file get names that end in aside and
// the time. The new host takes over nothing of it but what it needs to find its cluster
// again, which may be named nowhere else: the cluster's ID, the hosts that it knew, and the
// gossip keys, whose files stay where they are.

// errForgotten ends the agent's tasks: the cluster has forgotten this host, and its
// identity is noted as spent.
var errForgotten = errors.New("the cluster has forgotten this host")

// aside is in the names of the files of a host that was forgotten.
const aside = ".forgotten-"

// asideRetry is how long a disk that does not take the note gets to be mended.
const asideRetry = 2 * time.Second

// watchForgotten returns errForgotten when the records say that this host was forgotten, the
// other hosts agree, and that is noted for startAnew. While they do not agree, or the note
// cannot be written, it stays what it is, which hands out nothing, and says why.
func (a *Agent) watchForgotten(ctx context.Context) error {
	said, pause := "", verdictPause
	for {
		changed := a.replica.Watch()
		var again <-chan time.Time
		told := errors.Is(a.replica.Trouble(), cluster.ErrForgotten) && !a.leaving.Load()
		if told && !a.forgottenForSure(ctx) {
			told, again, changed = false, time.After(pause), nil
			pause = min(2*pause, verdictPauseMax)
		}
		if told {
			spent := a.id
			spent.Forgotten, spent.Cluster = asideName(a.cfg.State, time.Now()), a.gossip.ClusterID()
			err := spent.Save(a.cfg.State)
			if err == nil {
				a.log.Warn("the cluster has forgotten this host: it sets its state aside and joins as a new host", "node", a.id.Node)
				a.goodbye(ctx)
				return errForgotten
			}
			err = fmt.Errorf("note that this host is forgotten: %w", err)
			if a.spent.Store(&err); err.Error() != said {
				said = err.Error()
				a.log.Error("the cluster has forgotten this host, and its state cannot be set aside; trying again", "err", err)
			}
			again, changed = time.After(asideRetry), nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-again:
		}
	}
}

// goodbye spares the others to look for a host that does not come back.
func (a *Agent) goodbye(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := a.gossip.Leave(ctx); err != nil {
		a.log.Debug("tell the others that this identity ends", "err", err)
	}
}

// asideName is how the names of the files end that are set aside now: as no others do.
func asideName(dir string, now time.Time) string {
	name := aside + now.UTC().Format("20060102-150405")
	for n := 2; ; n++ {
		if taken, _ := filepath.Glob(filepath.Join(dir, "*"+name)); len(taken) == 0 {
			return name
		}
		name, _, _ = strings.Cut(name, "_")
		name = fmt.Sprintf("%s_%d", name, n)
	}
}

// setAside lists the files in dir of hosts that this one was, oldest first.
func setAside(dir string) []string {
	list, _ := filepath.Glob(filepath.Join(dir, "*"+aside+"*")) // bad patterns are its only error
	slices.Sort(list)
	return list
}

// startAnew makes this host a new one if its identity is noted as spent.
func (a *Agent) startAnew() error {
	id, err := spentIdentity(a.cfg.State)
	if err != nil || id.Forgotten == "" {
		return err
	}
	for _, step := range anewSteps(a.cfg.State, id) {
		if err := step(); err != nil {
			return fmt.Errorf("set the state of this host aside, which the cluster has forgotten: %w%s", err, store.Advice(err))
		}
	}
	a.log.Info("this host is a new one; what it was is set aside", "files", setAside(a.cfg.State))
	return nil
}

// spentIdentity reads the identity in dir, if there is one.
func spentIdentity(dir string) (id identity.Identity, err error) {
	if _, err := os.Stat(filepath.Join(dir, identity.File)); errors.Is(err, os.ErrNotExist) {
		return id, nil
	}
	return identity.Load(dir)
}

// anewSteps are what makes the host with the spent identity old a new one, each of them
// whole or not begun after a loss of power. Whoever has done the first few may begin again:
// the old state file is either where it was or aside, and the new identity comes last.
func anewSteps(dir string, old identity.Identity) []func() error {
	state, kept, fresh := filepath.Join(dir, stateFile), filepath.Join(dir, stateFile+old.Forgotten), filepath.Join(dir, stateFile+".new")
	return []func() error{
		func() error {
			was := old
			was.Forgotten = ""
			return was.SaveAs(filepath.Join(dir, identity.File+old.Forgotten))
		},
		func() error {
			from := kept
			if _, err := os.Stat(kept); errors.Is(err, os.ErrNotExist) {
				from = state
			}
			return firstState(from, fresh)
		},
		func() error {
			if _, err := os.Stat(kept); err == nil {
				return nil
			}
			return errors.Join(os.Rename(state, kept), store.SyncDir(dir))
		},
		func() error { return errors.Join(os.Rename(fresh, state), store.SyncDir(dir)) },
		func() error { return old.Anew().Save(dir) },
	}
}

// firstState makes a state file that has of the old one the hosts that it knew, and the names of
// the networks that Docker here has: Docker's first calls are for those, and tell IDs.
func firstState(old, fresh string) error {
	db, err := store.Open(old)
	if err != nil {
		return err
	}
	known, err := knownPeers(db)
	had, herr := driver.FormerNetworks(db)
	if err := errors.Join(err, herr, db.Close()); err != nil {
		return err
	}
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if db, err = store.Open(fresh); err != nil {
		return err
	}
	return errors.Join(putPeers(db, known), had.Save(db), db.Close())
}
