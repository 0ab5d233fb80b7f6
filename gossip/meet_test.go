package gossip

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/gossip/memnet"
)

// TestDifferenceThatComesBack: one that nothing mends is left alone for longer and longer,
// and is tried at once when it comes anew.
func TestDifferenceThatComesBack(t *testing.T) {
	const first, limit = 500 * time.Millisecond, 30 * time.Second
	d, now, tries := differences{}, time.Now(), 0
	for end := now.Add(5 * time.Minute); now.Before(end); now = now.Add(100 * time.Millisecond) {
		if retry := d.of(1, now, limit); retry.due(now) {
			retry.failed(now, first, limit)
			tries++
		}
	}
	if tries < 12 || tries > 25 {
		t.Errorf("%d tries in five minutes", tries)
	}
	if retry := d.of(2, now, limit); !retry.due(now) {
		t.Error("another difference waits for that one")
	}
	now = now.Add(3 * limit)
	retry := d.of(1, now, limit)
	retry.failed(now, first, limit)
	if retry.due(now) || !retry.due(now.Add(first)) {
		t.Errorf("after it was away it is tried again only after %v", retry.wait)
	}
	for i := range 10 * uint64(maxDifferences) {
		d.of(i, now, limit)
	}
	if len(d) > maxDifferences {
		t.Errorf("%d are remembered", len(d))
	}
}

// TestRestartedWithoutPeers: a host that is started anew, knows nobody and is to join itself,
// is met by those who still take it for alive, well before the next push/pull.
func TestRestartedWithoutPeers(t *testing.T) {
	for _, n := range []int{2, 3, 8} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			bubble(t, func(t *testing.T, net *memnet.Network) {
				net.SetAll(memnet.Link{Delay: time.Millisecond})
				hosts := cluster(t, net, n)
				time.Sleep(5 * time.Second)
				for i := range 50 {
					hosts[0].stop()
					hosts[0] = start(t, net, 0, nil)
					within(t, 5*time.Second, fmt.Sprintf("restart %d: all see each other", i), func() bool { return allSee(hosts, n-1) })
					time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				}
			})
		})
	}
}
