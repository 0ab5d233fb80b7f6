package gossip

import (
	"testing"
	"time"
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
