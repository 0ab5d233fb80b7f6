package answers

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestOpenForItsTime: an address is open from the answer on until its time to live and the grace are over, by whichever
// name keeps it longest, and no moment longer; what has no room is not opened at all.
func TestOpenForItsTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Book
		now := time.Unix(1000, 0)
		want := map[string]time.Time{} // endpoint, name, address
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "later")) * time.Second)
			e, name := fmt.Sprint("e", rapid.IntRange(0, 1).Draw(t, "endpoint")), fmt.Sprint("n", rapid.IntRange(0, 1).Draw(t, "name"))
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				b.Drop(e)
				for k := range want {
					if k[:2] == e {
						delete(want, k)
					}
				}
			case 1: // too many
				var many []Told
				for i := range Most + 1 {
					many = append(many, Told{Addr: netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)})})
				}
				if _, err := b.Note(e, name, many, now); err == nil {
					t.Fatal("more is open than may be")
				}
			default:
				told := Told{netip.AddrFrom4([4]byte{192, 0, 2, byte(rapid.IntRange(0, 2).Draw(t, "addr"))}), time.Duration(rapid.IntRange(-1, 200).Draw(t, "ttl")) * time.Second}
				k := fmt.Sprint(e, name, told.Addr)
				fresh := !now.Before(want[k])
				opens, err := b.Note(e, name, []Told{told}, now)
				if err != nil || opens != fresh {
					t.Fatalf("%s is to be opened: %t, %v", k, opens, err)
				}
				if until := now.Add(max(told.TTL, 0) + Grace); until.After(want[k]) {
					want[k] = until
				}
			}
			open := map[string]bool{}
			list, _ := b.At(now)
			for _, a := range list {
				if !a.Past {
					open[fmt.Sprint(a.Endpoint, a.Name, a.Addr)] = true
				}
			}
			for k, until := range want {
				if open[k] != now.Before(until) {
					t.Fatalf("%s is open until %s; at %s it is: %t", k, until, now, open[k])
				}
				delete(open, k)
			}
			if len(open) > 0 {
				t.Fatalf("open are %v", open)
			}
			if next := b.Next(); !next.IsZero() && !next.After(now) {
				t.Fatalf("at %s the next thing is to be done at %s", now, next)
			}
			var first time.Time
			opened := map[string]int{}
			for _, a := range list {
				when := a.Until
				if a.Past {
					when = when.Add(remembered)
				} else {
					opened[a.Endpoint]++
				}
				if first.IsZero() || when.Before(first) {
					first = when
				}
			}
			if !b.Next().Equal(first) {
				t.Fatalf("the next thing is to be done at %s, and not at %s", first, b.Next())
			}
			for _, e := range []string{"e0", "e1"} {
				if b.Open(e) != opened[e] {
					t.Fatalf("%s has %d open, and not %d", e, opened[e], b.Open(e))
				}
			}
		}
	})
}

// New addresses change the switch, which all wait for: a container has so many answers with such at once, and then so
// many a second. What it knows already, and what others are told, is not held up.
func TestTooFast(t *testing.T) {
	var b Book
	now := time.Unix(1000, 0)
	n := 0
	ask := func(endpoint string, name int) error {
		_, err := b.Note(endpoint, fmt.Sprintf("n%d.example", name), []Told{{netip.AddrFrom4([4]byte{198, 51, byte(name >> 8), byte(name)}), time.Hour}}, now)
		return err
	}
	upTo := func(want int) {
		t.Helper()
		for range want {
			if err := ask("e", n); err != nil {
				t.Fatalf("name %d: %v", n, err)
			}
			n++
		}
		if ask("e", n) == nil {
			t.Errorf("after %d names there is one more", n)
		}
	}
	upTo(AtOnce)
	if err := ask("e", 0); err != nil {
		t.Errorf("what it knows: %v", err)
	}
	if err := ask("other", 0); err != nil {
		t.Errorf("another container: %v", err)
	}
	now = now.Add(time.Second)
	upTo(PerSecond)
	now = now.Add(time.Hour)
	if b.Expire(now); len(b.pace) != 0 {
		t.Errorf("of %d endpoints it is still known how fast they were", len(b.pace))
	}
}

// TestFull: who is refused an answer, since it has as many as it may or asks too fast, is named for a minute.
func TestFull(t *testing.T) {
	var b Book
	now := time.Unix(1000, 0)
	var many []Told
	for i := range Most {
		many = append(many, Told{netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}), time.Hour})
	}
	if _, err := b.Note("full", "a.example", many, now); err != nil || b.Open("full") != Most {
		t.Fatalf("%d are open: %v", b.Open("full"), err)
	}
	if full := b.Full(now); len(full) > 0 {
		t.Errorf("nothing was refused, and full are %v", full)
	}
	// The same address by another name is another one.
	if _, err := b.Note("full", "b.example", many[:1], now); err == nil {
		t.Error("one more is open")
	}
	for n := 0; ; n++ {
		if _, err := b.Note("fast", fmt.Sprintf("n%d.example", n), many[:1], now); err != nil {
			break
		}
	}
	if full := b.Full(now.Add(saidFor - time.Second)); !slices.Equal(full, []string{"fast", "full"}) {
		t.Errorf("full are %v", full)
	}
	b.Drop("fast")
	if full := b.Full(now); !slices.Equal(full, []string{"full"}) {
		t.Errorf("full are %v", full)
	}
	if full := b.Full(now.Add(saidFor)); len(full) > 0 {
		t.Errorf("after a minute full are %v", full)
	}
}

// BenchmarkNote is what an answer costs beside a hundred containers that have as many as they may.
func BenchmarkNote(b *testing.B) {
	var book Book
	now := time.Unix(1000, 0)
	for c := range 100 {
		var many []Told
		for i := range Most {
			many = append(many, Told{netip.AddrFrom4([4]byte{198, byte(c), byte(i >> 8), byte(i)}), time.Hour})
		}
		if _, err := book.Note(fmt.Sprint("c", c), "a.example", many, now); err != nil {
			b.Fatal(err)
		}
	}
	one := []Told{{netip.MustParseAddr("192.0.2.1"), time.Minute}}
	for b.Loop() {
		if _, err := book.Note("job", "a.example", one, now); err != nil {
			b.Fatal(err)
		}
		book.Next()
	}
}

// TestRestoredByAnotherClock: however the clock was set while no agent ran, nothing is open for longer than it was to be when
// it was asked for.
func TestRestoredByAnotherClock(t *testing.T) {
	then := time.Unix(1e9, 0)
	addr := netip.MustParseAddr("192.0.2.1")
	for _, tt := range []struct {
		name  string
		later time.Duration // by the clock, from the question on
		left  time.Duration
	}{
		{"in between", 30 * time.Second, 90 * time.Second},
		{"set back by an hour", -time.Hour, 2 * time.Minute},
		{"set back by years", -20 * 365 * 24 * time.Hour, 2 * time.Minute},
		{"set forward", time.Hour, 0},
	} {
		var was, b Book
		if _, err := was.Note("e", "n", []Told{{Addr: addr, TTL: time.Minute}}, then); err != nil {
			t.Fatal(err)
		}
		now := then.Add(tt.later)
		b.Restore(was.List(then), now)
		for _, at := range []struct {
			after time.Duration
			open  bool
		}{{0, tt.left > 0}, {tt.left - time.Second, tt.left > 0}, {tt.left, false}} {
			b.Expire(now.Add(at.after))
			if open := b.Open("e") > 0; open != at.open {
				t.Errorf("%s: open %v after it was taken up: %t", tt.name, at.after, open)
			}
		}
		for _, a := range b.List(now) {
			if a.Asked.After(now) {
				t.Errorf("%s: asked for %v in the future", tt.name, a.Asked.Sub(now))
			}
		}
	}
}
