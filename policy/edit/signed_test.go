package edit

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/policy"
	"github.com/grapevine-net/grapevine/policy/k8s"
	"github.com/grapevine-net/grapevine/policy/sign"
	"github.com/grapevine-net/grapevine/policy/worlds"
	"github.com/grapevine-net/grapevine/replica"
	"github.com/grapevine-net/grapevine/replica/replicatest"
	"github.com/grapevine-net/grapevine/sshkey"
)

func operator(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
}

func keysOf(keys ...ed25519.PrivateKey) (list []cluster.PublicKey) {
	for _, k := range keys {
		list = append(list, cluster.Public(k))
	}
	return list
}

// guarded is desk, of a host that goes by keys.
func guarded(t *testing.T, keys ...ed25519.PrivateKey) (Desk, *replica.Replica) {
	t.Helper()
	d, plain := desk(t)
	db, err := store.Open(filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	r, err := replica.Open(db, self, replica.GoingBy(keysOf(keys...)))
	if err != nil {
		t.Fatal(err)
	}
	for rec := range plain.Snapshot().Records() {
		if rec.Body != nil {
			replicatest.Put(t, r, rec.Body)
		}
	}
	replicatest.Put(t, r, cluster.Node{ID: self, Name: "host1", Enforces: cluster.EnforcesV4, PolicyKeys: cluster.KeyPrints(keysOf(keys...))})
	d.Replica = r
	return d, r
}

// signs signs as the command does.
func signs(t *testing.T, d Desk, key ed25519.PrivateKey, list ...api.SignedPolicy) api.SignedRequest {
	t.Helper()
	public := cluster.Public(key)
	ask := api.SigningRequest{Key: sshkey.Line(public)}
	for _, p := range list {
		ask.Policies = append(ask.Policies, sign.ID(p))
	}
	known, err := d.Signing(context.Background(), ask)
	if err != nil {
		t.Fatal(err)
	}
	var out api.SignedRequest
	for _, p := range list {
		p, err := sign.Next(p, public, known)
		if err == nil {
			p, err = sign.Signed(p, ed25519.Sign(key, sshkey.Signed(sign.Purpose, sign.Message(p))))
		}
		if err != nil {
			t.Fatal(err)
		}
		out.Policies = append(out.Policies, p)
	}
	return out
}

func applySigned(t *testing.T, d Desk, key ed25519.PrivateKey, text string) string {
	t.Helper()
	list, err := sign.Read(text)
	if err != nil {
		t.Fatal(err)
	}
	done, err := d.ApplySigned(context.Background(), signs(t, d, key, list...))
	if err != nil {
		t.Fatal(err)
	}
	return done.Text
}

// inForce are the policies that a host enforces, as it judges connections by them.
func inForce(d Desk) (text string) {
	w := worlds.Of(d.Replica.Snapshot(), self)
	for i := range w.Records {
		text += w.Policies[i].Key.String() + " "
	}
	return text
}

// TestSigned: a host that goes by keys enforces what they signed, and nothing else; what nobody signed it neither takes nor enforces.
func TestSigned(t *testing.T) {
	alice, bob, eve := operator(1), operator(2), operator(3)
	d, r := guarded(t, alice, bob)
	ctx := context.Background()
	if _, err := d.Apply(ctx, api.ApplyRequest{Text: db}); err == nil || !strings.Contains(err.Error(), "2 keys of GRAPEVINE_POLICY_KEYS signed, and nothing else: give `grapevine policy apply` the file") {
		t.Errorf("unsigned: %v", err)
	}
	named, _ := cluster.Get[cluster.Endpoint](r.Snapshot(), "e2")
	named.Labels = map[string]string{"app": "db", "grapevine.io/name": "db"}
	replicatest.Put(t, r, named)
	if _, err := d.Allow(ctx, api.AllowRequest{From: "any", To: "db:5432"}); err == nil || !strings.Contains(err.Error(), "This would be it:\napiVersion") {
		t.Errorf("allow: %v", err)
	}
	// Another host has applied one.
	other := worlds.RecordOf(readPolicy(t, db).Key)
	other.Text = db
	replicatest.Hear(t, r, "00000000000000bb", other)
	if got := inForce(d); got != "" {
		t.Errorf("in force: %s", got)
	}
	if notes := Notes(r.Snapshot()); len(notes) != 1 || !strings.Contains(notes[0], "is not enforced on this host: blue/db") {
		t.Errorf("notes: %q", notes)
	}
	if e, err := d.Explain(ctx, api.ExplainRequest{From: "new", To: "db", Port: 80}); err != nil || !e.Allowed {
		t.Errorf("unsigned: %+v, %v", e, err)
	}
	if got := applySigned(t, d, alice, db); !strings.Contains(got, "NetworkPolicy blue/db is signed by SHA256:") || !strings.Contains(got, ", serial 1; that of this name without a signature is gone") {
		t.Errorf("signed: %s", got)
	}
	if e, err := d.Explain(ctx, api.ExplainRequest{From: "new", To: "db", Port: 80}); err != nil || e.Allowed {
		t.Errorf("signed: %+v, %v", e, err)
	}
	// A stranger's is kept, and said to be none.
	if got := applySigned(t, d, eve, strings.ReplaceAll(db, "5432", "1")); !strings.Contains(got, "this host does not go by that key") || !strings.Contains(got, "not enforced by hosts with other keys in GRAPEVINE_POLICY_KEYS: host1") {
		t.Errorf("a stranger's: %s", got)
	}
	all, err := d.List(ctx)
	if err != nil || len(all.Policies) != 2 || all.Policies[0].Mode != api.ModeEnforce || all.Policies[0].Serial != 1 || all.Policies[1].Mode != api.ModeIgnored ||
		!strings.Contains(all.Policies[1].Notes[0], "a key that this host does not go by") {
		t.Errorf("%+v, %v", all, err)
	}
	// Bob changes what alice signed, and deletes it; then neither text is back.
	first, _ := sign.Read(db)
	old := signs(t, d, alice, first...) // which she signs, and does not send
	if got := applySigned(t, d, bob, strings.ReplaceAll(db, "5432", "2")); !strings.Contains(got, "serial 2") {
		t.Errorf("bob: %s", got)
	}
	gone, err := sign.Deletion("netpol", "blue", "db")
	if err != nil {
		t.Fatal(err)
	}
	done, err := d.ApplySigned(ctx, signs(t, d, bob, gone))
	if err != nil || !strings.Contains(done.Text, "NetworkPolicy blue/db is deleted, signed by") || inForce(d) != "" {
		t.Errorf("deleted: %v, %v; in force %s", done, err, inForce(d))
	}
	if done, err := d.ApplySigned(ctx, old); err != nil || !strings.Contains(done.Text, "another key has signed a later one") || inForce(d) != "" {
		t.Errorf("an older one: %v, %v; in force %s", done, err, inForce(d))
	}
	if problems := d.Problems(r.Snapshot()); len(problems) != 1 || problems[0].Code != api.PolicyLost || !strings.Contains(problems[0].What, "was lost") {
		t.Errorf("%+v", problems)
	}
	if _, err := d.ApplySigned(ctx, old); err != nil {
		t.Errorf("said again: %v", err)
	}
	if _, err := d.Delete(ctx, api.DeletePolicyRequest{Kind: "netpol", Network: "blue", Name: "db"}); err == nil || !strings.Contains(err.Error(), "--key") {
		t.Errorf("deleted without a key: %v", err)
	}
	applySigned(t, d, alice, db)
	if got := inForce(d); got != "blue/db " {
		t.Errorf("signed anew: %s", got)
	}
	if problems := d.Problems(r.Snapshot()); len(problems) != 0 {
		t.Errorf("%+v", problems)
	}
	// What is only tried needs no signature: it denies nothing.
	apply(t, d, tried(db))
}

// TestSignedRefused: what is wrong with what is signed is said, and nothing of it is written.
func TestSignedRefused(t *testing.T) {
	alice := operator(1)
	d, r := guarded(t, alice)
	list, err := sign.Read(db)
	if err != nil {
		t.Fatal(err)
	}
	good := signs(t, d, alice, list...).Policies[0]
	anew := func(change func(*api.SignedPolicy)) api.SignedPolicy {
		p := good
		change(&p)
		p.Signature = ed25519.Sign(alice, sshkey.Signed(sign.Purpose, sign.Message(p)))
		return p
	}
	forged := good
	forged.Serial = 7
	for name, c := range map[string]struct {
		p    api.SignedPolicy
		want string
	}{
		"forged":         {forged, "its signature is not that of its key"},
		"another's text": {anew(func(p *api.SignedPolicy) { p.Name = "web" }), "its text is that of another one"},
		"no policy":      {anew(func(p *api.SignedPolicy) { p.Text = "x" }), "must be a mapping"},
		"a label":        {anew(func(p *api.SignedPolicy) { p.Text = strings.ReplaceAll(p.Text, "app", "noise") }), "told to no other host"},
		"no key":         {api.SignedPolicy{}, "its key: it is empty"},
	} {
		_, err := d.ApplySigned(context.Background(), api.SignedRequest{Policies: []api.SignedPolicy{good, c.p}})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for range cluster.All[cluster.SignedPolicy](r.Snapshot()) {
		t.Error("something was written")
	}
	if _, err := d.ApplySigned(context.Background(), api.SignedRequest{}); err == nil {
		t.Error("nothing is applied")
	}
	// Two sign at once on two machines.
	one := signs(t, d, alice, list...)
	two := signs(t, d, alice, anew(func(p *api.SignedPolicy) { p.Text = strings.ReplaceAll(p.Text, "5432", "80") }))
	if _, err := d.ApplySigned(context.Background(), two); err != nil {
		t.Fatal(err)
	}
	if _, err := d.ApplySigned(context.Background(), one); err == nil || !strings.Contains(err.Error(), "at the same time") {
		t.Errorf("at the same time: %v", err)
	}
}

// TestSignedWithoutKeys: a host that goes by no keys enforces what nobody signed, and nothing that is signed: not even by a key
// that nobody knows, with the highest serial there is, which no one could ever change.
func TestSignedWithoutKeys(t *testing.T) {
	alice, eve := operator(1), operator(3)
	d, r := desk(t)
	apply(t, d, db)
	thiefs := cluster.SignedPolicy{Scope: cluster.ScopeNetwork, Network: "blue", Name: "db", Serial: cluster.MaxSerial, Text: strings.ReplaceAll(db, "5432", "1")}
	thiefs.Signer = keysOf(eve)[0][:]
	thiefs.Signature = ed25519.Sign(eve, sshkey.Signed(sign.Purpose, thiefs.Message()))
	replicatest.Hear(t, r, "00000000000000cc", thiefs)
	if got := applySigned(t, d, alice, strings.ReplaceAll(db, "5432", "80")); !strings.Contains(got, "serial 1; this host does not go by that key") ||
		!strings.Contains(got, "hosts without GRAPEVINE_POLICY_KEYS enforce what is not signed, and not this") {
		t.Errorf("%s", got)
	}
	var modes []string
	all, err := d.List(context.Background())
	for _, p := range all.Policies {
		modes = append(modes, p.Mode)
	}
	if err != nil || strings.Join(modes, " ") != "enforce ignored ignored" || inForce(d) != "blue/db " {
		t.Errorf("%q, %v, %s", modes, err, inForce(d))
	}
	apply(t, d, strings.ReplaceAll(db, "5432", "2"))
	if _, err := d.Delete(context.Background(), api.DeletePolicyRequest{Kind: "netpol", Network: "blue", Name: "db"}); err != nil || inForce(d) != "" {
		t.Errorf("deleted: %v; in force %s", err, inForce(d))
	}
	other := cluster.Node{ID: "00000000000000bb", Name: "host2", Enforces: cluster.EnforcesV4, PolicyKeys: cluster.KeyPrints(keysOf(alice))}
	replicatest.Hear(t, r, other.ID, other)
	if problems := d.Problems(r.Snapshot()); len(problems) != 1 || problems[0].Code != api.PolicyKeysDiffer || !strings.Contains(problems[0].What, "this host has no GRAPEVINE_POLICY_KEYS, and host host2 has") {
		t.Errorf("%+v", problems)
	}
}

func readPolicy(t *testing.T, text string) policy.Policy {
	t.Helper()
	list, err := k8s.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return list[0]
}
