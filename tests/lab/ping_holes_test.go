package lab

import (
	"testing"
	"time"
)

// What was lost is told by when it was sent.
func TestHoles(t *testing.T) {
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var sent []time.Time
	answered := map[uint16]bool{}
	for i := range 200 {
		sent = append(sent, begin.Add(time.Duration(i)*10*time.Millisecond))
		answered[uint16(i)] = i != 7 && (i < 100 || i > 119)
	}
	r := PingResult{Sent: 200, Received: 179, Gap: 210 * time.Millisecond, Holes: holes(sent, answered)}
	const want = "21 of 200 lost, longest gap 210ms; 1 from 03:04:05.070 on, sent within 0s; 20 from 03:04:06.000 on, sent within 190ms"
	if r.String() != want {
		t.Errorf("said %q, want %q", r, want)
	}
	for i := range 200 {
		answered[uint16(i)] = i%2 == 0
	}
	if n := len(holes(sent, answered)); n != 5 {
		t.Errorf("%d rows are told, want the first 5", n)
	}
}
