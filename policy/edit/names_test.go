package edit

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/policy/answers"
	"github.com/grapevine-net/grapevine/replica"
)

// TestNamesFull: status names a container that gets no more answers by name, and why.
func TestNamesFull(t *testing.T) {
	d, r := desk(t)
	_, err := r.Update(func(tx *replica.Tx) error {
		return tx.Put(cluster.Endpoint{ID: "e4", Network: "blue", Host: self, Name: "job", Addrs: []netip.Addr{netip.MustParseAddr("10.128.0.5")}, Labels: map[string]string{"grapevine.to": "*.example.com"}, Labelled: true})
	})
	if err != nil {
		t.Fatal(err)
	}
	full := map[string]int{}
	d.Full = func() map[string]int { return full }
	says := func(want string) {
		t.Helper()
		var list []string
		for _, p := range d.Problems(r.Snapshot()) {
			if p.Code == api.NamesFull {
				list = append(list, p.What)
			}
		}
		if got := strings.Join(list, "\n"); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("status says %q, want %q", got, want)
		}
	}
	says("")
	full["e4"] = answers.Most
	says("container job on the network blue has 512 addresses open by name, of 512 at most, each counted for each of its names")
	full["e4"] = answers.AtOnce
	says("container job on the network blue asks for new names too fast (128 at once can be opened, and 8 a second after that)")
	full = map[string]int{"gone": answers.Most}
	says("")
}
