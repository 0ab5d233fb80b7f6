package gossip

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// SWIM takes its time before it calls a host dead, since much silence is not death.
// Until then there is doubt, which takes nothing from the host: each one sends beats
// to a few watchers, the hosts after it in the circle of all IDs, and when two of these
// hear nothing of it they tell all. The next beat that they hear ends it.
//
// That each host has a few watchers, and that one of them alone is not believed, is
// from Rapid (Suresh et al., USENIX ATC 2018), which decides membership by it.
const (
	watchers = 3  // of a host
	quorum   = 2  // watchers that have to agree
	retell   = 10 // beats after which a suspicion that stands is told again; it lapses after thrice that

	slowBeats = 5 // beats of a host that hurries come while one comes that does not
)

// beat is the body of kindBeat: the hosts of which the sender, who watches them, hears
// nothing.
//
//	number 8 | host 8, of each
type beat struct {
	number uint64
	silent []nodeID
}

func (b beat) encode() []byte {
	out := binary.BigEndian.AppendUint64(nil, b.number)
	for _, id := range b.silent {
		out = append(out, id[:]...)
	}
	return out
}

func decodeBeat(b []byte) (out beat, err error) {
	if len(b)%len(nodeID{}) != 0 || len(b) < 8 || len(b) > 8+64*len(nodeID{}) {
		return out, errors.New("beat: a list of another length")
	}
	out.number = binary.BigEndian.Uint64(b)
	for id := range slices.Chunk(b[8:], len(nodeID{})) {
		out.silent = append(out.silent, nodeID(id))
	}
	return out, nil
}

// suspicion is the body of kindDoubt: what a watcher says of a host.
//
//	watcher 8 | host 8 | number 8 | silent 1
//
// Of two that a watcher says of a host the higher number is the later. An earlier one is never
// believed again, since somebody may have recorded it: who hears suspicions remembers their numbers for as
// long as it runs, and a watcher that hears one of its own which it does not stand by says so (deny).
// The numbers of a host's beats and suspicions rise over all its runs, whatever its clock says (Config.Run).
type suspicion struct {
	watcher, host nodeID
	number        uint64
	silent        bool
}

func (v suspicion) encode() []byte {
	b := slices.Concat(v.watcher[:], v.host[:])
	b = binary.BigEndian.AppendUint64(b, v.number)
	if v.silent {
		return append(b, 1)
	}
	return append(b, 0)
}

func decodeSuspicion(b []byte) (v suspicion, err error) {
	if len(b) != 25 || b[24] > 1 {
		return v, errors.New("suspicion: another form")
	}
	copy(v.watcher[:], b)
	copy(v.host[:], b[8:])
	v.number, v.silent = binary.BigEndian.Uint64(b[16:]), b[24] == 1
	return v, nil
}

// following are the n hosts after one in the circle, which is sorted: its watchers.
func following(circle []nodeID, host nodeID, n int) (list []nodeID) {
	at, found := slices.BinarySearchFunc(circle, host, compareIDs)
	if found {
		at++
	}
	for i := range circle {
		id := circle[(at+i)%len(circle)]
		if len(list) == n || id == host {
			break
		}
		list = append(list, id)
	}
	return list
}

// preceding are the n hosts before one in the circle: those that it watches.
func preceding(circle []nodeID, host nodeID, n int) (list []nodeID) {
	at, _ := slices.BinarySearchFunc(circle, host, compareIDs)
	for i := range circle {
		id := circle[(at+len(circle)-1-i)%len(circle)]
		if len(list) == n || id == host {
			break
		}
		list = append(list, id)
	}
	return list
}

func compareIDs(a, b nodeID) int { return bytes.Compare(a[:], b[:]) }

// watch is what a host knows of who is silent. Its mutex is taken last.
type watch struct {
	mu         sync.Mutex
	self       nodeID
	beat       time.Duration // between those of a host that hurries
	slow       bool          // this host does not hurry
	circle     []nodeID      // the hosts that beat and answer, this one too, sorted
	heard      map[nodeID]sign
	suspicions map[nodeID]map[nodeID]word // by the host and the watcher
	doubted    map[nodeID]bool
	deaf       bool                 // in the last round this host had heard nobody for a while
	since      map[nodeID]time.Time // of those in doubt
	expired    time.Time            // when suspicions were last looked through for those to drop
	number     uint64               // last one of this host's beats and suspicions
	latest     map[saying]uint64    // highest number of each
	lately     map[nodeID]uint64    // which of the numbers before the highest of a host's beats have come: bit n, the nth before
	denied     map[nodeID]time.Time // when this host told last of whom that it does not doubt it
}

// saying is of whom a host says something in suspicions; in beats, of nobody.
type saying struct{ by, of nodeID }

// maxLatest bounds how many sayings are remembered: far more than there are of a thousand hosts.
const maxLatest = 1 << 14

// sign is the last beat of a host, and whether the next is a slow one, as that said.
type sign struct {
	at     time.Time
	silent []nodeID
	slow   bool
}

// word is a suspicion, and when it came.
type word struct {
	suspicion
	at time.Time
}

func newWatch(self nodeID, every time.Duration, run uint32) *watch {
	return &watch{
		self: self, beat: every, number: uint64(run) << 32, heard: map[nodeID]sign{}, suspicions: map[nodeID]map[nodeID]word{},
		doubted: map[nodeID]bool{}, since: map[nodeID]time.Time{}, latest: map[saying]uint64{}, lately: map[nodeID]uint64{}, denied: map[nodeID]time.Time{},
	}
}

// next numbers a beat or a suspicion of this host, with mu held.
func (w *watch) next() uint64 {
	w.number++
	return w.number
}

// say is this host's next beat.
func (w *watch) say(silent []nodeID) beat {
	w.mu.Lock()
	defer w.mu.Unlock()
	return beat{w.next(), silent}
}

// fresh reports whether a host says something later than all before, and remembers that, with mu held.
func (w *watch) fresh(s saying, number uint64) bool {
	if last, known := w.latest[s]; known && number <= last {
		return false
	}
	if len(w.latest) >= maxLatest {
		maps.DeleteFunc(w.latest, func(s saying, _ uint64) bool {
			_, known := slices.BinarySearchFunc(w.circle, s.by, compareIDs)
			return !known
		})
	}
	if len(w.latest) >= maxLatest {
		clear(w.latest)
	}
	if s.of == (nodeID{}) {
		if len(w.lately) >= maxLatest {
			clear(w.lately)
		}
		w.lately[s.by] = w.lately[s.by]<<min(number-w.latest[s], 64) | 1
	}
	w.latest[s] = number
	return true
}

// late reports whether a beat is a little older than the last one, and whether it comes for the first time, with mu held.
func (w *watch) late(s saying, number uint64) (late, first bool) {
	behind := w.latest[s] - number
	if _, known := w.latest[s]; !known || number > w.latest[s] || behind >= 64 {
		return false, false
	}
	come := w.lately[s.by]
	w.lately[s.by] = come | 1<<behind
	return true, come&(1<<behind) == 0
}

// every is the time between two beats of a host.
func (w *watch) every(slow bool) time.Duration {
	if slow {
		return slowBeats * w.beat
	}
	return w.beat
}

// patience is how long a host may be silent: three beats may be lost, and the next be late. How far apart
// they are the last one has said, so that nobody need know why a host hurries.
func (w *watch) patience(slow bool) time.Duration { return w.every(slow) * 15 / 4 }

// silent reports whether a host has said nothing for too long.
func (w *watch) silent(s sign, now time.Time) bool { return now.Sub(s.at) > w.patience(s.slow) }

// pace sets whether this host's beats are slow, and returns the time between two.
func (w *watch) pace(slow bool) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slow = slow
	return w.every(slow)
}

// doubts reports whether a host is in doubt.
func (w *watch) doubts(host nodeID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.doubted[host]
}

// doubtedSince is since when a host is in doubt; zero: it is not.
func (w *watch) doubtedSince(host nodeID) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.since[host]
}

// last moves the hosts that are in doubt to the end of a list.
func (w *watch) last(ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.doubted) == 0 {
		return
	}
	slices.SortStableFunc(ids, func(a, b string) int { return w.rank(a) - w.rank(b) })
}

// rank is 1 for a host that is in doubt, 0 for others.
func (w *watch) rank(id string) int {
	if n, err := parseNode(id); err == nil && w.doubted[n] {
		return 1
	}
	return 0
}

// hear takes a beat, and reports false of one that has come before, or may have. One that others have
// overtaken on the way, or in memberlist, which hands on the last of those that wait first, is neither that
// nor news.
func (w *watch) hear(from nodeID, b beat, slow bool, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := saying{by: from}
	if late, first := w.late(s, b.number); late {
		return first
	}
	if !w.fresh(s, b.number) {
		return false
	}
	w.heard[from] = sign{now, b.silent, slow}
	return true
}

// hearOld takes the beat of an agent from before beats had numbers, which says so much and no more: nobody
// can tell whether it has come before. It counts only of who has not said a number for as long as this host runs.
func (w *watch) hearOld(from nodeID, silent []nodeID, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, numbered := w.latest[saying{by: from}]; numbered {
		return false
	}
	w.heard[from] = sign{at: now, silent: silent}
	return true
}

// isOld reports whether the body of a beat is one without a number: it begins with a host, or with nothing.
// A number that is the ID of a host that is known is as likely as any other of 64 bits.
func isOld(body []byte, known func(nodeID) bool) bool {
	if len(body) < len(nodeID{}) {
		return len(body) == 0
	}
	return known(nodeID(body))
}

// refuses reports whether numbers of a host were heard, so that lower ones are refused.
func (w *watch) refuses(host nodeID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, known := w.latest[saying{by: host}]
	return known
}

// anew forgets the numbers of a host that has just proven to be there: it may count from an earlier one than
// before, as when its disk and its clock are those of a copy from long ago.
func (w *watch) anew(host nodeID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.latest, func(s saying, _ uint64) bool { return s.by == host })
	delete(w.lately, host)
}

// forgive is for a watcher that was itself away: what it did not hear says nothing.
func (w *watch) forgive(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pardon(now)
}

// pardon is forgive, with mu held.
func (w *watch) pardon(now time.Time) {
	for id, s := range w.heard {
		s.at = now
		w.heard[id] = s
	}
}

// take takes a suspicion, and reports whether it is news, to be passed on: the word of a host
// that may be a watcher by the view of some host, and later than what it said before.
func (w *watch) take(v suspicion, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.keep(v, now)
}

func (w *watch) keep(v suspicion, now time.Time) bool {
	_, known := slices.BinarySearchFunc(w.circle, v.host, compareIDs)
	// Twice as many as there are: who has just joined or died is not known to all.
	if !known || !slices.Contains(following(w.circle, v.host, 2*watchers), v.watcher) {
		return false
	}
	if !w.fresh(saying{v.watcher, v.host}, v.number) {
		return false
	}
	words := w.suspicions[v.host]
	if words == nil {
		words = map[nodeID]word{}
		w.suspicions[v.host] = words
	}
	words[v.watcher] = word{v, now}
	w.weigh(v.host)
	return true
}

// deny is for a suspicion of this host itself that comes back, and returns the one that is to be told, if
// the host is not silent by what this one says now. Who was started after that was said knows no better
// than to believe what somebody has recorded. For some beats after it was told it is not told again: what was
// said before is then still under way.
func (w *watch) deny(v suspicion, now time.Time) (tell suspicion, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.number = max(w.number, v.number) // if the state with the number of this run is one from a backup
	if !v.silent || w.suspicions[v.host][w.self].silent || now.Sub(w.denied[v.host]) < retell*w.beat {
		return tell, false
	}
	w.denied[v.host] = now
	tell = suspicion{w.self, v.host, w.next(), false}
	w.keep(tell, now)
	return tell, true
}

// weigh sets whether a host is in doubt: if a suspicion says so.
func (w *watch) weigh(host nodeID) {
	for _, v := range w.suspicions[host] {
		if v.silent {
			if !w.doubted[host] {
				w.doubted[host], w.since[host] = true, v.at
			}
			return
		}
	}
	delete(w.doubted, host)
	delete(w.since, host)
}

// round is done several times a beat. silent are those of whom this host hears nothing,
// though it watches them, and tell the suspicions that it is to pass to all.
func (w *watch) round(circle []nodeID, now time.Time) (silent []nodeID, tell []suspicion) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.circle = circle
	// Once a beat, since half of a large cluster can be in doubt at a time.
	if now.Sub(w.expired) >= w.beat {
		w.expire(now)
		w.expired = now
	}
	deaf := true // it hears nobody: it is this host then, or nobody is left to be told
	for _, s := range w.heard {
		// Who ceases to hear hears the last of some a little later than of others.
		deaf = deaf && now.Sub(s.at) > 2*w.every(s.slow)
	}
	if w.deaf && !deaf { // it was this host: of some it hears a little earlier again than of others
		w.pardon(now)
	}
	w.deaf = deaf
	for id, s := range w.heard {
		if !slices.Contains(following(circle, id, watchers), w.self) {
			delete(w.heard, id) // it is dead, or has others to watch it
		} else if w.silent(s, now) {
			silent = append(silent, id)
		}
	}
	slices.SortFunc(silent, compareIDs)
	for _, id := range w.judged() {
		last, said := w.suspicions[id][w.self]
		doubt := slices.Contains(silent, id) && w.agreed(id, silent)
		if doubt != (said && last.silent) || doubt && now.Sub(last.at) >= retell*w.beat {
			v := suspicion{w.self, id, w.next(), doubt}
			if w.keep(v, now) && (!doubt || !deaf) {
				tell = append(tell, v)
			}
			if !doubt {
				w.denied[id] = now
			}
		}
	}
	return silent, tell
}

// calm reports whether this host hears all that it watches, so that none of them can become silent before
// the next beat, and doubts nobody.
func (w *watch) calm(now time.Time) bool {
	if len(w.unheard()) > 0 {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.heard {
		if now.Sub(s.at) > w.patience(s.slow)-2*w.every(s.slow || w.slow) {
			return false
		}
	}
	return len(w.doubted) == 0
}

// unheard are those that this host is to watch and hears nothing of, be it that it never did.
func (w *watch) unheard() (list []nodeID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range preceding(w.circle, w.self, watchers) {
		if s, ok := w.heard[id]; !ok || w.silent(s, time.Now()) {
			list = append(list, id)
		}
	}
	return list
}

// judged are the hosts that this one watches, or has watched and judged silent.
func (w *watch) judged() []nodeID {
	list := slices.Collect(maps.Keys(w.heard))
	for id, words := range w.suspicions {
		if _, watched := w.heard[id]; !watched && words[w.self].silent {
			list = append(list, id)
		}
	}
	return list
}

// agreed reports whether enough of the watchers of a host that is silent here say the same.
// Of a watcher that is silent itself nothing else is to be expected.
func (w *watch) agreed(host nodeID, silent []nodeID) bool {
	all := following(w.circle, host, watchers)
	votes := 0
	for _, id := range all {
		if id == w.self || slices.Contains(silent, id) || w.doubted[id] || slices.Contains(w.heard[id].silent, host) {
			votes++
		}
	}
	return votes >= min(quorum, len(all))
}

// expire drops suspicions on hosts that do not answer any more, of hosts that do not, and those
// that were not told again. What this host said itself it keeps until then: others may still
// believe it when the host is back, and have to be told otherwise.
func (w *watch) expire(now time.Time) {
	for host, words := range w.suspicions {
		near := following(w.circle, host, 2*watchers)
		_, known := slices.BinarySearchFunc(w.circle, host, compareIDs)
		for id, v := range words {
			gone := !known || !slices.Contains(near, id)
			if gone && id != w.self || now.Sub(v.at) > 3*retell*w.beat {
				delete(words, id)
			}
		}
		if len(words) == 0 {
			delete(w.suspicions, host)
		}
		w.weigh(host)
	}
	maps.DeleteFunc(w.denied, func(_ nodeID, at time.Time) bool { return now.Sub(at) >= retell*w.beat })
}
