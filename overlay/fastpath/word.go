package fastpath

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/bypass"
)

// word is what the programs' configuration is. Whoever hears of a change of this host's rules writes it at once: no lock is held
// here but for that one system call, so that judging and the writing of tables keep nobody from it.
type word struct {
	mu    sync.Mutex
	objs  *bpfObjects // nil: none are loaded
	now   configValue
	heard uint64        // changes
	asked uint64        // heard, when a judgement was last begun
	until time.Duration // of the lease, by the kernel's clock; 0: there is none
	ended bool          // the lease, before it was renewed
	odd   bool          // it could not be written: now may not be what it is
}

func (w *word) use(objs *bpfObjects) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.objs, w.now, w.heard, w.until, w.ended, w.odd = objs, configValue{}, w.heard+1, 0, false, false
}

// read is what it is, maybe of a former agent.
func (w *word) read() (configValue, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.objs.GvConfig.Lookup(uint32(0), &w.now)
	return w.now, err
}

// ask begins a judgement: it counts until something is heard.
func (w *word) ask() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = w.heard
}

// void reports whether something was heard, or may not have been, since the last judgement was begun.
func (w *word) void() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked != w.heard || w.ended
}

// write makes it c, but for what was judged and is void.
func (w *word) write(c configValue, put func(m *ebpf.Map, key, value any) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now.Judged != 0 && w.until < clock() {
		w.ended = true
	}
	if w.asked != w.heard || w.ended {
		c.Judged = 0
	}
	if w.now != c || c.On == 0 || w.odd {
		if err := put(w.objs.GvConfig, uint32(0), c); err != nil {
			return err
		}
		w.now, w.odd = c, false
	}
	if c.Judged == 0 {
		return nil
	}
	return w.lease()
}

// withdraw makes void what was judged. Where that cannot be written, the programs that are direct are taken out, and the lease
// is not renewed.
func (w *word) withdraw() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard++
	if w.objs == nil || w.now.Judged == 0 {
		return nil
	}
	without := w.now
	without.Judged = 0
	if err := put(w.objs.GvConfig, uint32(0), without); err != nil {
		w.odd, w.until = true, 0
		return errors.Join(err, w.release())
	}
	w.now = without
	return nil
}

// release makes nothing direct by all other ways that there are.
func (w *word) release() error {
	errs := []error{put(w.objs.GvLease, uint32(0), uint64(0))}
	for _, slot := range []uint32{heldEndpoint, heldUnderlay} {
		if err := w.objs.GvHeld.Delete(slot); !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// renew puts the end of the lease off. false: it had ended, and nothing is direct.
func (w *word) renew() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	ended := w.ended || w.now.Judged != 0 && w.until < clock()
	w.ended = false
	if ended || w.objs == nil || w.now.Judged == 0 {
		return !ended
	}
	return w.lease() == nil
}

// lease lets what was judged count for a while.
func (w *word) lease() error {
	until := clock() + bypass.Lease
	if err := put(w.objs.GvLease, uint32(0), uint64(until)); err != nil {
		return fmt.Errorf("let packets between hosts be direct for %s: %w", bypass.Lease, err)
	}
	w.until = until
	return nil
}

// clock is bpf_ktime_get_coarse_ns.
func clock() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
