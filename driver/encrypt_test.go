package driver

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/docker"
)

// TestCanEncrypt: an encrypted network is made by a host that can encrypt, while no older agent would take part in the clear;
// one that is there is joined as it is.
func TestCanEncrypt(t *testing.T) {
	const self, other = cluster.NodeID("1111111111111111"), cluster.NodeID("2222222222222222")
	snapshot := func(n cluster.Node, networks ...cluster.Network) *cluster.Snapshot {
		theirs, mine := cluster.New(other), cluster.New(self)
		r, _, err := theirs.Put(n)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := mine.Merge([]cluster.Record{r}); err != nil {
			t.Fatal(err)
		}
		for _, n := range networks {
			if _, _, err := mine.Put(n); err != nil {
				t.Fatal(err)
			}
		}
		return mine.Snapshot()
	}
	knows := cluster.Node{ID: other, Name: "host2", KnowsEncrypted: true}
	older := cluster.Node{ID: other, Name: "host2", Agent: "1.0"}
	all := cluster.Node{ID: other, Name: "host2", WireGuard: bytes.Repeat([]byte{1}, 32)}
	secret := cluster.Network{Name: "blue", VNID: 5, Options: map[string]string{"encrypted": ""}}
	clear := cluster.Network{Name: "blue", VNID: 5}
	gone := clear
	gone.Removed = true
	wants, joins, replica := networkOptions{encrypted: true}, networkOptions{}, networkOptions{encrypted: true, replica: true}
	for name, tt := range map[string]struct {
		snap   *cluster.Snapshot
		cannot error
		o      networkOptions
		want   string
	}{
		"all know it":                      {snapshot(knows), nil, wants, ""},
		"one encrypts all":                 {snapshot(all), nil, wants, ""},
		"one is older":                     {snapshot(older), nil, wants, "older agent do not know encrypted networks, and send what is for them in the clear: host2 (1.0)"},
		"one has come that is older":       {snapshot(older, secret), nil, replica, ""},
		"this host cannot":                 {snapshot(knows), errors.New("no nf_tables"), wants, "cannot encrypt: no nf_tables"},
		"this host cannot, and is told to": {snapshot(knows, secret), errors.New("no nf_tables"), replica, "cannot encrypt: no nf_tables"},
		"this host cannot, and joins":      {snapshot(knows, secret), errors.New("no nf_tables"), joins, "cannot encrypt: no nf_tables"},
		"another network":                  {snapshot(older, clear), errors.New("no nf_tables"), joins, ""},
		"it is there":                      {snapshot(knows, secret), nil, joins, ""},
		"it is there in the clear":         {snapshot(knows, clear), nil, wants, "has a network blue that is not encrypted"},
		"it was":                           {snapshot(knows, gone), nil, wants, ""},
	} {
		err := canEncrypt(tt.snap, self, tt.cannot, "blue", tt.o)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// TestStaysEncrypted: a network that a host relies on is not made one in the clear by another host that makes it anew, or that
// made it at the same moment without the option.
func TestStaysEncrypted(t *testing.T) {
	secret := cluster.Network{Name: "blue", VNID: 5, Options: map[string]string{"encrypted": ""}, Removed: true}
	if n := again(secret, cluster.Network{Name: "blue", VNID: 9, Options: map[string]string{"mtu": "1400"}}); !n.Encrypted() || n.VNID != 5 || n.Options["mtu"] != "1400" {
		t.Errorf("made anew while others use it: %+v", n)
	}
	for _, tt := range []struct {
		name    string
		options map[string]string // in the cluster
		used    bool
		want    int
	}{
		{"in the clear by another host", nil, true, 1},
		{"as it is", map[string]string{"encrypted": ""}, true, 0},
		{"nobody here relies on it", nil, false, 0},
	} {
		state := cluster.New("1111111111111111")
		if _, _, err := state.Put(cluster.Network{Name: "blue", VNID: 5, Options: tt.options}); err != nil {
			t.Fatal(err)
		}
		v := view{
			snap: state.Snapshot(), self: "1111111111111111", networks: []docker.Network{{ID: "a", Name: "blue"}},
			local: map[string]localNetwork{"a": {ID: "a", Name: "blue", Learnt: true, Options: map[string]string{"encrypted": ""}}},
		}
		if tt.used {
			v.containers = []docker.Container{{Name: "web", Networks: []docker.Attachment{{Network: "blue", NetworkID: "a"}}}}
		}
		if p := decide(v); len(p.encrypted) != tt.want {
			t.Errorf("%s: %v is written", tt.name, p.encrypted)
		}
	}
}
