package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
)

// methodFarewell carries the tombstones of a host that leaves to those that stay.
const methodFarewell = "agent.farewell"

// latch is set once.
type latch struct{ atomic.Bool }

// leave takes this host out of the cluster; package api says what that means.
// A step that fails leaves the host able to try again.
func (a *Agent) leave(ctx context.Context, r api.LeaveRequest) (api.Done, error) {
	if a.left.Load() {
		return api.Done{Text: leftText + a.removal(ctx)}, nil
	}
	if here := occupants(a.replica.Snapshot(), a.self()); len(here) > 0 && !r.Force {
		return api.Done{}, &api.Error{Status: http.StatusConflict, Message: attachedText(here) + ": stop or disconnect them first, or leave with --force"}
	}
	if err := a.giveAway(ctx, r.Force); err != nil {
		return api.Done{}, err
	}
	trouble := a.withdraw(ctx)
	text := leftText + a.removal(ctx) + trouble
	// What others have given this host meanwhile would go with it.
	if err := a.giveAway(ctx, r.Force); err != nil {
		return api.Done{}, err
	}
	a.leaving.Store(true)
	if err := a.farewell(ctx); err != nil {
		return api.Done{}, err
	}
	defer close(a.gone)
	noted := a.noteLeft()
	if err := a.gossip.Leave(ctx); err != nil {
		a.log.Warn("leave", "err", err) // the others take it for dead, and know better by its tombstone
	}
	a.left.Store(true)
	a.stopWork()
	<-a.stopped
	if err := errors.Join(a.vswitch.teardown(ctx), a.demolish(noted)); err != nil {
		return api.Done{}, fmt.Errorf("this host has left the cluster, but not everything is removed: %w; `grapevine cleanup` removes the rest when the agent is stopped", err)
	}
	return api.Done{Text: text}, nil
}

const leftText = "This host has left the cluster, and stays out of it, over reboots too: " + backByJoin + ".\n"

// withdraw removes our networks from Docker, and says what hinders it.
func (a *Agent) withdraw(ctx context.Context) string {
	if _, err := a.driver.Withdraw(ctx); err != nil {
		return fmt.Sprintf("\nIts networks are still in Docker (%v): remove them with `docker network rm`.", err)
	}
	return ""
}

// attached counts the endpoints of this host.
func (a *Agent) attached() (n int) {
	for e := range cluster.All[cluster.Endpoint](a.replica.Snapshot()) {
		if e.Host == a.self() {
			n++
		}
	}
	return n
}

// giveAway hands all that this host owns to another one. With force, leases in
// use are dropped, and that nobody is there to take it is no error: then the
// others must forget this host.
func (a *Agent) giveAway(ctx context.Context, force bool) error {
	if force {
		for _, l := range a.alloc.Leases() {
			err := a.alloc.Unbind(l.Endpoint)
			if err == nil {
				err = a.alloc.Release(l.Addr)
			}
			if err != nil {
				return fmt.Errorf("release %s: %w", l.Addr, err)
			}
		}
	}
	err := a.alloc.Leave(ctx)
	if err != nil && force && len(a.gossip.Alive()) == 0 {
		a.log.Warn("leave without an heir", "err", err)
		return nil
	}
	return err
}

// farewell deletes this host's records, the Node record last, and sees to it
// that another host, if one is there, has this on its disk.
func (a *Agent) farewell(ctx context.Context) error {
	self := a.self()
	var keys []cluster.Key
	_, err := a.replica.Update(func(tx *replica.Tx) error {
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
		if r, ok := a.replica.Snapshot().Record(k); ok {
			recs = append(recs, r)
		}
	}
	return a.tellOne(ctx, cluster.Encode(recs))
}

// tellOne calls one peer after the other until one has the message on its disk.
func (a *Agent) tellOne(ctx context.Context, message []byte) error {
	var errs []error
	for _, peer := range a.gossip.Alive() {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, err := a.gossip.Call(ctx, peer, methodFarewell, message)
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
func (a *Agent) hearFarewell(ctx context.Context, _ string, message []byte) ([]byte, error) {
	fresh, err := a.replica.Merge(message)
	if len(fresh) > 0 {
		a.gossip.Broadcast(fresh)
	}
	if err != nil {
		return nil, err
	}
	return nil, a.replica.Flush(ctx)
}

// demolish removes the state, with a gossip key that is in the state directory. The note that
// this host has left stays, and the command line; if the note was not taken, as by a disk that is
// full, it is written now that there is room. All tasks have ended.
func (a *Agent) demolish(noted error) error {
	errs := []error{a.db.Close()}
	for _, name := range []string{stateFile, "identity.json", "key", "keyring.json", "iptables"} {
		if err := os.Remove(filepath.Join(a.cfg.State, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove this host's state: %w", err))
		}
	}
	if noted != nil {
		noted = a.noteLeft()
	}
	return errors.Join(append(errs, noted)...)
}

// forget takes over from hosts that are gone for good.
func (a *Agent) forget(ctx context.Context, r api.ForgetRequest) (api.Done, error) {
	nodes := a.nodes(a.replica.Snapshot())
	var dead []cluster.NodeID
	for _, name := range r.Hosts {
		id, err := a.pickDead(ctx, nodes, name)
		if err != nil {
			return api.Done{}, err
		}
		dead = append(dead, id)
	}
	if len(dead) == 0 {
		return api.Done{}, &api.Error{Status: http.StatusBadRequest, Message: "no host is named: `grapevine nodes` lists them"}
	}
	if err := a.alloc.Takeover(ctx, dead...); err != nil {
		return api.Done{}, err
	}
	a.dropPeers(dead)
	return api.Done{Text: forgottenText(r.Hosts)}, nil
}

// dropPeers no longer dials hosts that are forgotten.
func (a *Agent) dropPeers(forgotten []cluster.NodeID) {
	for _, id := range forgotten {
		a.gossip.Forget(string(id))
	}
}

func forgottenText(hosts []string) string {
	they := "they"
	if len(hosts) == 1 {
		they = "it"
	}
	return fmt.Sprintf("Forgotten: %s. What %s owned is with whom it came from, or with this host.", listed(hosts), they)
}
