package gossip

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// logWriter takes memberlist's log: it counts what memberlist refuses, which it
// tells nobody but its log, and passes the lines on to slog. What matters to
// people (who comes, goes, is refused) this package logs itself, so memberlist's
// own words on it are for debugging; its warnings and errors pass, but those of
// one sort at most once in logEvery.
type logWriter struct {
	log   *slog.Logger
	stats *counters

	mu   sync.Mutex
	last map[string]time.Time // by the beginning of the line
	held map[string]int
	// strangers are the senders of what no key of ours decrypts.
	strangers strangers
}

const logEvery = 30 * time.Second

// meanings say what memberlist's messages mean; the first that matches counts.
// Tested against memberlist itself: an update that rewords them fails.
var meanings = []struct{ text, reason string }{
	{"no installed keys could decrypt", RefusedKey},
	{"remote state is not encrypted", RefusedPlain},
	{"handler queue full", LostQueueFull},
	{"Too many pending push/pull", LostBusy},
	{"exceeds limit", RefusedSize},
	{"larger than limit", RefusedSize},
	{"cannot decrypt empty payload", RefusedGarbage},
	{"too small to decrypt", RefusedGarbage},
	{"unsupported encryption version", RefusedGarbage},
	{"label", RefusedGarbage},
	{"Failed to decode", RefusedGarbage},
	{"Failed to decompress", RefusedGarbage},
	{"Failed to receive user message", RefusedGarbage},
	{"Failed to read remote state", RefusedGarbage},
	{"failed to receive", RefusedGarbage},
	{"not supported", RefusedGarbage},
	{"invalid msgType", RefusedGarbage},
	{"invalid checksum", RefusedGarbage},
	{"missing message type byte", RefusedGarbage},
	{"truncated messages", RefusedGarbage},
	{"Vsn is not present", RefusedGarbage},
	{"protocol version(s) are wrong", RefusedGarbage},
}

func newLogWriter(log *slog.Logger, stats *counters) *logWriter {
	return &logWriter{log: log, stats: stats, last: map[string]time.Time{}, held: map[string]int{}}
}

// Write takes one line. It never fails.
func (w *logWriter) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	level, text, _ := strings.Cut(strings.TrimPrefix(text, "["), "] ")
	text = strings.TrimPrefix(text, "memberlist: ")
	refused := ""
	if level == "ERR" || level == "ERROR" || level == "WARN" {
		for _, r := range meanings {
			if strings.Contains(text, r.text) {
				refused = r.reason
				w.stats.add(refused, 1)
				w.note(refused, text)
				break
			}
		}
	}
	if slogLevel(level, text) == slog.LevelDebug {
		w.log.Debug("memberlist: " + text)
		return len(line), nil
	}
	if held, ok := w.pass(text, time.Now()); ok {
		attrs := []slog.Attr{slog.Int("more", held)}
		if refused != "" {
			attrs = append(attrs, slog.String("reason", refused))
		}
		w.log.LogAttrs(context.Background(), slogLevel(level, text), "memberlist: "+text, attrs...)
	}
	return len(line), nil
}

// ofStream begins memberlist's words for the message of a stream that it cannot take.
const ofStream = "failed to receive: "

// note remembers who has another key, from "... from=192.0.2.3:7947". Anybody can send a packet in the
// name of any address, but a stream only from where he is.
func (w *logWriter) note(reason, text string) {
	_, from, found := strings.Cut(text, "from=")
	if reason != RefusedKey || !found || !strings.HasPrefix(text, ofStream) {
		return
	}
	from, _, _ = strings.Cut(from, " ")
	addr, err := netip.ParseAddrPort(from)
	if err != nil {
		return
	}
	w.strangers.heard(addr.Addr(), time.Now())
}

func slogLevel(level, text string) slog.Level {
	ours := strings.Contains(text, refusedMark) || strings.HasPrefix(text, "Conflicting address") ||
		strings.HasPrefix(text, "Refuting")
	switch {
	case ours:
		return slog.LevelDebug
	case level == "WARN" || level == "ERR" || level == "ERROR":
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// pass says whether a line of this sort is due, and how many were held back.
func (w *logWriter) pass(text string, now time.Time) (held int, ok bool) {
	sort := text[:min(len(text), 14)]
	w.mu.Lock()
	defer w.mu.Unlock()
	if last, seen := w.last[sort]; seen && now.Sub(last) < logEvery {
		w.held[sort]++
		return 0, false
	}
	if len(w.last) > 256 { // sorts are few; a line that begins with foreign data is not one
		clear(w.last)
		clear(w.held)
	}
	held = w.held[sort]
	w.last[sort], w.held[sort] = now, 0
	return held, true
}
