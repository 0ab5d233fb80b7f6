package traffic

import (
	"maps"
	"time"

	"github.com/grapevine-net/grapevine/overlay/counter"
)

// Outcomes are what becomes of a connection, as far as its caller's host knows: Unknown is what only the other one could say.
const (
	Answered   = "answered"
	Unanswered = "unanswered"
	Refused    = "refused"
	Reset      = "reset"
	Unknown    = "unknown"
)

// Totals are what has been counted on this host since the agent started. A connection between hosts is in those of its caller's.
type Totals struct {
	Open  int               // connections that have not ended
	Ended map[string]uint64 // those that have, by outcome
	Lost  uint64            // packets that there was no room for
}

// Totals says how much has been counted. It is no question: nothing begins to be counted for it.
func (d *Desk) Totals() Totals {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := Totals{Open: d.table.open(), Ended: map[string]uint64{Answered: 0, Unanswered: 0, Refused: 0, Reset: 0, Unknown: 0}, Lost: d.total.Lost}
	maps.Copy(t.Ended, d.total.Ended)
	return t
}

// add counts what has ended, each connection once: by the half that began. The other one may have ended at the same look.
func (t *Totals) add(ended []*Record, live map[counter.Half]*Record, now time.Time) {
	if len(ended) == 0 {
		return
	}
	if t.Ended == nil {
		t.Ended = map[string]uint64{}
	}
	both := make(map[counter.Half]*Record, len(ended))
	for _, r := range ended {
		both[r.Half] = r
	}
	for _, r := range ended {
		back, answered := both[r.Half.Back()]
		if !answered {
			back, answered = live[r.Half.Back()]
		}
		if !answered {
			back = &Record{Half: r.Half.Back()}
		}
		if begins(r, back) {
			t.Ended[outcome(r, back, answered, now)]++
		}
	}
}

func outcome(r, back *Record, answered bool, now time.Time) string {
	switch state(*r, *back, answered, hears(*r), now) {
	case "open", "closed", "answered":
		return Answered
	case "unanswered":
		return Unanswered
	case "refused":
		return Refused
	case "reset":
		return Reset
	}
	return Unknown
}

// begins reports whether a half is the one by which its connection is counted. Of an other half that is not known there is nothing in back.
func begins(r, back *Record) bool { return r.Half == r.Half.Back() || opens(*r, *back) }

// hears reports whether this host would have counted an answer.
func hears(r Record) bool { return r.Dst.Host == "" || r.Dst.Host == r.Src.Host }

func (t *table) open() (n int) {
	for h, r := range t.live {
		back, answered := t.live[h.Back()]
		if !answered {
			back = &Record{Half: h.Back()}
		}
		if begins(r, back) {
			n++
		}
	}
	return n
}
