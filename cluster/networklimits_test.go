package cluster

import (
	"strings"
	"testing"
)

// TestNetworkLimits: what is said of a network comes before what it was made with, and a container's own before both. What was said of one of
// the same name from before is said of none.
func TestNetworkLimits(t *testing.T) {
	own := Endpoint{Network: "blue", Limits: Limits{Ingress: 1e6}}
	for _, c := range []struct {
		what            string
		said            NetworkLimits
		egress, ingress Rate
		delay           Delay
		ownsIngress     Rate
	}{
		{what: "nothing", egress: 20e6, ingress: 30e6, ownsIngress: 1e6},
		{what: "another rate", said: NetworkLimits{Options: map[string]string{OptEgress: "5mbit", OptDelay: "50ms"}}, egress: 5e6, ingress: 30e6, delay: 50_000, ownsIngress: 1e6},
		{what: "no limit", said: NetworkLimits{Options: map[string]string{OptEgress: NoLimit, OptIngress: NoLimit}}, ownsIngress: 1e6},
		{what: "of another one", said: NetworkLimits{Made: "before", Options: map[string]string{OptEgress: "5mbit"}}, egress: 20e6, ingress: 30e6, ownsIngress: 1e6},
		{what: "of one with another number", said: NetworkLimits{VNID: 9, Options: map[string]string{OptEgress: "5mbit"}}, egress: 20e6, ingress: 30e6, ownsIngress: 1e6},
	} {
		bodies := []Body{Network{Name: "blue", VNID: 5, Made: "now", Options: map[string]string{OptEgress: "20mbit", OptIngress: "30mbit"}}}
		if c.said.Options != nil {
			c.said.Network = "blue"
			if c.said.VNID == 0 {
				c.said.VNID = 5
			}
			if c.said.Made == "" {
				c.said.Made = "now"
			}
			bodies = append(bodies, c.said)
		}
		st := New(id(1))
		for _, b := range bodies {
			put(t, st, b)
		}
		s := st.Snapshot()
		if got, want := s.Limits(Endpoint{Network: "blue"}), (Limits{Egress: c.egress, Ingress: c.ingress, Delay: c.delay}); got != want {
			t.Errorf("%s: a container may %+v, want %+v", c.what, got, want)
		}
		if got := s.Limits(own); got.Ingress != c.ownsIngress || got.Egress != c.egress {
			t.Errorf("%s: one with a limit of its own may %+v", c.what, got)
		}
	}
	for text, said := range map[string]NetworkLimits{
		"not a rate": {Network: "blue", Options: map[string]string{OptEgress: "fast"}}, "no limit": {Network: "blue", Options: map[string]string{"mtu": "1400"}}, "network is empty": {},
	} {
		if err := said.validate(); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%+v: %v", said, err)
		}
	}
}
