package overlay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
	"github.com/grapevine-net/grapevine/policy"
)

// policyOf makes the record of a policy whose text is one for a network.
func policyOf(name, spec string) cluster.Policy {
	return cluster.Policy{
		Scope: cluster.ScopeNetwork, Network: "blue", Name: name,
		Text: fmt.Sprintf("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {namespace: blue, name: %s}\nspec: %s\n", name, spec),
	}
}

const dbFromWeb = "{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 5432}]}]}"

func labelled(e cluster.Endpoint, labels ...string) cluster.Endpoint {
	e.Labelled = true
	for i := 0; i < len(labels); i += 2 {
		if e.Labels == nil {
			e.Labels = map[string]string{}
		}
		e.Labels[labels[i]] = labels[i+1]
	}
	return e
}

// memory keeps epochs as the disk does.
type memory struct {
	kept []Epoch
	err  error
}

func (m *memory) Load() ([]Epoch, error) { return slices.Clone(m.kept), nil }

func (m *memory) Save(list, gone []Epoch) error {
	if m.err != nil {
		return m.err
	}
	for _, e := range gone {
		m.kept = slices.DeleteFunc(m.kept, func(o Epoch) bool { return o.Addr == e.Addr && o.Direction == e.Direction })
	}
	for _, e := range list {
		m.kept = append(slices.DeleteFunc(m.kept, func(o Epoch) bool { return o.Addr == e.Addr && o.Direction == e.Direction }), e)
	}
	return nil
}

// agent is what plans, from a start of the agent on.
type agent struct {
	t *testing.T
	w *world
	plans
	disk  *memory
	ports Ports
}

func (a *agent) start() {
	r := reconciler{}
	r.cfg.Epochs = a.disk
	if err := r.planAnew(); err != nil {
		a.t.Fatal(err)
	}
	a.plans = r.plans
}

// enforced is the plan's policy, with what is in force and on the disk.
func (a *agent) enforced() pipeline.Input {
	in, problems := a.plan(a.w.Snapshot(), me, pipeline.HeaderBits, a.ports)
	if len(problems) > 0 {
		a.t.Fatal(problems)
	}
	_ = a.policies.epochs.save()
	if _, err := pipeline.Compile(in); err != nil {
		a.t.Fatal(err)
	}
	return in
}

func TestPlanPolicies(t *testing.T) {
	w := newWorld(t)
	w.hosts()
	w.put(network("blue", 5), subnet("10.128.0.0/22", "blue", "10.128.0.1"))
	db, web := labelled(endpoint(me, 'a', "blue", "10.128.0.7"), "app", "db"), labelled(endpoint(other, 'b', "blue", "10.128.2.7"), "app", "web")
	w.put(db)
	w.by(other, web)
	a := &agent{t: t, w: w, disk: &memory{}, ports: Ports{Endpoints: map[string]uint32{db.ID: 11}}}
	a.start()
	plain := func(in pipeline.Input) bool { return in.Ports[0].Plain }
	if in := a.enforced(); len(in.Policy.Guards)+len(in.Policy.Rules) > 0 || !plain(in) {
		t.Fatalf("without policies: %+v", in.Policy)
	}

	w.by(third, policyOf("db", dbFromWeb))
	in := a.enforced()
	if g := in.Policy.Guards; len(g) != 1 || g[0].Endpoint != db.ID || !g[0].Ingress || g[0].Egress || g[0].IngressEpoch != 1 || g[0].VNID != 5 || plain(in) {
		t.Fatalf("guards %+v, plain %v", g, plain(in))
	}
	peers := func(in pipeline.Input) (addrs []netip.Addr) {
		for _, c := range in.Policy.Classes {
			for _, r := range in.Policy.Rules {
				if slices.Contains(r.Peers, c.ID) {
					addrs = append(addrs, c.Addrs...)
				}
			}
		}
		return addrs
	}
	if got := fmt.Sprint(peers(in)); got != "[10.128.2.7]" {
		t.Errorf("peers %s", got)
	}

	// What says nothing about rules changes nothing.
	web.Aliases = []string{"www"}
	w.by(other, web)
	again := a.enforced()
	if &again.Policy.Guards[0] != &in.Policy.Guards[0] || len(a.disk.kept) != 1 {
		t.Errorf("an alias makes a policy of its own; on the disk %v", a.disk.kept)
	}

	// Another agent goes on with the epoch, and one whose rules are others has the next one.
	a.start()
	if in := a.enforced(); in.Policy.Guards[0].IngressEpoch != 1 {
		t.Errorf("after a start: epoch %d", in.Policy.Guards[0].IngressEpoch)
	}
	unknown := endpoint(third, 'c', "blue", "10.128.3.7")
	w.by(third, unknown)
	if in := a.enforced(); fmt.Sprint(peers(in)) != "[10.128.2.7]" {
		t.Errorf("peers with one of unknown labels: %v", peers(in))
	}
	before := a.enforced().Policy.Guards[0].IngressEpoch
	w.by(third, labelled(unknown, "app", "web"))
	if in := a.enforced(); len(peers(in)) != 2 || in.Policy.Guards[0].IngressEpoch != before+1 {
		t.Errorf("peers %v, epoch %d", peers(in), in.Policy.Guards[0].IngressEpoch)
	}
	a.start()
	w.by(third, policyOf("db", "{podSelector: {matchLabels: {app: db}}}"))
	if in := a.enforced(); in.Policy.Guards[0].IngressEpoch != before+2 || len(peers(in)) != 0 {
		t.Errorf("narrowed while no agent ran: epoch %d, peers %v", in.Policy.Guards[0].IngressEpoch, peers(in))
	}

	// What had been let through under these rules before is not let through when they come back.
	w.end(third, policyOf("db", dbFromWeb).Key())
	if in := a.enforced(); len(in.Policy.Guards) != 0 || !plain(in) {
		t.Errorf("deleted: %+v", in.Policy)
	}
	a.start()
	w.by(third, policyOf("db", "{podSelector: {matchLabels: {app: db}}}"))
	if in := a.enforced(); in.Policy.Guards[0].IngressEpoch != before+3 {
		t.Errorf("back: epoch %d, want %d", in.Policy.Guards[0].IngressEpoch, before+3)
	}

	// One of which nothing is known has the rules that it may have.
	w.put(endpoint(me, 'a', "blue", "10.128.0.7"))
	if in := a.enforced(); len(in.Policy.Guards) != 1 {
		t.Errorf("unknown: %+v", in.Policy)
	}
	// A host that cannot enforce policies leaves connections alone.
	a.powerless, a.snap = true, nil
	if in := a.enforced(); len(in.Policy.Guards) != 0 {
		t.Errorf("powerless: %+v", in.Policy)
	}
}

// TestYoung: rules are young for a while if they are the first ones of who was there before, also for an agent that is started
// meanwhile, and for one that hears of them at its start.
func TestYoung(t *testing.T) {
	w := newWorld(t)
	w.hosts()
	w.put(network("blue", 5), subnet("10.128.0.0/22", "blue", "10.128.0.1"))
	db, later := labelled(endpoint(me, 'a', "blue", "10.128.0.7"), "app", "db"), labelled(endpoint(me, 'c', "blue", "10.128.0.8"), "app", "db")
	w.put(db)
	a := &agent{t: t, w: w, disk: &memory{}, ports: Ports{Endpoints: map[string]uint32{db.ID: 11, later.ID: 12}}}
	a.start()
	want := func(what, young string) {
		t.Helper()
		got := ""
		for _, g := range a.enforced().Policy.Guards {
			got += fmt.Sprintf("%s=%v ", g.Addrs[0], g.Young)
		}
		if got = strings.TrimSpace(got); got != young {
			t.Errorf("%s: %s, want %s", what, got, young)
		}
	}
	want("no rules", "")
	w.by(third, policyOf("db", dbFromWeb))
	want("the first rules", "10.128.0.7=true")
	w.put(later)
	want("a container that comes later", "10.128.0.7=true 10.128.0.8=false")
	a.start()
	want("after a start", "10.128.0.7=true 10.128.0.8=false")
	w.by(third, policyOf("all", "{podSelector: {}, policyTypes: [Egress]}"))
	want("more rules", "10.128.0.7=true 10.128.0.8=false")
	past := func(by time.Duration) {
		for _, one := range a.policies.epochs.known {
			if !one.Young.IsZero() {
				one.Young = one.Young.Add(-by)
				a.policies.epochs.note(one)
			}
		}
		if !a.policies.ripe.IsZero() {
			a.policies.ripe = a.policies.ripe.Add(-by)
		}
	}
	past(youth - time.Minute)
	want("two minutes later", "10.128.0.7=true 10.128.0.8=false")
	past(time.Minute)
	want("when it is over", "10.128.0.7=false 10.128.0.8=false")
	w.end(third, policyOf("db", dbFromWeb).Key())
	w.end(third, policyOf("all", "").Key())
	want("deleted", "")
	a.start()
	w.by(third, policyOf("db", dbFromWeb))
	want("rules that came while no agent ran", "10.128.0.7=true 10.128.0.8=true")
	past(-time.Hour) // the clock is set back
	if until := a.policies.ripe; a.snap == nil || until.IsZero() {
		t.Fatalf("until %s", until)
	}
	a.start()
	want("a clock that was set back", "10.128.0.7=true 10.128.0.8=true")
	if left := time.Until(a.policies.ripe); left > youth {
		t.Errorf("young for %s", left)
	}
}

// TestEpochsComeLate: the number of an address comes again only after all others, whoever has the address.
func TestEpochsComeLate(t *testing.T) {
	disk := &memory{}
	e := &epochs{store: disk}
	four, six := addr("10.128.0.7"), addr("fd00::7")
	guard := policy.Guard{Endpoint: "a", Addrs: []netip.Addr{four, six}, Ingress: true}
	last := map[netip.Addr]uint16{}
	for i := range 70_000 {
		g := guard
		if i%3 == 0 {
			g.Addrs = g.Addrs[:1] // another endpoint, of which IPv6 knows nothing
		}
		n := e.of(g, pipeline.Ingress, uint64(i), time.Time{})
		if again := e.of(g, pipeline.Ingress, uint64(i), time.Time{}); again != n {
			t.Fatalf("the same rules have the numbers %d and %d", n, again)
		}
		for _, a := range g.Addrs {
			if n == 0 || last[a] == n {
				t.Fatalf("step %d: %s has number %d, after %d", i, a, n, last[a])
			}
			last[a] = n
		}
	}
	if n := e.of(guard, pipeline.Egress, 1, time.Time{}); n != 1 {
		t.Errorf("the first of the other direction is %d", n)
	}
	disk.err = errors.New("the disk is full")
	if e.save() == nil || len(disk.kept) != 0 {
		t.Error("saved to a full disk")
	}
	disk.err = nil
	if err := e.save(); err != nil || len(disk.kept) != 4 {
		t.Errorf("%v, on the disk %v", err, disk.kept)
	}
	if err := e.save(); err != nil || len(e.unsaved) != 0 {
		t.Errorf("%v, unsaved %v", err, e.unsaved)
	}
}

// TestEpochsAreBounded: addresses whose containers have gone are forgotten, in memory and on the disk, and none has the
// same number again, over restarts too.
func TestEpochsAreBounded(t *testing.T) {
	disk := &memory{}
	e := &epochs{store: disk}
	steady := policy.Guard{Endpoint: "s", Addrs: []netip.Addr{addr("10.128.0.2")}, Ingress: true}
	number := e.of(steady, pipeline.Ingress, 1, time.Time{})
	last := map[netip.Addr]uint16{}
	for i := range 12_000 {
		a := netip.AddrFrom4([4]byte{10, 129, byte(i * 7919 % 4000 >> 8), byte(i * 7919 % 4000)})
		g := policy.Guard{Endpoint: "g", Addrs: []netip.Addr{a}, Ingress: true}
		n := e.of(g, pipeline.Ingress, 5, time.Time{})
		if n == 0 || last[a] == n {
			t.Fatalf("step %d: %s has the number %d, after %d", i, a, n, last[a])
		}
		last[a] = n
		if e.of(steady, pipeline.Ingress, 1, time.Time{}) != number {
			t.Fatalf("step %d: that of the one that stays is another", i)
		}
		e.drop([]policy.Guard{steady})
		if i%100 == 0 {
			if err := e.save(); err != nil {
				t.Fatal(err)
			}
		}
		if i%1000 == 0 {
			e = &epochs{store: disk}
			if err := e.load(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := e.save(); err != nil || len(e.known) > maxPast+2 || len(disk.kept) > maxPast+3 {
		t.Errorf("%d are known, %d on the disk, %v", len(e.known), len(disk.kept), err)
	}
}

// TestEnforces: a switch that lacks something, or is too old to say, enforces nothing; of one that does not answer it is
// not known, and nothing is done as if it were.
func TestEnforces(t *testing.T) {
	past, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct {
		lacks string
		err   error
		can   bool
		known bool
	}{
		{"", nil, true, true}, {"CT zone", nil, false, true},
		{"", errors.New("\"dpif/show-dp-features\" is not a valid command"), false, true}, {"", errors.New("no answer"), false, false},
	} {
		o := &Overlay{log: slog.Default(), asked: make(chan struct{}), cfg: Config{CannotTrack: func(context.Context) ([]string, error) {
			return strings.Fields(c.lacks), c.err
		}}}
		if can, lacks := o.Enforces(past); can || lacks != "" {
			t.Errorf("before it was asked: %v, %q", can, lacks)
		}
		can, err := o.tracks(context.Background())
		if again, lacks := o.Enforces(past); can != c.can || again != c.can || (err == nil) != c.known || c.known && (lacks == "") != c.can {
			t.Errorf("%+v: %v, %v, then %v, %q", c, can, err, again, lacks)
		}
	}
}
