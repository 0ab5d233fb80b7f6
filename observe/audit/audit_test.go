package audit

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/api"
)

var began = time.Date(2026, 11, 28, 8, 0, 0, 0, time.UTC)

func connection(from byte, port uint16, after time.Duration) api.Connection {
	at := began.Add(after)
	return api.Connection{
		First: at, Last: at, Proto: "tcp", From: api.TrafficEnd{Addr: netip.AddrFrom4([4]byte{10, 0, 0, from}), Port: port},
		To: api.TrafficEnd{Addr: netip.AddrFrom4([4]byte{10, 0, 1, 1}), Port: 80},
	}
}

// bench is a Log of what seen is, of which all is logged.
func bench() (l *Log, seen *api.Traffic, judged *int) {
	seen, judged = &api.Traffic{Hosts: []api.TrafficHost{{}}}, new(int)
	l = New(Config{
		Wanted: func() bool { return true }, Seen: func(context.Context) (api.Traffic, error) { return *seen, nil }, Log: slog.New(slog.DiscardHandler),
		Judge: func(list []api.Connection) (out []api.LoggedConnection) {
			*judged += len(list)
			for _, c := range list {
				out = append(out, api.LoggedConnection{Time: c.First, From: c.From, To: c.To, Proto: c.Proto})
			}
			return out
		},
	})
	return l, seen, judged
}

// TestOnce: each connection is logged once, as long as it is seen; one that uses the ports again is another.
func TestOnce(t *testing.T) {
	l, seen, _ := bench()
	seen.Connections = []api.Connection{connection(1, 1, -time.Minute)}
	l.look(t.Context(), began) // older than the log
	seen.Connections = append(seen.Connections, connection(1, 2, time.Second), connection(2, 3, time.Second))
	l.look(t.Context(), began)
	for range 5 { // the clocks are read anew
		for i := range seen.Connections {
			seen.Connections[i].First = seen.Connections[i].First.Add(50 * time.Nanosecond)
		}
		l.look(t.Context(), began)
	}
	seen.Connections[1] = connection(1, 2, time.Minute)
	l.look(t.Context(), began)
	got, _ := l.Since(t.Context(), 0)
	if len(got.Connections) != 3 || got.Last != 3 || got.Lost != 0 || got.Connections[2].Time != began.Add(time.Minute) {
		t.Fatalf("%+v", got)
	}
	if got, _ := l.Since(t.Context(), 2); len(got.Connections) != 1 || got.Connections[0].Number != 3 {
		t.Errorf("behind line 2: %+v", got)
	}
	if got, _ := l.Since(t.Context(), 77); len(got.Connections) != 3 {
		t.Errorf("behind a line of the agent before: %+v", got)
	}
	seen.Connections[2].Again = began.Add(time.Hour) // as package traffic has it
	for range 2 {
		l.look(t.Context(), began)
	}
	if got, _ := l.Since(t.Context(), 3); len(got.Connections) != 1 || got.Connections[0].Time != began.Add(time.Hour) {
		t.Errorf("of ports that were used again: %+v", got)
	}
}

// TestFlood: a container's flood costs so many verdicts and no more, keeps nobody else's out, and what is left out is counted.
func TestFlood(t *testing.T) {
	l, seen, judged := bench()
	seen.Hosts[0].Lost = 70 // before any policy wanted lines
	l.look(t.Context(), began)
	for i := range 4000 {
		seen.Connections = append(seen.Connections, connection(1, uint16(i), time.Duration(i)))
	}
	for from := byte(2); from < 100; from++ {
		seen.Connections = append(seen.Connections, connection(from, 1, time.Hour))
	}
	seen.Hosts[0].Lost = 75
	l.look(t.Context(), began)
	if *judged != most {
		t.Errorf("%d connections were judged, want %d", *judged, most)
	}
	of := map[string]int{}
	got, _ := l.Since(t.Context(), 0)
	for _, c := range got.Connections {
		of[c.From.Addr.String()]++
	}
	if len(of) != 99 || got.Lost != uint64(4098-most+5) {
		t.Errorf("%d senders, %d lost", len(of), got.Lost)
	}
	for round := range 12 { // memory is bounded as well
		for i := range seen.Connections {
			seen.Connections[i].First = began.Add(time.Duration(2+round) * time.Hour)
		}
		l.look(t.Context(), began)
	}
	if got, _ := l.Since(t.Context(), 0); len(got.Connections) != room || got.Connections[room-1].Number != got.Last {
		t.Errorf("%d lines, the last of number %d of %d", len(got.Connections), got.Connections[len(got.Connections)-1].Number, got.Last)
	}
}

// TestUnseen: where nothing is counted, that is said, until it is.
func TestUnseen(t *testing.T) {
	l, _, _ := bench()
	seen := l.cfg.Seen
	l.cfg.Seen = func(context.Context) (api.Traffic, error) { return api.Traffic{}, errors.New("it is off") }
	l.look(t.Context(), began)
	if got, _ := l.Since(t.Context(), 0); got.Error != "it is off" {
		t.Errorf("%+v", got)
	}
	l.look(t.Context(), began)
	if p := pauseAfter(0, l.failed); p != 4*every {
		t.Errorf("after two looks in vain the next comes in %v", p)
	}
	if p := pauseAfter(0, 1000); p != seldom {
		t.Errorf("after many it comes in %v", p)
	}
	l.cfg.Seen = seen
	l.look(t.Context(), began)
	if p := pauseAfter(time.Second, l.failed); p != rest*time.Second {
		t.Errorf("after one that took a second the next comes in %v", p)
	}
	if got, _ := l.Since(t.Context(), 0); got.Error != "" {
		t.Errorf("%+v", got)
	}
}

// TestTried: what a policy that is only tried would deny is counted for that writing of it, and is no line of the agent's log.
func TestTried(t *testing.T) {
	l, seen, _ := bench()
	var said strings.Builder
	l.cfg.Log = slog.New(slog.NewTextHandler(&said, nil))
	version := "3"
	l.cfg.Judge = func(list []api.Connection) (out []api.LoggedConnection) {
		for _, c := range list {
			out = append(out, api.LoggedConnection{Time: c.First, Allowed: true, Tried: c.To.Port == 80, Rules: []api.PolicyRule{{Rule: "blue/db ingress", Version: version}}})
		}
		return out
	}
	there := func(rule, v string) bool { return rule == "blue/db ingress" && v == version }
	count := func() (n uint64) {
		rules, err := l.Tried(there)
		for _, r := range rules {
			n += r.Connections
		}
		if err != nil || len(rules) > 1 || len(rules) == 1 && rules[0].Action != api.WouldDeny {
			t.Errorf("%+v, %v", rules, err)
		}
		return n
	}
	l.look(t.Context(), began)
	for port := range uint16(5) {
		seen.Connections = append(seen.Connections, connection(1, port+1, time.Second))
	}
	l.look(t.Context(), began)
	if got, _ := l.Since(t.Context(), 0); count() != 5 || len(got.Connections) != 5 || said.Len() != 0 {
		t.Errorf("%d are counted, %d have lines, and the log has %q", count(), len(got.Connections), said.String())
	}
	if version = "4"; count() != 0 {
		t.Error("the count of another writing is told")
	}
	seen.Connections = append(seen.Connections, connection(1, 99, time.Minute))
	if l.look(t.Context(), began); count() != 1 {
		t.Errorf("%d are counted of the new writing", count())
	}
	l.cfg.Seen = func(context.Context) (api.Traffic, error) { return api.Traffic{}, errors.New("it is off") }
	l.look(t.Context(), began)
	if _, err := l.Tried(there); err == nil {
		t.Error("that nothing is counted is not said")
	}
}
