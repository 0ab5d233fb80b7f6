package realm

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
)

// young is a cluster whose networks have their names in a while.
type young struct {
	snap    atomic.Pointer[cluster.Snapshot]
	changed chan struct{}
}

func (y *young) Snapshot() *cluster.Snapshot { return y.snap.Load() }
func (y *young) Watch() <-chan struct{}      { return y.changed }

// TestNamed: who asks for a network that has just been made waits until it has its name, and no longer than for a while.
func TestNamed(t *testing.T) {
	snapshot := func(names ...string) *cluster.Snapshot {
		s := cluster.New("0123456789abcdef")
		for i, name := range names {
			if _, _, err := s.Put(cluster.Network{Name: name, VNID: uint32(i + 1)}); err != nil {
				t.Fatal(err)
			}
		}
		return s.Snapshot()
	}
	without := snapshot("blue", cluster.ProvisionalPrefix+"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef")
	with := snapshot("blue", "red")
	for _, c := range []struct {
		what  string
		begin *cluster.Snapshot
		named time.Duration // 0: never
		waits time.Duration
	}{
		{"all have their names", with, 0, 0},
		{"one has it in a moment", without, 400 * time.Millisecond, 400 * time.Millisecond},
		{"one never has", without, 0, naming},
	} {
		synctest.Test(t, func(t *testing.T) {
			y := &young{changed: make(chan struct{})}
			y.snap.Store(c.begin)
			if c.named > 0 {
				go func() {
					time.Sleep(c.named)
					y.snap.Store(with)
					close(y.changed)
				}()
			}
			begin := time.Now()
			answer := WhenNamed(NewNames(y), func(context.Context, int) (time.Duration, error) { return time.Since(begin), nil })
			if got, _ := answer(t.Context(), 0); got != c.waits {
				t.Errorf("%s: answered after %v, want %v", c.what, got, c.waits)
			}
			begin = time.Now()
			if got, _ := answer(t.Context(), 0); got != 0 {
				t.Errorf("%s: answered the next time after %v", c.what, got)
			}
		})
	}
}
