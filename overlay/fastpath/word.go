package fastpath

import (
	"sync"

	"github.com/cilium/ebpf"
)

// word is what the programs' configuration is. Whoever hears of a change of this host's rules writes it at once: no lock is held
// here but for that one system call, so that judging and the writing of tables keep nobody from it.
type word struct {
	mu    sync.Mutex
	m     *ebpf.Map // nil: none is loaded
	now   configValue
	heard uint64 // changes
	asked uint64 // heard, when a judgement was last begun
}

func (w *word) use(m *ebpf.Map) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.m, w.now, w.heard = m, configValue{}, w.heard+1
}

// read is what it is, maybe of a former agent.
func (w *word) read() (configValue, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.m.Lookup(uint32(0), &w.now)
	return w.now, err
}

// ask begins a judgement: it counts until something is heard.
func (w *word) ask() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = w.heard
}

// void reports whether something was heard since the last judgement was begun.
func (w *word) void() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked != w.heard
}

// write makes it c, but for what was judged and is void.
func (w *word) write(c configValue, put func(m *ebpf.Map, key, value any) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asked != w.heard {
		c.Judged = 0
	}
	if w.now == c && c.On != 0 {
		return nil
	}
	err := put(w.m, uint32(0), c)
	if err == nil {
		w.now = c
	}
	return err
}

// withdraw makes void what was judged.
func (w *word) withdraw() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard++
	if w.m == nil || w.now.Judged == 0 {
		return nil
	}
	without := w.now
	without.Judged = 0
	if err := w.m.Put(uint32(0), without); err != nil {
		return err
	}
	w.now = without
	return nil
}
