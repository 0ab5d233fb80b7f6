package plane

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/config"
)

// TestEnforces: what a switch can do is said once it is known; before that a host says what it said.
func TestEnforces(t *testing.T) {
	for _, c := range []struct {
		can          bool
		lacks        string
		before, want uint8
	}{
		{true, "", 0, cluster.EnforcesV4}, {false, "conntrack", cluster.EnforcesV4, 0}, {false, "", cluster.EnforcesV4, cluster.EnforcesV4}, {false, "", 0, 0},
	} {
		if got := enforces(c.can, c.lacks, c.before); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// TestBehindNAT: a host says where it listens only if others know it by another address.
func TestBehindNAT(t *testing.T) {
	for _, c := range [][3]string{{"192.0.2.1", "192.0.2.1", "invalid IP"}, {"0.0.0.0", "192.0.2.1", "invalid IP"}, {"::", "192.0.2.1", "invalid IP"}, {"10.0.0.1", "192.0.2.1", "10.0.0.1"}, {"::ffff:192.0.2.1", "192.0.2.1", "invalid IP"}} {
		if got := behindNAT(config.Config{Bind: netip.MustParseAddr(c[0])}, netip.MustParseAddr(c[1])); got.String() != c[2] {
			t.Errorf("bound to %s, known by %s: %v", c[0], c[1], got)
		}
	}
}

// TestTellAgain: what the disk does not take is told again a second later, and once it was told no more.
func TestTellAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries, begin := 0, time.Now()
		tellUntil(t.Context(), func() error {
			if tries++; tries < 3 {
				return errors.New("the disk is full")
			}
			return nil
		})
		if took := time.Since(begin); tries != 3 || took != 2*time.Second {
			t.Errorf("%d tries in %v", tries, took)
		}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		tellUntil(ctx, func() error { t.Error("an agent that ends tells"); return nil })
	})
}
