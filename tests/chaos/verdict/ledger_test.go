package verdict

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/ipam"
)

func TestLedger(t *testing.T) {
	held := func(host string, s int, keys ...string) Entry { return Entry{Host: host, At: at(s), Held: keys} }
	freed := func(host string, s int, keys ...string) Entry {
		return Entry{Host: host, At: at(s), Freed: keys}
	}
	begun := func(host string, s int, keys ...string) Entry {
		return Entry{Host: host, At: at(s), All: true, Held: keys}
	}
	a, b := "lease 10.0.0.2", "vnid 7"
	said(t, Ledger([]Entry{held("host1", 1, a), held("host2", 2, b), held("host1", 3, a)}), "")
	said(t, Ledger([]Entry{held("host1", 1, a, b), held("host2", 2, b)}), "host2 got vnid 7, which host1 held")
	said(t, Ledger([]Entry{held("host2", 2, a), held("host1", 1, a)}), "host2 got lease 10.0.0.2, which host1 held")
	said(t, Ledger([]Entry{held("host1", 1, a), held("host2", 2, a), freed("host1", 2, a)}), "")
	said(t, Ledger([]Entry{held("host1", 1, a), held("host2", 2, a), freed("host1", 3, a)}), "host2 got")
	said(t, Ledger([]Entry{held("host1", 1, a), freed("host1", 2, b), held("host2", 3, a)}), "host2 got")
	said(t, Ledger([]Entry{held("host1", 1, a, b), begun("host1", 2, b), held("host2", 3, a)}), "")
	said(t, Ledger([]Entry{held("host1", 1, a, b), begun("host1", 2, b), held("host2", 3, b)}), "host2 got vnid 7")
}

// The lines are those that the allocator writes.
func TestEntries(t *testing.T) {
	text := new(bytes.Buffer)
	log := slog.New(slog.NewTextHandler(text, &slog.HandlerOptions{Level: slog.LevelDebug})).With("room", "ipam")
	log.Debug(ipam.LeasesRead, "held", "")
	log.Debug(ipam.LeasesRead, "held", "lease 10.0.0.2,vnid 7")
	log.Debug(ipam.LeasesSaved, "held", "lease fd00::2", "freed", "")
	log.Debug("something else", "held", "vnid 9")
	log.Debug(ipam.LeasesSaved, "held", "", "freed", "vnid 7,vnid 8")
	list, err := Entries("host1", text.String())
	if err != nil || len(list) != 4 {
		t.Fatalf("%v, %v of\n%s", err, list, text)
	}
	for i, want := range []Entry{{All: true}, {All: true, Held: []string{"lease 10.0.0.2", "vnid 7"}}, {Held: []string{"lease fd00::2"}}, {Freed: []string{"vnid 7", "vnid 8"}}} {
		got := list[i]
		if got.All != want.All || len(got.Held) != len(want.Held) || len(got.Freed) != len(want.Freed) || time.Since(got.At) > time.Minute || got.Host != "host1" {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if got := list[1].Held[1]; got != "vnid 7" {
		t.Errorf("it holds %q", got)
	}
}
