package limit

import (
	"errors"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica/replicatest"
)

// TestNetwork: what is said of a network holds until something else is, and what it was made with can be had again.
func TestNetwork(t *testing.T) {
	r := replicatest.New(t, "00000000000000aa", cluster.Network{Name: "blue", VNID: 5, Options: map[string]string{cluster.OptEgress: "20mbit"}})
	d := Desk{Name: "host1", Replica: r, CanLag: func() error { return errors.New("no netem") }}
	for _, c := range []struct {
		ask  api.LimitRequest
		want string
	}{
		{api.LimitRequest{}, "sends at most 20mbit, and gets as much as it can"},
		{api.LimitRequest{Egress: "5mbit"}, "sends at most 5mbit, and gets as much as it can"},
		{api.LimitRequest{Ingress: "8mbit"}, "sends at most 5mbit, and gets at most 8mbit"},
		{api.LimitRequest{Egress: "fast"}, "not a rate"},
		{api.LimitRequest{Delay: "50ms"}, "nothing is changed: no netem"},
		{api.LimitRequest{Egress: "none"}, "sends as much as it can, and gets at most 8mbit"},
		{api.LimitRequest{Network: "red", Egress: "5mbit"}, "there is no network red"},
		{api.LimitRequest{Egress: "made"}, "sends at most 20mbit, and gets at most 8mbit"},
		{api.LimitRequest{Ingress: "made"}, "sends at most 20mbit, and gets as much as it can"},
	} {
		if c.ask.Network == "" {
			c.ask.Network = "blue"
		}
		done, err := d.Limit(t.Context(), c.ask)
		if err != nil {
			done.Text = err.Error()
		}
		if !strings.Contains(done.Text, c.want) {
			t.Errorf("%+v: %q, want %q", c.ask, done.Text, c.want)
		}
	}
	for range cluster.All[cluster.NetworkLimits](r.Snapshot()) {
		t.Error("nothing is said any more, and a record is there")
	}
}
