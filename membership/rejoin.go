package membership

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/membership/identity"
)

// A host that the cluster has forgotten joins as a new one, by itself. What it was is set
// aside, never deleted: its identity and its state file get names that end in aside and
// the time. The new host takes over nothing of it but what it needs to find its cluster
// again, which may be named nowhere else: the cluster's ID, the hosts that it knew, and the
// gossip keys, whose files stay where they are.

// ErrForgotten ends the agent's tasks: the cluster has forgotten this host, and its
// identity is noted as spent.
var ErrForgotten = errors.New("the cluster has forgotten this host")

// aside is in the names of the files of a host that was forgotten.
const aside = ".forgotten-"

// Rejoiner is the end of an identity, and what a host waits for before it.
type Rejoiner struct {
	*host
	poll  atomic.Pointer[poll]  // of the others, if one says that this host is forgotten
	spent atomic.Pointer[error] // why the state of this host, which is forgotten, cannot be set aside
}

// asideRetry is how long a disk that does not take the note gets to be mended.
const asideRetry = 2 * time.Second

// watchForgotten returns ErrForgotten when the records say that this host was forgotten, the
// other hosts agree, and that is noted for startAnew. While they do not agree, or the note
// cannot be written, it stays what it is, which hands out nothing, and says why.
func (m *Rejoiner) watchForgotten(ctx context.Context) error {
	said, pause := "", pollPause
	for {
		changed := m.replica.Watch()
		var again <-chan time.Time
		told := errors.Is(m.replica.Trouble(), cluster.ErrForgotten) && !m.leaving.Load()
		if told && !m.forgottenForSure(ctx) {
			told, again, changed = false, time.After(pause), nil
			pause = min(2*pause, pollPauseMax)
		}
		if told {
			spent := m.id
			spent.Forgotten, spent.Cluster = asideName(m.cfg.State, time.Now()), m.gossip.ClusterID()
			err := spent.Save(m.cfg.State)
			if err == nil {
				m.log.Warn("the cluster has forgotten this host: it sets its state aside and joins as a new host", "node", m.id.Node)
				m.goodbye(ctx)
				return ErrForgotten
			}
			err = fmt.Errorf("note that this host is forgotten: %w", err)
			if m.spent.Store(&err); err.Error() != said {
				said = err.Error()
				m.log.Error("the cluster has forgotten this host, and its state cannot be set aside; trying again", "err", err)
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
func (m *Rejoiner) goodbye(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := m.gossip.Leave(ctx); err != nil {
		m.log.Debug("tell the others that this identity ends", "err", err)
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

// SetAside lists the files in dir of hosts that this one was, oldest first.
func SetAside(dir string) []string {
	list, _ := filepath.Glob(filepath.Join(dir, "*"+aside+"*")) // bad patterns are its only error
	slices.Sort(list)
	return list
}

// startAnew makes this host a new one if its identity is noted as spent.
func (m *Member) startAnew() error {
	id, err := Known(m.cfg.State)
	if err != nil || id.Forgotten == "" {
		return err
	}
	for _, step := range rejoinSteps(m.cfg.State, id, m.cfg.Carry) {
		if err := step(); err != nil {
			return fmt.Errorf("set the state of this host aside, which the cluster has forgotten: %w%s", err, store.Advice(err))
		}
	}
	m.log.Info("this host is a new one; what it was is set aside", "files", SetAside(m.cfg.State))
	return nil
}

// Known reads the identity in dir, if there is one.
func Known(dir string) (id identity.Identity, err error) {
	if _, err := os.Stat(filepath.Join(dir, identity.File)); errors.Is(err, os.ErrNotExist) {
		return id, nil
	}
	return identity.Load(dir)
}

// rejoinSteps are what makes the host with the spent identity old a new one, each of them
// whole or not begun after a loss of power. Whoever has done the first few may begin again:
// the old state file is either where it was or aside, and the new identity comes last.
func rejoinSteps(dir string, old identity.Identity, carry func(*store.DB) (func(*store.DB) error, error)) []func() error {
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
			return firstState(from, fresh, carry)
		},
		func() error {
			if _, err := os.Stat(kept); err == nil {
				return nil
			}
			return errors.Join(os.Rename(state, kept), store.SyncDir(dir))
		},
		func() error { return errors.Join(os.Rename(fresh, state), store.SyncDir(dir)) },
		func() error { // a key that somebody may have is no new host's
			for _, file := range []string{identity.WireGuardFile, identity.SecondFile, identity.ClientsFile, identity.IPsecFile} {
				if err := os.Remove(filepath.Join(dir, file)); err != nil && !errors.Is(err, os.ErrNotExist) {
					return err
				}
			}
			return store.SyncDir(dir)
		},
		func() error { return old.Anew().Save(dir) },
	}
}

// firstState makes a state file that has of the old one the hosts that it knew, and what is to be
// carried over: the names of the networks that Docker here has, whose IDs Docker's first calls tell.
func firstState(old, fresh string, carry func(*store.DB) (func(*store.DB) error, error)) error {
	db, err := store.Open(old)
	if err != nil {
		return err
	}
	known, err := knownPeers(db)
	take, terr := carry(db)
	if err := errors.Join(err, terr, db.Close()); err != nil {
		return err
	}
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if db, err = store.Open(fresh); err != nil {
		return err
	}
	return errors.Join(putPeers(db, known), take(db), db.Close())
}

// anewPatience is how long a host that has just become a new one waits for what the others
// know.
const anewPatience = 10 * time.Second

// WaitRejoined lets Docker's calls wait while a host that was forgotten, and is a new one now, has
// not heard of the networks that it had: at its start Docker asks for their subnets, and
// some releases end for good when they are refused.
func (m *Rejoiner) WaitRejoined(ctx context.Context) {
	if m.id.Was == "" || m.replica.Settled() {
		return
	}
	select {
	case <-m.replica.CaughtUp():
	case <-ctx.Done():
	case <-time.After(anewPatience):
	}
}
