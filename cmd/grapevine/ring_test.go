package main

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
)

// TestRingWithoutIPv6: the cluster's range of IPv6 is shown once a network has some.
func TestRingWithoutIPv6(t *testing.T) {
	pool := func(network, prefix string) api.Pool {
		return api.Pool{Network: network, Prefix: netip.MustParsePrefix(prefix), Shares: []api.Share{{Host: "host1", Part: 1}}}
	}
	four, six := pool("", "10.128.0.0/14"), pool("", "fd12::/48")
	for _, tt := range []struct {
		pools []api.Pool
		want  bool
	}{
		{[]api.Pool{four, six}, false},
		{[]api.Pool{four, six, pool("blue", "10.128.0.0/22")}, false},
		{[]api.Pool{four, six, pool("blue", "10.128.0.0/22"), pool("blue", "fd12:0:0:1::/64")}, true},
	} {
		var b strings.Builder
		if err := showRing(&b, tt.pools); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(b.String(), "fd12::/48") != tt.want || !strings.Contains(b.String(), "10.128.0.0/14") {
			t.Errorf("%v:\n%s", tt.pools, b.String())
		}
	}
}
