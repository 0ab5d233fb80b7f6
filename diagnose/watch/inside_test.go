package watch

import (
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/diagnose/paths"
)

// TestInsideProblems: what is lost through WireGuard is named with its port, and each host once.
func TestInsideProblems(t *testing.T) {
	now := time.Unix(1000, 0)
	nodes := []api.Node{{ID: "a", Name: "host1", Alive: true}, {ID: "b", Name: "host2", Alive: true}, {ID: "c", Name: "host3"}, {ID: "d", Name: "host4", Alive: true, Self: true}}
	got := insideProblems([]paths.Verdict{
		{Host: "a", In: paths.Nothing, Out: paths.Nothing, Since: now.Add(-7 * time.Second)}, {Host: "b", In: paths.All, Out: paths.Nothing, Since: now},
		{Host: "c", In: paths.Nothing},
	}, nodes, 9948, now)
	if len(got) != 2 {
		t.Fatalf("%+v", got)
	}
	for i, want := range []string{"nothing that encrypted networks' containers of host host1 send arrives here", "arrives at host host2"} {
		if !strings.Contains(got[i].What, want) || got[i].Code != api.EncryptedLost || !strings.Contains(got[i].Do, "UDP port 9948") {
			t.Errorf("%+v", got[i])
		}
	}
	if got := insideProblems([]paths.Verdict{{Host: "a", In: paths.All, Out: paths.All}, {Host: "b"}}, nodes, 9948, now); got != nil {
		t.Errorf("all is well: %+v", got)
	}
}

// TestInsideJudges: a host is judged by hellos through WireGuard if its agent says them, both have a key, there is an encrypted
// network, and this host's own device is there.
func TestInsideJudges(t *testing.T) {
	key := make([]byte, cluster.WireGuardKeySize)
	for name, c := range map[string]struct {
		hellos           uint8
		mine, theirs     []byte
		network, working bool
		want             bool
	}{
		"both":                 {3, key, key, true, true, true},
		"an older agent":       {2, key, key, true, true, false},
		"it cannot encrypt":    {3, key, nil, true, true, false},
		"this one cannot":      {3, nil, key, true, true, false},
		"no such network":      {3, key, key, false, true, false},
		"its own device fails": {3, key, key, true, false, false},
	} {
		s := cluster.New("00000000000000aa")
		if c.network {
			if _, _, err := s.Put(cluster.Network{Name: "blue", VNID: 5, Options: map[string]string{"encrypted": ""}}); err != nil {
				t.Fatal(err)
			}
		}
		p := &Inside{Host: Host{Snapshot: s.Snapshot}, Works: func() bool { return c.working }}
		if got := p.judges(cluster.Node{NetworksKey: c.mine}, cluster.Node{NetworksKey: c.theirs, Hellos: c.hellos}); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	all := &Inside{Works: func() bool { return true }}
	if all.judges(cluster.Node{WireGuard: key}, cluster.Node{WireGuard: key, Hellos: 3}) {
		t.Error("hosts that encrypt all say all hellos there, and twice here")
	}
}
