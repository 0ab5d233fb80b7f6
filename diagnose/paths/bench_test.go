package paths

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkSecond is what a host of a cluster of 1,000 does in a second, but for the frames.
func BenchmarkSecond(b *testing.B) {
	var hosts []Host
	for i := range 1000 {
		hosts = append(hosts, Host{ID: fmt.Sprintf("%016x", i), Sends: true})
	}
	t, now := New(hosts[0].ID), time.Unix(1000, 0)
	t.Set(hosts, now)
	for b.Loop() {
		t.Set(hosts, now)
		for range 2 {
			for id, h := range t.Due(now) {
				h.From = id
				t.Hear(h, now)
			}
			t.Verdicts(now)
			now = now.Add(500 * time.Millisecond)
		}
	}
}
