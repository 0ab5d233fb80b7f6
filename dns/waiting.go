package dns

import (
	"sync"
	"sync/atomic"

	"github.com/grapevine-net/grapevine/dns/names"
)

// waiting are questions over UDP that others are asked at this moment. Of a container that has just started the other host's
// news may come meanwhile, and on an internal network nobody else answers, so they are looked at again at each change.
type waiting struct {
	mu  sync.Mutex
	all map[*question]func(wire []byte)
}

// begin has a question be looked at until end.
func (w *waiting) begin(q *question, answer func(wire []byte)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[*question]func([]byte){}
	}
	w.all[q] = answer
}

// end reports whether the question has had no answer yet. Whoever is told so gives it.
func (w *waiting) end(q *question) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, there := w.all[q]
	delete(w.all, q)
	return there
}

func (w *waiting) list() (all []*question) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for q := range w.all {
		all = append(all, q)
	}
	return all
}

// again answers those of the questions that wait and are ours by now, and counts them.
func (w *waiting) again(x *names.Index, hosts names.Hosts, count *atomic.Uint64, list ...*question) {
	for _, q := range list {
		wire, v := respond(q, x, hosts)
		if v != answered {
			continue
		}
		w.mu.Lock()
		answer := w.all[q]
		delete(w.all, q)
		w.mu.Unlock()
		if answer != nil {
			count.Add(1)
			go answer(wire) // a socket without room keeps nobody else
		}
	}
}
