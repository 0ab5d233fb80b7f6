package realm

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
	"github.com/grapevine-net/grapevine/replica/replicatest"
)

const self = cluster.NodeID("00000000000000aa")

// desk is one of a host with the networks blue, red, green and grey, and zero of VNID 0.
func desk(t *testing.T) (Desk, *replica.Replica) {
	t.Helper()
	r := replicatest.New(t, self, cluster.Node{ID: self, Name: "host1", Agent: "v2", Realms: true}, cluster.Network{Name: "blue", VNID: 1}, cluster.Network{Name: "red", VNID: 2},
		cluster.Network{Name: "green", VNID: 3}, cluster.Network{Name: "grey", VNID: 4}, cluster.Network{Name: "zero"})
	return Desk{Name: "host1", Replica: r, Enforced: func(context.Context, uint64) error { return nil }}, r
}

// TestChange: what is said is done, what cannot be is an error and changes nothing.
func TestChange(t *testing.T) {
	d, r := desk(t)
	for i, c := range []struct{ do, want string }{
		{"join blue", "two or more"}, {"join blue blue", "named twice"}, {"join blue nowhere", "there is no network nowhere"},
		{"join blue zero", "-o vnid=0"}, {"part blue red", "it is join, isolate or global"}, {"isolate", "no network is named"},
		{"isolate blue", "network blue is by itself"},
		{"join blue red", "network blue is one with red\nnetwork red is one with blue"},
		{"join green grey", "network green is one with grey"},
		{"join blue green", "network blue is joined with red, and network green with grey"},
		{"isolate green", "network green is by itself"},
		{"join green blue", "network green is one with blue, red\nnetwork blue is one with green, red"},
		{"global red", "network red reaches all networks, and they reach it"},
		{"join red grey", "network red reaches all others already"},
		{"isolate red grey", "network red is by itself\nnetwork grey is by itself"},
		{"join blue green", "network blue is one with green\n"},
	} {
		words := strings.Fields(c.do)
		before := r.Snapshot().Rev()
		done, err := d.Change(context.Background(), api.RealmRequest{Do: words[0], Networks: words[1:]})
		text := done.Text + "\n"
		if err != nil {
			if text = err.Error(); r.Snapshot().Rev() != before {
				t.Errorf("%d: %s is an error and has changed something", i, c.do)
			}
		}
		if !strings.Contains(text, c.want) {
			t.Errorf("%d: %s: %q, %v; want %q", i, c.do, done.Text, err, c.want)
		}
	}
	if p := d.Problems(r.Snapshot()); len(p) != 0 {
		t.Errorf("%+v", p)
	}
}

// TestSaid: status names hosts that keep apart what is one, words that were lost, and networks that were made anew.
func TestSaid(t *testing.T) {
	d, r := desk(t)
	ctx := context.Background()
	replicatest.Put(t, r, cluster.Network{Name: "blue", VNID: 1, Made: "x"})
	join := api.RealmRequest{Do: api.RealmJoin, Networks: []string{"blue", "red"}}
	if _, err := d.Change(ctx, join); err != nil {
		t.Fatal(err)
	}
	other := cluster.New("00000000000000bb")
	say := func(b cluster.Body) {
		t.Helper()
		rec, _, err := other.Put(b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Merge(cluster.Encode([]cluster.Record{rec})); err != nil {
			t.Fatal(err)
		}
	}
	say(cluster.Node{ID: other.Self(), Name: "host2", Agent: "v1"})
	for range 20 { // its versions are above ours
		say(cluster.Network{Name: "busy", VNID: 9})
		say(cluster.Network{Name: "busy", VNID: 9, MTU: 1400})
	}
	all := func() string {
		var lines []string
		for _, p := range d.Problems(r.Snapshot()) {
			lines = append(lines, string(p.Code)+": "+p.What)
		}
		return strings.Join(lines, "\n")
	}
	if want := "networks-apart: host host2 (v1) has an older agent"; !strings.Contains(all(), want) {
		t.Errorf("want %q in\n%s", want, all())
	}
	say(cluster.Realm{Network: "red", VNID: 2, Author: "host2"})
	if want := "network-word-lost: what host host1 said of network red (join) was lost: host host2 said"; !strings.Contains(all(), want) || strings.Contains(all(), "apart") {
		t.Errorf("want %q alone, not\n%s", want, all())
	}
	if done, err := d.Change(ctx, join); err != nil || !strings.Contains(done.Text, "network red is one with blue") || !strings.Contains(done.Text, "apart: host2 (v1)") {
		t.Errorf("%q, %v", done.Text, err)
	}
	if strings.Contains(all(), "lost") {
		t.Errorf("settled, and %s", all())
	}
	if notes := Notes(r.Snapshot()); len(notes) != 0 {
		t.Errorf("%q", notes)
	}
	replicatest.Put(t, r, cluster.Network{Name: "blue", VNID: 1, Made: "y"})
	if notes := Notes(r.Snapshot()); len(notes) != 1 || !strings.Contains(notes[0], "network blue was made anew since `grapevine network join`") {
		t.Errorf("%q", notes)
	}
	if _, err := d.Change(ctx, api.RealmRequest{Do: api.RealmIsolate, Networks: []string{"blue"}}); err != nil || len(Notes(r.Snapshot())) != 0 {
		t.Errorf("%v, %q", err, Notes(r.Snapshot()))
	}
}

// TestAtOnce: of what two hosts say before they hear of each other something holds on both, and what is lost is named. What
// both say alike is not lost.
func TestAtOnce(t *testing.T) {
	for _, c := range []struct{ before, one, two, together, lost string }{
		{"", "join blue red", "isolate blue", "", "blue"},
		{"", "isolate blue red", "join red green", "", "red"},
		{"join blue red", "isolate blue", "join blue green", "", "blue"},
		{"join blue red", "join red blue", "isolate red", "", "red"},
		{"", "join blue red", "join red blue", "blue red", ""},
		{"join blue red", "isolate blue red", "isolate red blue", "", ""},
		{"", "global blue", "global blue", "", ""},
		{"", "global blue", "isolate blue", "", "blue"},
	} {
		var desks []Desk
		var replicas []*replica.Replica
		for i, id := range []cluster.NodeID{self, "00000000000000bb"} {
			r := replicatest.New(t, id, cluster.Node{ID: id, Name: fmt.Sprint("host", i+1), Realms: true})
			desks, replicas = append(desks, Desk{Name: fmt.Sprint("host", i+1), Replica: r, Enforced: func(context.Context, uint64) error { return nil }}), append(replicas, r)
		}
		replicatest.Put(t, replicas[0], cluster.Network{Name: "blue", VNID: 1}, cluster.Network{Name: "red", VNID: 2}, cluster.Network{Name: "green", VNID: 3})
		meet := func() {
			t.Helper()
			for i := range 4 {
				from, to := replicas[i%2], replicas[(i+1)%2]
				for msg := range from.Missing(to.Digest(), 1<<16) {
					if _, err := to.Merge(msg); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		say := func(d Desk, what string) {
			t.Helper()
			words := strings.Fields(what)
			if len(words) == 0 {
				return
			}
			if _, err := d.Change(context.Background(), api.RealmRequest{Do: words[0], Networks: words[1:]}); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		meet()
		say(desks[0], c.before)
		meet()
		say(desks[0], c.one)
		say(desks[1], c.two)
		meet()
		var named, standing [2]string
		for i, r := range replicas {
			snap := r.Snapshot()
			for _, p := range desks[i].Problems(snap) {
				named[i] += string(p.Code) + " " + p.What + "; "
			}
			all := snap.Realms()
			standing[i] = fmt.Sprint(InWords(all, "blue"), ", ", InWords(all, "red"), ", ", InWords(all, "green"))
			if words := strings.Fields(c.together); len(words) > 0 && !slices.Contains(all.With(words[0]), words[1]) {
				t.Errorf("%s; %s: networks %s are apart: %s", c.one, c.two, c.together, standing[i])
			}
		}
		if standing[0] != standing[1] {
			t.Errorf("%s; %s: one host has %s, the other %s", c.one, c.two, standing[0], standing[1])
		}
		if lost := named[0] + named[1]; c.lost == "" && lost != "" || c.lost != "" && !strings.Contains(lost, "of network "+c.lost) {
			t.Errorf("%s; %s: want that network %q is named, and %q is; %s", c.one, c.two, c.lost, lost, standing[0])
		}
	}
}
