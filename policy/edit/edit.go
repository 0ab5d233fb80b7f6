// Package edit is what people do with policies: apply, delete, list and explain, on what this host knows. Any host may
// change any policy.
package edit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/view"
	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/policy"
	"github.com/grapevine-net/grapevine/policy/k8s"
	"github.com/grapevine-net/grapevine/policy/worlds"
	"github.com/grapevine-net/grapevine/replica"
	"github.com/grapevine-net/grapevine/sshkey"
)

// Replica is the agent's copy of the cluster's state; *replica.Replica is one.
type Replica interface {
	Snapshot() *cluster.Snapshot
	Update(func(*replica.Tx) error) (rev uint64, err error)
	Lost() []cluster.Lost
}

// Desk is where policies are changed and looked at.
type Desk struct {
	Self    cluster.NodeID
	Name    string // of this host
	Replica Replica
	// Enforced returns when this host's switch has what the state was at a revision.
	Enforced func(ctx context.Context, rev uint64) error
	// Lacks is what this host's switch lacks to enforce policies.
	Lacks func() string
	// Told is what this host's containers were told by name; nil: nothing.
	Told func() []policy.Answer
	// Full is who of this host's containers was refused addresses by name of late, and how many each has open; nil: nobody.
	Full func() map[string]int
	// Traffic is who talks to whom, on this host or on all.
	Traffic func(ctx context.Context, all bool) (api.Traffic, error)
	// Unheard says why nothing passes between two addresses, whatever policies say (package former); nil: nothing keeps any apart.
	Unheard func(snap *cluster.Snapshot, from, to netip.Addr) []string
	// Published reports whether labels with a key are told to other hosts.
	Published func(key string) bool
}

// enforcing is how long a change waits for this host's switch to have it, before it returns.
const enforcing = 5 * time.Second

// Apply writes policies: all of the text, or none.
func (d Desk) Apply(ctx context.Context, r api.ApplyRequest) (api.Done, error) {
	list, all, err := d.read(r.Text)
	if err != nil {
		return api.Done{}, err
	}
	for i := range all {
		if list[i].Try { // nothing is enforced of it
			continue
		}
		if err := unsigned(d.Replica.Snapshot(), "`grapevine policy apply`"); err != nil {
			return api.Done{}, err
		}
	}
	lost := map[cluster.Key][]cluster.Version{}
	for _, l := range d.Replica.Lost() {
		lost[l.Edit.Key] = append(lost[l.Edit.Key], l.Edit.Version)
	}
	var lines []string
	rev, err := d.Replica.Update(func(tx *replica.Tx) error {
		lines = nil
		for i, rec := range all {
			old, there := cluster.Get[cluster.Policy](tx.Snapshot(), rec.Key().ID)
			what := "created"
			switch {
			case there && old.Text == rec.Text:
				what = "unchanged"
			case there:
				what = "changed"
			}
			tried := cluster.TrialOf(rec)
			if list[i].Try {
				was, there := cluster.Get[cluster.Trial](tx.Snapshot(), tried.Key().ID)
				if what = "tried"; !there || was.Text != tried.Text {
					_ = tx.Put(tried) // Update reports it
				}
			}
			line := fmt.Sprintf("%s %s is %s", list[i].Kind, list[i].Key, what) + oneFamily(list[i])
			if !list[i].Try && !again(list, list[i].Key) && tx.Delete(tried.Key()) {
				line += ", and is tried no more"
			}
			if _, known := cluster.Get[cluster.Network](tx.Snapshot(), rec.Network); !known && rec.Scope == cluster.ScopeNetwork {
				line += "; there is no network " + rec.Network + ": it selects nothing"
			}
			if lines = append(lines, line); what != "unchanged" && !list[i].Try {
				_ = tx.Put(rec.Over(tx.Snapshot(), lost[rec.Key()]...)) // Update reports it
			}
		}
		return nil
	})
	if err != nil {
		return api.Done{}, fmt.Errorf("apply: %w", err)
	}
	return d.done(ctx, rev, lines), nil
}

// again reports whether a policy is to be tried.
func again(list []policy.Policy, key policy.Key) bool {
	return slices.ContainsFunc(list, func(p policy.Policy) bool { return p.Try && p.Key == key })
}

// read reads policies and their records. Its errors are the user's.
func (d Desk) read(text string) (list []policy.Policy, all []cluster.Policy, err error) {
	if list, err = k8s.Parse([]byte(text)); err != nil {
		return nil, nil, api.Errorf(http.StatusBadRequest, "%v", err)
	}
	for _, p := range list {
		rec := worlds.RecordOf(p.Key)
		rec.Author, rec.Text = d.Name, string(k8s.Format(p))
		if err := errors.Join(d.check(p, rec), d.canFence(p)); err != nil {
			return nil, nil, api.Errorf(http.StatusBadRequest, "%s %s: %v", p.Kind, p.Key, err)
		}
		all = append(all, rec)
	}
	return list, all, nil
}

// Try says what would change if policies were applied, and which of the connections that were seen would be cut. It writes nothing.
func (d Desk) Try(ctx context.Context, r api.ApplyRequest) (api.Trial, error) {
	list, _, err := d.read(r.Text)
	if err != nil {
		return api.Trial{}, err
	}
	snap := d.Replica.Snapshot()
	out := view.Try(snap, d.Self, d.told(), list)
	out.Seen, err = d.replay(ctx, snap, list)
	return out, err
}

func (d Desk) told() []policy.Answer {
	if d.Told == nil {
		return nil
	}
	return d.Told()
}

// check says why a policy cannot be applied.
func (d Desk) check(p policy.Policy, rec cluster.Policy) error {
	if strings.HasPrefix(rec.Network, cluster.ProvisionalPrefix) {
		return fmt.Errorf("%s is no name of a network", rec.Network)
	}
	for _, key := range p.LabelKeys() {
		if key != worlds.HostLabel && !d.Published(key) {
			return fmt.Errorf("the label %s is told to no other host, so that nothing would be selected by it; of Compose's labels those of the project and of the service are", key)
		}
	}
	return cluster.Validate(rec)
}

// done says what was done, once this host's switch has it.
func (d Desk) done(ctx context.Context, rev uint64, lines []string) api.Done {
	wait, cancel := context.WithTimeout(ctx, enforcing)
	defer cancel()
	if err := d.Enforced(wait, rev); err != nil {
		lines = append(lines, "this host's switch does not have it yet: see `grapevine status`")
	}
	snap := d.Replica.Snapshot()
	if names := unenforced(snap); len(names) > 0 {
		lines = append(lines, "policies are not enforced by "+words.Plural(len(names), "host")+" of the cluster: "+strings.Join(names, ", ")+"; see `grapevine status`")
	}
	return api.Done{Text: strings.Join(lines, "\n")}
}

func unenforced(snap *cluster.Snapshot) (names []string) {
	for _, n := range view.Unenforced(snap, worlds.Of(snap, "").Level()) {
		names = append(names, n.Name)
	}
	return names
}

// Delete deletes a policy. One that is tried beside the one in force is deleted alone: nothing opens by the end of a trial.
func (d Desk) Delete(ctx context.Context, r api.DeletePolicyRequest) (api.Done, error) {
	kind, err := k8s.KindOf(r.Kind)
	if err != nil {
		return api.Done{}, api.Errorf(http.StatusBadRequest, "%v", err)
	}
	key := policy.Key{Kind: kind, Network: r.Network, Name: r.Name}
	switch {
	case r.Name == "":
		return api.Done{}, api.Errorf(http.StatusBadRequest, "it has no name")
	case kind != policy.ClusterNetworkPolicy && r.Network == "":
		return api.Done{}, api.Errorf(http.StatusBadRequest, "a policy of this kind is named NETWORK/NAME: %.80q has no network", r.Name)
	case kind == policy.ClusterNetworkPolicy && r.Network != "":
		return api.Done{}, api.Errorf(http.StatusBadRequest, "a ClusterNetworkPolicy is of no network: name it %.80q", r.Name)
	}
	found, said := false, fmt.Sprintf("%s %s is deleted", kind, key)
	rev, err := d.Replica.Update(func(tx *replica.Tx) error {
		was, there := cluster.Get[cluster.Policy](tx.Snapshot(), worlds.KeyOf(key).ID)
		inForce := there && worlds.NameOf(was) == r.Name
		trial := cluster.TrialOf(worlds.RecordOf(key)).Key()
		if tried, there := cluster.Get[cluster.Trial](tx.Snapshot(), trial.ID); there && worlds.NameOf(tried.Policy()) == r.Name && tx.Delete(trial) {
			if found = true; inForce {
				said = fmt.Sprintf("%s %s is tried no more; the one in force stays, until it is deleted too", kind, key)
			}
			return nil
		}
		found = inForce && tx.Delete(worlds.KeyOf(key))
		return nil
	})
	switch {
	case err != nil:
		return api.Done{}, fmt.Errorf("delete %s %s: %w", kind, key, err)
	case !found:
		if err := unsigned(d.Replica.Snapshot(), "`grapevine policy delete`"); err != nil {
			return api.Done{}, err
		}
		return api.Done{}, api.Errorf(http.StatusNotFound, "there is no %s %s: see `grapevine policy list`", kind, key)
	}
	return d.done(ctx, rev, []string{said}), nil
}

// List lists the policies, with edits that were lost.
func (d Desk) List(context.Context) (api.Policies, error) {
	out := view.Policies(d.Replica.Snapshot(), d.Self)
	for _, l := range lostSigned(d.Replica.Snapshot(), d.Replica.Lost()) {
		of := sshkey.Fingerprint(sshkey.Key(l.winner.Signer))
		i := slices.IndexFunc(out.Policies, func(p api.Policy) bool { return p.Signer == of && keyOf(p) == l.winner.Policy().Key() })
		if i >= 0 {
			out.Policies[i].Lost = append(out.Policies[i].Lost, api.LostEdit{Author: l.loser.Author, Version: l.loser.Serial, Text: l.loser.Text})
		}
	}
	for _, l := range d.Replica.Lost() {
		i := slices.IndexFunc(out.Policies, func(p api.Policy) bool {
			return p.Mode != api.ModeTry && p.Signer == "" && keyOf(p) == l.Winner.Key
		})
		if i < 0 {
			continue
		}
		edit, live := l.Edit.Body.(cluster.Policy)
		lost := api.LostEdit{Author: d.Replica.Snapshot().HostName(l.Edit.Version.Node), Version: l.Edit.Version.Counter}
		if live {
			lost.Text = edit.Text
		}
		out.Policies[i].Lost = append(out.Policies[i].Lost, lost)
	}
	return out, nil
}

func keyOf(p api.Policy) cluster.Key {
	kind, err := k8s.KindOf(p.Kind)
	if err != nil {
		return cluster.Key{} // a newer agent's
	}
	return worlds.KeyOf(policy.Key{Kind: kind, Network: p.Network, Name: p.Name})
}

// Explain says whether policies let a connection through.
func (d Desk) Explain(_ context.Context, r api.ExplainRequest) (api.Explanation, error) {
	e, err := view.Explain(d.Replica.Snapshot(), d.Self, d.told(), r)
	if err != nil {
		return e, api.Errorf(http.StatusBadRequest, "%v", err)
	}
	if d.Unheard != nil {
		e.Notes = append(e.Notes, d.Unheard(d.Replica.Snapshot(), e.From.Addr, e.To.Addr)...)
	}
	return e, nil
}

// Problems are what status says of policies.
func (d Desk) Problems(snap *cluster.Snapshot) []api.Problem {
	return slices.Concat(d.enforcing(snap), d.keysDiffer(snap), lostProblems(lostSigned(snap, d.Replica.Lost())))
}

// enforcing are the problems of those that are in force.
func (d Desk) enforcing(snap *cluster.Snapshot) (list []api.Problem) {
	w := worlds.Of(snap, d.Self)
	if w.Level() == 0 {
		return nil
	}
	list = append(list, d.misread(snap)...)
	list = append(list, d.full(snap)...)
	for _, n := range view.Unenforced(snap, w.Level()) {
		p := api.Problem{
			Code: api.PolicyUnenforced,
			What: "host " + n.Name + " does not enforce the cluster's policies: its agent is an older one (" + n.Agent + "), or its switch cannot track connections",
			Do:   "upgrade its agent; if it is of this version, `grapevine status` there says what its switch lacks",
		}
		if n.ID == d.Self {
			p.What = "this host does not enforce the cluster's policies: its switch lacks " + d.Lacks()
			p.Do = "use another datapath (GRAPEVINE_DATAPATH=userspace), or a newer kernel"
		}
		list = append(list, p)
	}
	for _, u := range w.Unread {
		list = append(list, api.Problem{
			Code: api.PolicyUnread,
			What: fmt.Sprintf("policy %s was applied by a newer agent, and this host denies what it does not understand of it: %v", u.Policy.Key().ID, u.Err),
			Do:   "upgrade this host's agent",
		})
	}
	for _, l := range d.Replica.Lost() {
		winner, is := l.Winner.Body.(cluster.Policy)
		if !is {
			continue
		}
		p := view.PolicyName(winner)
		what := "an edit of policy %s on host %s was lost: host %s had changed it at the same time"
		if l.Edit.Body == nil {
			what = "policy %s, which was deleted on host %s, is there again: host %s had changed it at the same time"
		}
		list = append(list, api.Problem{
			Code: api.PolicyLost,
			What: fmt.Sprintf(what, p, snap.HostName(l.Edit.Version.Node), snap.HostName(l.Winner.Version.Node)),
			Do:   "look at both (`grapevine policy get " + p + "`, and with --lost), and apply what it is to be",
		})
	}
	return list
}

// Notes are what status says of policies that is no fault.
func Notes(snap *cluster.Snapshot) (notes []string) {
	for _, p := range cluster.PoliciesOf(snap).InForce() {
		if _, there := cluster.Get[cluster.Network](snap, p.Network); !there && p.Scope == cluster.ScopeNetwork {
			notes = append(notes, "policy "+view.PolicyName(p)+" selects nothing: there is no network "+p.Network)
		}
	}
	return append(notes, notSigned(snap)...)
}
