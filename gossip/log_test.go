package gossip

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestMemberlistLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		var stats counters
		w := newLogWriter(slog.New(slog.NewTextHandler(&out, nil)), &stats)
		for i := range 100 {
			for _, line := range []string{
				"[ERR] memberlist: Decrypt packet failed: no installed keys could decrypt the message from=10.0.0.%d:7947\n",
				"[DEBUG] memberlist: Stream connection from=10.0.0.%d\n",
				"[INFO] memberlist: Suspect %d has failed, no acks received\n",
				"[WARN] memberlist: ignoring alive message for '%d': refused: host of another cluster\n",
			} {
				_, _ = fmt.Fprintf(w, line, i)
			}
		}
		if got := strings.Count(out.String(), "\n"); got != 1 || !strings.Contains(out.String(), "reason="+RefusedKey) {
			t.Errorf("%d lines:\n%s", got, out.String())
		}
		if stats.m[RefusedKey] != 100 || len(stats.m) != 1 {
			t.Errorf("counted %v", stats.m)
		}
		if got := w.strangers.list(time.Now()); len(got) != 0 {
			t.Errorf("after a word each they are strangers: %v", got)
		}
		stream := func() {
			for i := range 100 {
				_, _ = fmt.Fprintf(w, "[ERR] memberlist: failed to receive: no installed keys could decrypt the message from=10.0.0.%d:7947\n", i)
			}
		}
		stream()
		time.Sleep(2 * strangerInsists)
		stream()
		if got := w.strangers.list(time.Now()); len(got) != 100 || got[99].Addr != netip.MustParseAddr("10.0.0.99") || got[99].Last.Sub(got[99].Since) != 2*strangerInsists {
			t.Errorf("strangers: %v", got)
		}
		out.Reset()
		time.Sleep(logEvery)
		_, _ = fmt.Fprintf(w, "[ERR] memberlist: Decrypt packet failed: no installed keys\n")
		time.Sleep(strangerMemory + time.Second)
		if got := w.strangers.list(time.Now()); len(got) != 0 {
			t.Errorf("strangers after a while: %v", got)
		}
		if !strings.Contains(out.String(), "more=99") {
			t.Errorf("after a while: %q", out.String())
		}
	})
}
