package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/membership/identity"
	"github.com/grapevine-net/grapevine/replica"
)

// methodFarewell carries the tombstones of a host that leaves to those that stay.
const methodFarewell = "agent.farewell"

// BackByJoin says how a host that has left comes back.
const BackByJoin = "`grapevine join` brings it back, as a new host"

// Told is what this host has been told by who installed it.
func Told(cfg config.Config, managed string) string {
	return identity.Told(managed, joinList(cfg.Join), cfg.Keys)
}

// AtRest returns the note that this host has left, and whether it is to rest. What was told
// anew since is word enough that it is not.
func AtRest(cfg config.Config, managed string, log *slog.Logger) (identity.Left, bool, error) {
	left, there, err := identity.LoadLeft(cfg.State)
	if !there || err != nil {
		return left, false, err
	}
	if left.Settings != "" && left.Settings != Told(cfg, managed) {
		log.Info("this host had left its cluster, and has been told anew", "cluster", left.Cluster)
		return left, false, identity.RemoveLeft(cfg.State)
	}
	return left, true, nil
}

// Leaver takes this host out of its cluster.
type Leaver struct {
	*host
	left  atomic.Bool
	note  identity.Left // that this host has left; noted is why it is not on the disk
	noted error
}

// Leaving says that this host is about to tell the others that it leaves, or has.
func (m *Leaver) Leaving() bool { return m.leaving.Load() }

// Left says that this host has left the cluster.
func (m *Leaver) Left() bool { return m.left.Load() }

// Leave gives away all that this host has, withdraws what it offers, and tells another host
// that it leaves. A step that fails leaves the host able to try again.
func (m *Leaver) Leave(ctx context.Context, force bool, withdraw func(context.Context)) error {
	if here := occupants(m.replica.Snapshot(), m.Self()); len(here) > 0 && !force {
		return &api.Error{Status: http.StatusConflict, Message: attachedText(here) + ": stop or disconnect them first, or leave with --force"}
	}
	if err := m.giveAway(ctx, force); err != nil {
		return err
	}
	withdraw(ctx)
	// What others have given this host meanwhile would go with it.
	if err := m.giveAway(ctx, force); err != nil {
		return err
	}
	m.leaving.Store(true)
	return m.farewell(ctx)
}

// Depart follows Leave: this host notes on its disk that it has left, and is gone.
func (m *Leaver) Depart(ctx context.Context, managed string) {
	m.note = identity.Left{
		Node: m.id.Node, Cluster: m.gossip.ClusterID(), Since: time.Now().UTC().Truncate(time.Second), Settings: Told(m.cfg.Config, managed),
	}
	m.noted = m.note.Save(m.cfg.State)
	if err := m.gossip.Leave(ctx); err != nil {
		m.log.Warn("leave", "err", err) // the others take it for dead, and know better by its tombstone
	}
	m.left.Store(true)
}

// Erase removes the state, with a gossip key that is in the state directory. The note that
// this host has left stays; if it was not taken, as by a disk that is full, it is written now
// that there is room. All tasks have ended.
func (m *Leaver) Erase() error {
	errs := []error{m.db.Close()}
	for _, name := range []string{stateFile, "identity.json", "key", "keyring.json", identity.WireGuardFile, identity.SecondFile, identity.ClientsFile, identity.IPsecFile, "iptables"} {
		if err := os.Remove(filepath.Join(m.cfg.State, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove this host's state: %w", err))
		}
	}
	if m.noted != nil {
		m.noted = m.note.Save(m.cfg.State)
	}
	return errors.Join(append(errs, m.noted)...)
}

// NoteRemains notes beside that this host has left why not everything that the agent made is removed: until somebody has
// cleaned up, status says it.
func (m *Leaver) NoteRemains(why error) error {
	m.note.Remains = why.Error()
	return m.note.Save(m.cfg.State)
}

// Attached counts the endpoints of this host.
func (m *host) Attached() (n int) {
	for e := range cluster.All[cluster.Endpoint](m.replica.Snapshot()) {
		if e.Host == m.Self() {
			n++
		}
	}
	return n
}

// giveAway hands all that this host owns to another one. With force, leases in
// use are dropped, and that nobody is there to take it is no error: then the
// others must forget this host.
func (m *Leaver) giveAway(ctx context.Context, force bool) error {
	if force {
		for _, l := range m.alloc.Leases() {
			err := m.alloc.Unbind(l.Endpoint)
			if err == nil {
				err = m.alloc.Release(l.Addr)
			}
			if err != nil {
				return fmt.Errorf("release %s: %w", l.Addr, err)
			}
		}
	}
	err := m.alloc.Leave(ctx)
	if err != nil && force && len(m.gossip.Alive()) == 0 {
		m.log.Warn("leave without an heir", "err", err)
		return nil
	}
	return err
}

// farewell deletes this host's records, the Node record last, and sees to it
// that another host, if one is there, has this on its disk.
func (m *Leaver) farewell(ctx context.Context) error {
	self := m.Self()
	var keys []cluster.Key
	_, err := m.replica.Update(func(tx *replica.Tx) error {
		keys = keys[:0]
		for e := range cluster.All[cluster.Endpoint](tx.Snapshot()) {
			if e.Host == self {
				keys = append(keys, e.Key())
			}
		}
		for u := range cluster.All[cluster.Use](tx.Snapshot()) {
			if u.Host == self {
				keys = append(keys, u.Key())
			}
		}
		keys = append(keys, cluster.Only(tx.Snapshot(), self)...)
		keys = append(keys, cluster.Node{ID: self}.Key())
		for _, k := range keys {
			tx.Delete(k)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("delete this host's records: %w", err)
	}
	var recs []cluster.Record
	for _, k := range keys {
		if r, ok := m.replica.Snapshot().Record(k); ok {
			recs = append(recs, r)
		}
	}
	return m.tellOne(ctx, cluster.Encode(recs))
}

// tellOne calls one peer after the other until one has the message on its disk.
func (m *Leaver) tellOne(ctx context.Context, message []byte) error {
	var errs []error
	for _, peer := range m.gossip.Alive() {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, err := m.gossip.Call(ctx, peer, methodFarewell, message)
		cancel()
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return fmt.Errorf("tell another host that this one leaves: %w", errors.Join(errs...))
	}
	return nil // alone
}

// hearFarewell is the other side of tellOne.
func (m *Leaver) hearFarewell(ctx context.Context, _ string, message []byte) ([]byte, error) {
	fresh, err := m.replica.Merge(message)
	if len(fresh) > 0 {
		m.gossip.Broadcast(fresh)
	}
	if err != nil {
		return nil, err
	}
	return nil, m.replica.Flush(ctx)
}
