package driver

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/replica"
)

// A container that sends more than it may is named, whatever it did with its queue; one whose limit has changed, or
// whose counter began anew, is not.
func TestOverLimits(t *testing.T) {
	e := newEngine(t)
	ep := e.run(e.user("blue"), "web")
	host, _ := ifnames(ep)
	e.look() // it has its name from Docker
	const mbit = 1e6 / 8
	sent, limit := sendings{}, link.Limits{Egress: 5e6}
	look := func(bytes uint64) []string {
		e.rig.machine.mu.Lock()
		e.rig.machine.received[host] = bytes
		e.rig.machine.mu.Unlock()
		if s, seen := sent[ep]; seen {
			s.at = time.Now().Add(-time.Second)
			sent[ep] = s
		}
		return e.rig.mirror.overLimits(sent, map[string]link.Limits{ep: limit}, true)
	}
	for _, step := range []struct {
		bytes uint64
		limit uint64
		over  bool
	}{
		{900 * mbit, 5e6, false}, {905 * mbit, 5e6, false}, {1400 * mbit, 5e6, true}, {1404 * mbit, 5e6, false},
		{1500 * mbit, 2e6, false}, {5 * mbit, 2e6, false}, {6 * mbit, 2e6, false}, {16 * mbit, 2e6, true}, {900 * mbit, 0, false},
	} {
		limit.Egress = step.limit
		got := look(step.bytes)
		if said := slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "container web on network blue sends ") }); said != step.over {
			t.Errorf("after %d bytes, with a limit of %d: %q", step.bytes, step.limit, got)
		}
		if again := e.rig.mirror.overLimits(sent, map[string]link.Limits{ep: limit}, false); !slices.Equal(again, got) {
			t.Errorf("without a look: %q, not %q", again, got)
		}
	}
}

// An interface that is gone, as a container may delete its own, has no limit that could fail; one that is back has it again.
func TestLimitOfWhatIsGone(t *testing.T) {
	e := newEngine(t)
	id := e.user("blue")
	ep := e.run(id, "web")
	host, _ := ifnames(ep)
	_, err := e.rig.replica.Update(func(tx *replica.Tx) error {
		rec, _ := cluster.Get[cluster.Endpoint](tx.Snapshot(), ep)
		rec.Egress = 5e6
		return tx.Put(rec)
	})
	check(t, err)
	e.rig.core.mu.Lock()
	local := e.rig.core.local.endpoints[ep]
	local.Joined, local.Sandbox = true, "/var/run/docker/netns/web"
	e.rig.core.local.endpoints[ep] = local
	e.rig.core.mu.Unlock()
	set := map[string]link.Limits{}
	for _, step := range []struct {
		what string
		link string
		set  int
	}{{"there", "", 1}, {"gone", "-", 0}, {"back", "veth", 1}} {
		e.rig.machine.mu.Lock()
		if step.link == "-" {
			delete(e.rig.machine.links, host)
		} else if step.link != "" {
			e.rig.machine.links[host] = step.link
		}
		e.rig.machine.mu.Unlock()
		if failed := e.rig.mirror.limit(e.rig.replica.Snapshot(), set, true); len(failed) > 0 || len(set) != step.set {
			t.Errorf("%s: failed %v, set %v", step.what, failed, set)
		}
	}
}

// What is changed of a running container's limits is on record and on the disk; what is not named stays.
func TestSetLimits(t *testing.T) {
	e := newEngine(t)
	ep := e.run(e.user("blue"), "web")
	for _, step := range []struct {
		change func(*cluster.Limits)
		want   cluster.Limits
	}{
		{func(l *cluster.Limits) { l.Egress = 5e6 }, cluster.Limits{Egress: 5e6}},
		{func(l *cluster.Limits) { l.Ingress = 7e6 }, cluster.Limits{Egress: 5e6, Ingress: 7e6}},
		{func(l *cluster.Limits) { l.Egress = 0 }, cluster.Limits{Ingress: 7e6}},
		{func(l *cluster.Limits) { l.Delay, l.Loss = 50_000, 10_000 }, cluster.Limits{Ingress: 7e6, Delay: 50_000, Loss: 10_000}},
	} {
		check(t, e.rig.SetLimits(ep, step.change))
		rec, _ := cluster.Get[cluster.Endpoint](e.rig.replica.Snapshot(), ep)
		e.rig.core.mu.Lock()
		local := e.rig.core.local.endpoints[ep]
		e.rig.core.mu.Unlock()
		if rec.Limits != step.want || rec.Limits != local.Limits {
			t.Errorf("on record %v, here %v, want %v", rec.Limits, local.Limits, step.want)
		}
	}
	e.rig.machine.mu.Lock()
	e.rig.machine.noLag = link.ErrNoLag
	e.rig.machine.mu.Unlock()
	if err := e.rig.SetLimits(ep, func(l *cluster.Limits) { l.Jitter = 1000 }); !errors.Is(err, link.ErrNoLag) {
		t.Errorf("a jitter that the kernel has nothing for: %v", err)
	}
	if rec, _ := cluster.Get[cluster.Endpoint](e.rig.replica.Snapshot(), ep); rec.Jitter != 0 {
		t.Errorf("a jitter that was refused is on record: %v", rec.Limits)
	}
	check(t, e.rig.SetLimits(ep, func(l *cluster.Limits) { l.Delay, l.Loss = 0, 0 })) // what was there is taken away all the same
	if err := e.rig.SetLimits("nobody", func(l *cluster.Limits) { l.Egress = 1e6 }); err == nil {
		t.Error("no error for who is not here")
	}
}
