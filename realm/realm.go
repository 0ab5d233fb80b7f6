// Package realm is what people say of which networks are one: join, isolate, global. Any host may change any network's.
package realm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
)

// Replica is the agent's copy of the cluster's state; *replica.Replica is one.
type Replica interface {
	Snapshot() *cluster.Snapshot
	Update(func(*replica.Tx) error) (rev uint64, err error)
	Lost() []cluster.Lost
}

// Desk is where it is said.
type Desk struct {
	Name    string // of this host
	Replica Replica
	// Enforced returns when this host's switch has what the state was at a revision.
	Enforced func(ctx context.Context, rev uint64) error
}

// enforcing is how long a change waits for this host's switch to have it, before it returns.
const enforcing = 5 * time.Second

// Change does what is asked for: of all networks, or of none.
func (d Desk) Change(ctx context.Context, r api.RealmRequest) (api.Done, error) {
	decide, known := map[string]func(*cluster.Snapshot, []cluster.Network) (cluster.Realm, error){
		api.RealmJoin: joined, api.RealmIsolate: isolated, api.RealmGlobal: global,
	}[r.Do]
	if !known {
		return api.Done{}, api.Errorf(http.StatusBadRequest, "what is to be done with networks is %.40q: it is %s, %s or %s", r.Do, api.RealmJoin, api.RealmIsolate, api.RealmGlobal)
	}
	lost := map[cluster.Key][]cluster.Version{}
	for _, l := range d.Replica.Lost() {
		lost[l.Edit.Key] = append(lost[l.Edit.Key], l.Edit.Version)
	}
	var names []string
	rev, err := d.Replica.Update(func(tx *replica.Tx) error {
		snap := tx.Snapshot()
		names = nil
		list, err := networks(snap, r.Networks)
		if err != nil {
			return err
		}
		to, err := decide(snap, list)
		if err != nil {
			return err
		}
		for _, n := range list {
			to := to
			to.Network, to.VNID, to.Made, to.Author = n.Name, n.VNID, n.Made, d.Name
			names = append(names, n.Name)
			// Also where it is so already: another host may say something else now, and one of the two is lost.
			_ = tx.Put(to.Over(snap, lost[to.Key()]...)) // Update reports it
		}
		return nil
	})
	switch _, said := errors.AsType[*api.Error](err); {
	case said:
		return api.Done{}, err
	case err != nil:
		return api.Done{}, fmt.Errorf("%s %s: %w", r.Do, strings.Join(r.Networks, " "), err)
	}
	return d.done(ctx, rev, names), nil
}

// networks are those of the names, each once.
func networks(snap *cluster.Snapshot, names []string) (list []cluster.Network, err error) {
	for i, name := range names {
		n, there := cluster.Get[cluster.Network](snap, name)
		switch {
		case !there || n.Provisional():
			return nil, api.Errorf(http.StatusNotFound, "there is no network %.80s: see `grapevine networks`", name)
		case n.VNID == 0:
			return nil, api.Errorf(http.StatusConflict, "network %s was made to reach all others (-o vnid=0), and stays so: make it anew without that", name)
		case slices.Contains(names[:i], name):
			return nil, api.Errorf(http.StatusBadRequest, "network %s is named twice", name)
		}
		list = append(list, n)
	}
	if len(list) == 0 {
		return nil, api.Errorf(http.StatusBadRequest, "no network is named")
	}
	return list, nil
}

// joined is the realm that networks are to be of: that of those which have one, or a new one.
func joined(snap *cluster.Snapshot, list []cluster.Network) (to cluster.Realm, err error) {
	if len(list) < 2 {
		return to, api.Errorf(http.StatusBadRequest, "name the networks that are to be one, two or more")
	}
	all, first := snap.Realms(), ""
	for _, n := range list {
		r := all[n.Name]
		switch {
		case r.Global:
			return to, api.Errorf(http.StatusConflict, "network %s reaches all others already: `grapevine network isolate %s` ends that, and then it can be joined", n.Name, n.Name)
		case r.With != "" && to.With != "" && r.With != to.With:
			return to, api.Errorf(http.StatusConflict, "network %s is joined with %s, and network %s with %s: name all of them after `grapevine network isolate` of the ones, or the others",
				first, strings.Join(all.With(first), " and "), n.Name, strings.Join(all.With(n.Name), " and "))
		case r.With != "":
			to.With, first = r.With, n.Name
		}
	}
	if to.With == "" {
		to.With = number(snap, list)
	}
	return to, nil
}

// number is that of a new realm: the same on two hosts that join the same networks before they hear of each other, and no
// other realm's, also of one that has a single network left.
func number(snap *cluster.Snapshot, list []cluster.Network) string {
	var names []string
	for _, n := range list {
		names = append(names, fmt.Sprintf("%s %d %s", n.Name, n.VNID, n.Made))
	}
	slices.Sort(names)
	taken := map[string]bool{}
	for r := range cluster.All[cluster.Realm](snap) {
		taken[r.With] = true
	}
	for i := 0; ; i++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d %q", i, names))
		if with := hex.EncodeToString(sum[:8]); !taken[with] {
			return with
		}
	}
}

func isolated(*cluster.Snapshot, []cluster.Network) (to cluster.Realm, err error) { return to, nil }

func global(*cluster.Snapshot, []cluster.Network) (cluster.Realm, error) {
	return cluster.Realm{Global: true}, nil
}

// InWords is what a network is, in words, as of a snapshot's realms.
func InWords(all cluster.Realms, name string) string {
	switch with := all.With(name); {
	case all[name].Global:
		return "reaches all networks, and they reach it"
	case len(with) > 0:
		return "is one with " + strings.Join(with, ", ")
	}
	return "is by itself"
}

// done says what was done, once this host's switch has it.
func (d Desk) done(ctx context.Context, rev uint64, names []string) api.Done {
	snap := d.Replica.Snapshot()
	all := snap.Realms()
	var lines []string
	for _, name := range names {
		lines = append(lines, "network "+name+" "+InWords(all, name))
	}
	wait, cancel := context.WithTimeout(ctx, enforcing)
	defer cancel()
	if err := d.Enforced(wait, rev); err != nil {
		lines = append(lines, "this host's switch does not have it yet: see `grapevine status`")
	}
	if old := older(snap); len(old) > 0 && len(all) > 0 {
		lines = append(lines, "hosts with an older agent keep the networks of their containers apart: "+strings.Join(old, ", "))
	}
	return api.Done{Text: strings.Join(lines, "\n")}
}

// older are the hosts whose agents know nothing of realms.
func older(snap *cluster.Snapshot) (names []string) {
	for n := range cluster.All[cluster.Node](snap) {
		if !n.Realms {
			names = append(names, fmt.Sprintf("%s (%s)", n.Name, n.Agent))
		}
	}
	slices.Sort(names)
	return names
}

// Problems are what status says of it.
func (d Desk) Problems(snap *cluster.Snapshot) (list []api.Problem) {
	if all := snap.Realms(); len(all) > 0 {
		for _, host := range older(snap) {
			list = append(list, api.Problem{
				Code: api.NetworksApart,
				What: "host " + host + " has an older agent, which keeps networks apart for its containers that are one: " + strings.Join(slices.Sorted(maps.Keys(all)), ", "),
				Do:   "upgrade its agent",
			})
		}
	}
	for _, l := range d.Replica.Lost() {
		edit, is := l.Edit.Body.(cluster.Realm)
		if winner, live := l.Winner.Body.(cluster.Realm); !is || live && edit.Same(winner) {
			continue
		}
		list = append(list, api.Problem{
			Code: api.NetworkWordLost,
			What: fmt.Sprintf("what host %s said of network %s (%s) was lost: host %s said something else at the same time", edit.Author, edit.Network, word(edit), snap.HostName(l.Winner.Version.Node)),
			Do:   "say again what it is to be: grapevine network join, isolate or global",
		})
	}
	return list
}

// word is the command that a record comes of.
func word(r cluster.Realm) string {
	switch {
	case r.Global:
		return api.RealmGlobal
	case r.With != "":
		return api.RealmJoin
	}
	return api.RealmIsolate
}

// Notes are what is no fault: networks that were one with others, and were made anew since.
func Notes(snap *cluster.Snapshot) (notes []string) {
	for r := range cluster.All[cluster.Realm](snap) {
		n, there := cluster.Get[cluster.Network](snap, r.Network)
		if there && n.VNID != 0 && !r.Applies(n) && (r.Global || r.With != "") {
			notes = append(notes, fmt.Sprintf("network %s was made anew since `grapevine network %s`, and is by itself: say it again, or `grapevine network isolate %s`", n.Name, word(r), n.Name))
		}
	}
	return notes
}
