package edit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/view"
	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/policy/k8s"
	"github.com/grapevine-net/grapevine/policy/sign"
	"github.com/grapevine-net/grapevine/policy/worlds"
	"github.com/grapevine-net/grapevine/replica"
	"github.com/grapevine-net/grapevine/sshkey"
)

// Signing says what was signed of policies, by a key and by those that this host goes by.
func (d Desk) Signing(_ context.Context, r api.SigningRequest) (api.Signing, error) {
	snap := d.Replica.Snapshot()
	out := api.Signing{Policies: []api.SignedPolicy{}, Keys: []string{}}
	wanted := map[string]bool{r.Key: true}
	for _, k := range cluster.PoliciesOf(snap).Keys() {
		out.Keys = append(out.Keys, sshkey.Line(k))
		wanted[sshkey.Line(k)] = true
	}
	for p := range cluster.All[cluster.SignedPolicy](snap) {
		if one := sign.Of(p); wanted[one.Key] && slices.Contains(r.Policies, sign.ID(one)) {
			out.Policies = append(out.Policies, one)
		}
	}
	return out, nil
}

// ApplySigned writes policies that operators have signed: all, or none.
func (d Desk) ApplySigned(ctx context.Context, r api.SignedRequest) (api.Done, error) {
	if len(r.Policies) == 0 {
		return api.Done{}, api.Errorf(http.StatusBadRequest, "there is nothing signed in it")
	}
	var recs []cluster.SignedPolicy
	for _, one := range r.Policies {
		rec, err := sign.Record(one)
		if err == nil {
			rec.Author = d.Name
			err = d.checkSigned(rec)
		}
		if err != nil {
			return api.Done{}, api.Errorf(http.StatusBadRequest, "signed policy %.300s: %v", sign.ID(one), err)
		}
		recs = append(recs, rec)
	}
	var lines []string
	rev, err := d.Replica.Update(func(tx *replica.Tx) error {
		lines = nil
		for _, rec := range recs {
			if err := tx.Put(rec); err != nil {
				return err
			}
			lines = append(lines, d.written(tx, rec))
		}
		return nil
	})
	if errors.Is(err, cluster.ErrSerial) {
		return api.Done{}, api.Errorf(http.StatusConflict, "somebody has signed it with this key at the same time: look at what it is now (`grapevine policy get`), and sign again")
	}
	if err != nil {
		return api.Done{}, fmt.Errorf("apply what is signed: %w", err)
	}
	return d.done(ctx, rev, append(lines, goingByOthers(d.Replica.Snapshot(), recs)...)), nil
}

// checkSigned says why what is signed cannot be applied.
func (d Desk) checkSigned(rec cluster.SignedPolicy) error {
	if err := cluster.Validate(rec); err != nil || rec.Text == "" {
		return err
	}
	list, err := k8s.Parse([]byte(rec.Text))
	switch {
	case err != nil:
		return err
	case len(list) != 1 || list[0].Try || worlds.KeyOf(list[0].Key) != rec.Policy().Key():
		return errors.New("its text is that of another one")
	}
	return errors.Join(d.check(list[0], rec.Policy()), d.canFence(list[0]))
}

// written says what became of a policy that was signed. What nobody signed of that name goes, once all hosts go by that key.
func (d Desk) written(tx *replica.Tx, rec cluster.SignedPolicy) string {
	snap := tx.Snapshot()
	line := fmt.Sprintf("%s is signed by %s, serial %d", signedName(rec), sshkey.Fingerprint(sshkey.Key(rec.Signer)), rec.Serial)
	if rec.Text == "" {
		line = fmt.Sprintf("%s is deleted, signed by %s, serial %d", signedName(rec), sshkey.Fingerprint(sshkey.Key(rec.Signer)), rec.Serial)
	}
	holds := false
	for _, one := range cluster.PoliciesOf(snap).All() {
		switch {
		case one.Signed == nil || one.Record.Key != rec.Key():
		case one.Force == cluster.InForce || one.Force == cluster.Ended:
			holds = true
		case one.Force == cluster.ForeignKey:
			line += "; this host does not go by that key (GRAPEVINE_POLICY_KEYS), and does not enforce it"
		case one.Force == cluster.Replaced:
			line += "; another key has signed a later one, which holds: sign it again"
		}
	}
	if !holds || !allGoBy(snap, rec) {
		return line // a host that does not go by that key may enforce the other one
	}
	if tx.Delete(rec.Policy().Key()) {
		line += "; that of this name without a signature is gone"
	}
	if tx.Delete(cluster.TrialOf(rec.Policy()).Key()) {
		line += "; it is tried no more"
	}
	return line
}

// signedName is a signed policy as people name it, with its kind.
func signedName(rec cluster.SignedPolicy) string {
	return view.PolicyKind(rec.Policy()) + " " + view.PolicyName(rec.Policy())
}

// allGoBy reports whether all hosts say that they go by the key with which something was signed.
func allGoBy(snap *cluster.Snapshot, rec cluster.SignedPolicy) bool {
	for n := range cluster.All[cluster.Node](snap) {
		if !cluster.Printed(n.PolicyKeys, cluster.PublicKey(rec.Signer)) {
			return false
		}
	}
	return true
}

// goingByOthers says which hosts do not go by the keys with which something was signed.
func goingByOthers(snap *cluster.Snapshot, recs []cluster.SignedPolicy) (lines []string) {
	var anybodys, others []string
	for n := range cluster.All[cluster.Node](snap) {
		switch {
		case len(n.PolicyKeys) == 0:
			anybodys = append(anybodys, n.Name)
		case slices.ContainsFunc(recs, func(rec cluster.SignedPolicy) bool {
			return !cluster.Printed(n.PolicyKeys, cluster.PublicKey(rec.Signer))
		}):
			others = append(others, n.Name)
		}
	}
	slices.Sort(anybodys)
	slices.Sort(others)
	if len(anybodys) > 0 {
		lines = append(lines, "hosts without GRAPEVINE_POLICY_KEYS enforce what is not signed, and not this: "+strings.Join(anybodys, ", "))
	}
	if len(others) > 0 {
		lines = append(lines, "it is not enforced by hosts with other keys in GRAPEVINE_POLICY_KEYS: "+strings.Join(others, ", "))
	}
	return lines
}

// unsigned says why a policy cannot be changed without a signature by what somebody did.
func unsigned(snap *cluster.Snapshot, what string) error {
	if n := len(cluster.PoliciesOf(snap).Keys()); n > 0 {
		return api.Errorf(http.StatusForbidden, "this host enforces what %s of GRAPEVINE_POLICY_KEYS signed, and nothing else: give %s the file of such a key, with --key", words.Plural(n, "key"), what)
	}
	return nil
}

// keysDiffer are the hosts that go by other keys than this one.
func (d Desk) keysDiffer(snap *cluster.Snapshot) (list []api.Problem) {
	own := cluster.KeyPrints(cluster.PoliciesOf(snap).Keys())
	for n := range cluster.All[cluster.Node](snap) {
		if n.ID == d.Self || bytes.Equal(n.PolicyKeys, own) {
			continue
		}
		p := api.Problem{
			Code: api.PolicyKeysDiffer,
			What: fmt.Sprintf("host %s goes by other keys for policies than this host: it may not enforce the same", n.Name),
			Do:   "set GRAPEVINE_POLICY_KEYS to the same on both, and restart the agent that had it wrong",
		}
		switch {
		case len(n.PolicyKeys) == 0:
			p.What = fmt.Sprintf("host %s has no GRAPEVINE_POLICY_KEYS, or its agent is too old for it (%s), and this host has: it enforces policies that nobody signed, and none that are signed", n.Name, n.Agent)
		case len(own) == 0:
			p.What = fmt.Sprintf("this host has no GRAPEVINE_POLICY_KEYS, and host %s has: this host enforces policies that nobody signed, and none that are signed", n.Name)
		}
		list = append(list, p)
	}
	return list
}

// lostSigned are what operators signed of a policy and others, who did not know of it, have replaced since.
func lostSigned(snap *cluster.Snapshot, lost []cluster.Lost) (list []lostText) {
	for _, l := range lost {
		winner, is := l.Winner.Body.(cluster.SignedPolicy)
		loser, was := l.Edit.Body.(cluster.SignedPolicy)
		if is && was {
			list = append(list, lostText{winner, loser})
		}
	}
	standing := cluster.PoliciesOf(snap).All()
	for _, w := range standing {
		if w.Signed == nil || w.Force != cluster.InForce && w.Force != cluster.Ended {
			continue
		}
		for _, l := range standing {
			if l.Force == cluster.Replaced && l.Policy.Key() == w.Policy.Key() && w.Signed.Misses(*l.Signed) {
				list = append(list, lostText{*w.Signed, *l.Signed})
			}
		}
	}
	return list
}

type lostText struct{ winner, loser cluster.SignedPolicy }

// lostProblems say so.
func lostProblems(list []lostText) (out []api.Problem) {
	for _, l := range list {
		p := view.PolicyName(l.winner.Policy())
		out = append(out, api.Problem{
			Code: api.PolicyLost,
			What: fmt.Sprintf("what %s signed of policy %s (serial %d) was lost: %s had signed it at the same time (serial %d)", sshkey.Fingerprint(sshkey.Key(l.loser.Signer)), p, l.loser.Serial,
				sshkey.Fingerprint(sshkey.Key(l.winner.Signer)), l.winner.Serial),
			Do: "look at both (`grapevine policy get " + p + "`, and with --lost), and sign what it is to be",
		})
	}
	return out
}

// notSigned are the policies that this host does not enforce, as nobody by whose keys it goes has signed them.
func notSigned(snap *cluster.Snapshot) (notes []string) {
	if len(cluster.PoliciesOf(snap).Keys()) == 0 {
		return nil
	}
	var names []string
	for _, one := range cluster.PoliciesOf(snap).All() {
		if one.Force == cluster.Unsigned {
			names = append(names, view.PolicyName(one.Policy))
		}
	}
	if len(names) > 0 {
		const shown = 5
		more := ""
		if len(names) > shown {
			more = ", ..."
		}
		notes = append(notes, "what no key of GRAPEVINE_POLICY_KEYS has signed is not enforced on this host: "+strings.Join(names[:min(shown, len(names))], ", ")+more)
	}
	return notes
}
