package cluster

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func id(n int) NodeID { return NodeID(fmt.Sprintf("%016x", n)) }

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// space is what the hosts of the tests divide among them.
var space = prefix("10.0.0.0/28")

// put writes a body that must be good.
func put(t rapid.TB, s *State, b Body) Record {
	t.Helper()
	r, _, err := s.Put(b)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// merge merges records of which none may be refused.
func merge(t rapid.TB, s *State, recs []Record) (fresh, gone []Record) {
	t.Helper()
	m, err := s.Merge(slices.Clone(recs))
	if err != nil {
		t.Fatal(err)
	}
	return m.Fresh, m.Gone
}

func recordsOf(s *State) []Record { return slices.Collect(s.Snapshot().Records()) }

// equal fails unless two states have the same records, rings and digests.
func equal(t rapid.TB, a, b *State) {
	t.Helper()
	x, y := recordsOf(a), recordsOf(b)
	if !slices.EqualFunc(x, y, Record.Equal) {
		t.Fatalf("%s has\n%v\nbut %s has\n%v", a.Self(), x, b.Self(), y)
	}
	if x, y := slices.Collect(a.Snapshot().Ring().Claims()), slices.Collect(b.Snapshot().Ring().Claims()); !slices.Equal(x, y) {
		t.Fatalf("%s has claims\n%v\nbut %s has\n%v", a.Self(), x, b.Self(), y)
	}
	if x, y := EncodeDigest(a.Digest()), EncodeDigest(b.Digest()); !slices.Equal(x, y) {
		t.Fatalf("digests differ: %v and %v", a.Digest(), b.Digest())
	}
}

// checkState fails unless the indexes of a state agree with its records.
func checkState(t rapid.TB, s *State) {
	t.Helper()
	snap := s.Snapshot()
	claims, indexed, early := 0, 0, 0
	for r := range snap.Records() {
		if r.Version.Counter > snap.Marks()[r.Version.Node] {
			early++
		}
		if other, ok := snap.byWriter.Get(&r); !ok || !other.Equal(r) {
			t.Fatalf("%v is not in the index of writers", r)
		}
		if c, ok := r.claim(); ok {
			claims++
			if got, _ := snap.Ring().Owner(c.Block.Addr()); got.Version.Counter < c.Version.Counter {
				t.Fatalf("%v is not in the ring", c)
			}
		}
		indexed++
	}
	if !bytes.Equal(snap.EncodedDigest(), EncodeDigest(snap.Digest())) {
		t.Fatalf("digest %v, encoded as %x", snap.Digest(), snap.EncodedDigest())
	}
	if snap.early != early {
		t.Fatalf("%d records above the marks, counted %d", early, snap.early)
	}
	if snap.byWriter.Len() != indexed || snap.Ring().Len() != claims {
		t.Fatalf("%d records, %d indexed; %d claims, %d in the ring", indexed, snap.byWriter.Len(), claims, snap.Ring().Len())
	}
}

// checkMissing fails unless what a host would send another is all that is above the other's marks.
func checkMissing(t rapid.TB, s, asker *State) {
	t.Helper()
	d := asker.Digest()
	var want []Record
	for r := range s.Snapshot().Records() {
		if r.Version.Counter > d.Marks[r.Version.Node] {
			want = append(want, r)
		}
	}
	slices.SortFunc(want, func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Version.Node, b.Version.Node), cmp.Compare(a.Version.Counter, b.Version.Counter))
	})
	if got := slices.Collect(s.Missing(d)); !slices.EqualFunc(got, want, Record.Equal) {
		t.Fatalf("%s would send %s\n%v\nwant\n%v", s.Self(), asker.Self(), got, want)
	}
}

// randomWrite lets a host write something that it may write, and returns it.
func randomWrite(t *rapid.T, s *State) (Record, bool) {
	n := rapid.IntRange(0, 2).Draw(t, "object")
	network := fmt.Sprintf("net%d", n)
	bodies := []Body{
		Node{ID: s.Self(), Name: network},
		Network{Name: network, VNID: uint32(rapid.IntRange(0, 9).Draw(t, "vnid"))},
		Subnet{Prefix: space, Network: network, Home: s.Self()},
		Endpoint{ID: fmt.Sprintf("%s-%d", s.Self(), n), Network: network, Host: s.Self(), Name: strconv.FormatUint(s.clock, 10)},
		Use{Network: network, Host: s.Self()},
		nil, nil,
	}
	body := rapid.SampledFrom(bodies).Draw(t, "body")
	if body == nil {
		return randomClaim(t, s)
	}
	if rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
		return s.Delete(body.Key(), time.Unix(int64(s.clock)+1, 0))
	}
	if rapid.IntRange(0, 9).Draw(t, "forget") == 0 {
		return s.Delete(Node{ID: id(1 + n)}.Key(), time.Unix(int64(s.clock)+1, 0))
	}
	r, written, err := s.Put(body)
	if s.Snapshot().Tombstone(Node{ID: s.Self()}.Key()) && body.Key().Kind == KindNode {
		if !errors.Is(err, ErrForgotten) {
			t.Fatalf("a forgotten host announced itself: %v", err)
		}
		return Record{}, false
	}
	if err != nil {
		t.Fatal(err)
	}
	return r, written
}

func randomClaim(t *rapid.T, s *State) (Record, bool) {
	owned := s.Snapshot().Ring().Owned(s.Self(), space)
	if len(owned) == 0 {
		return Record{}, false
	}
	from := rapid.SampledFrom(owned).Draw(t, "from")
	bits := rapid.IntRange(from.Bits(), 32).Draw(t, "bits")
	to := id(rapid.IntRange(1, 4).Draw(t, "to"))
	return put(t, s, Claim{Block: netip.PrefixFrom(from.Addr(), bits), Owner: to}), true
}

// exchange lets b hear what it lacks of a, through the wire form, and reports
// whether there was anything.
func exchange(t rapid.TB, from, to *State, max int) (heard bool) {
	t.Helper()
	d, err := DecodeDigest(EncodeDigest(to.Digest()))
	if err != nil {
		t.Fatal(err)
	}
	for raw := range from.Snapshot().Answer(d, max, 1) {
		m, err := DecodeMessage(raw)
		if err != nil {
			t.Fatal(err)
		}
		merge(t, to, m.Records)
		if m.Complete != nil {
			if err := to.Complete(*m.Complete); err != nil {
				t.Fatal(err)
			}
		}
		heard = true
	}
	return heard
}

func newHosts(t rapid.TB, n int) []*State {
	t.Helper()
	hosts := []*State{New(id(1))}
	seed := put(t, hosts[0], Claim{Block: space, Owner: id(1)})
	for i := 2; i <= n; i++ {
		h := New(id(i))
		merge(t, h, []Record{seed})
		hosts = append(hosts, h)
	}
	return hosts
}

// TestHostsConverge lets four hosts write and hear each other's broadcasts, most
// of which are lost, repeated or late. Then some of them, since the others may
// have died, exchange with each other, and all must have the same and know it.
func TestHostsConverge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hosts := newHosts(t, 4)
		var sent []Record
		host := func(label string) *State { return rapid.SampledFrom(hosts).Draw(t, label) }
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				if r, ok := randomWrite(t, host("writer")); ok {
					sent = append(sent, r)
				}
			},
			"broadcast": func(t *rapid.T) {
				if len(sent) == 0 {
					t.Skip("nothing sent")
				}
				recs := rapid.SliceOfN(rapid.SampledFrom(sent), 1, 5).Draw(t, "records")
				merge(t, host("receiver"), recs)
			},
			"exchange": func(t *rapid.T) {
				exchange(t, host("from"), host("to"), rapid.IntRange(1, 500).Draw(t, "max"))
			},
			"broken exchange": func(t *rapid.T) {
				missing := slices.Collect(host("from").Missing(host("asker").Digest()))
				merge(t, host("to"), missing[:rapid.IntRange(0, len(missing)).Draw(t, "until")])
			},
			"": func(t *rapid.T) {
				for i, h := range hosts {
					checkState(t, h)
					checkMissing(t, h, hosts[(i+1)%len(hosts)])
				}
			},
		})
		hosts = rapid.Permutation(hosts).Draw(t, "survivors")[:rapid.IntRange(2, 4).Draw(t, "n")]
		for range hosts {
			for i := range hosts {
				exchange(t, hosts[i], hosts[(i+1)%len(hosts)], 300)
			}
		}
		for _, h := range hosts {
			if d := h.Pending(); len(d) > 0 {
				t.Fatalf("%s does not believe %v, of which all was right", h.Self(), d)
			}
		}
		for _, h := range hosts[1:] {
			equal(t, hosts[0], h)
			if exchange(t, hosts[0], h, 300) {
				t.Fatalf("%s had something to say to %s although they are equal", hosts[0].Self(), h.Self())
			}
		}
	})
}

// randomSent is what four hosts wrote, each having heard a part of what there was.
func randomSent(t *rapid.T) []Record {
	hosts := newHosts(t, 4)
	sent := recordsOf(hosts[0])
	for range rapid.IntRange(1, 25).Draw(t, "writes") {
		writer := rapid.SampledFrom(hosts).Draw(t, "writer")
		merge(t, writer, rapid.SliceOfN(rapid.SampledFrom(sent), 0, 4).Draw(t, "heard"))
		if r, ok := randomWrite(t, writer); ok {
			sent = append(sent, r)
		}
	}
	return sent
}

// TestMergeLaws merges one set of messages into fresh states in different orders,
// groupings and repetitions.
func TestMergeLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sent := randomSent(t)
		want := New(id(99))
		merge(t, want, sent)
		for name, order := range map[string][]Record{
			"reversed": reversed(sent),
			"shuffled": rapid.Permutation(sent).Draw(t, "shuffled"),
			"twice":    append(rapid.Permutation(sent).Draw(t, "first"), rapid.Permutation(sent).Draw(t, "second")...),
		} {
			got := New(id(99))
			for len(order) > 0 {
				n := rapid.IntRange(1, len(order)).Draw(t, name)
				merge(t, got, order[:n])
				order = order[n:]
			}
			if !slices.EqualFunc(recordsOf(got), recordsOf(want), Record.Equal) {
				t.Fatalf("%s: %v, want %v", name, recordsOf(got), recordsOf(want))
			}
			if fresh, gone := merge(t, got, recordsOf(want)); len(fresh)+len(gone) > 0 {
				t.Fatalf("%s: not idempotent: %v fresh, %v gone", name, fresh, gone)
			}
			checkState(t, got)
		}
	})
}

// TestFreshAndGoneAreTheDifference is what replicas rely on for their disks.
func TestFreshAndGoneAreTheDifference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sent := randomSent(t)
		s, disk := New(id(99)), map[Key]Record{}
		for len(sent) > 0 {
			n := rapid.IntRange(1, len(sent)).Draw(t, "message")
			fresh, gone := merge(t, s, rapid.Permutation(sent[:n]).Draw(t, "shuffled"))
			sent = sent[n:]
			for _, r := range fresh {
				disk[r.Key] = r
			}
			for _, r := range gone {
				delete(disk, r.Key)
			}
			checkTouched(t, s, append(fresh, gone...))
		}
		for _, r := range recordsOf(s) {
			if !disk[r.Key].Equal(r) {
				t.Fatalf("disk has %v, state %v", disk[r.Key], r)
			}
			delete(disk, r.Key)
		}
		if len(disk) > 0 {
			t.Fatalf("left on the disk: %v", disk)
		}
	})
}

// TestWhatIsPassedOnIsEnough: a host that hears only what another one passes on of what it
// merges knows as much after each message, as their digests say. Without what was replaced
// before it came the marks of one would wait, and the two would ask each other for the rest.
func TestWhatIsPassedOnIsEnough(t *testing.T) {
	stale := 0
	rapid.Check(t, func(t *rapid.T) {
		sent := rapid.Permutation(randomSent(t)).Draw(t, "order")
		near, far := New(id(98)), New(id(99))
		for len(sent) > 0 {
			n := rapid.IntRange(1, len(sent)).Draw(t, "message")
			m, err := near.Merge(slices.Clone(sent[:n]))
			if err != nil {
				t.Fatal(err)
			}
			sent = sent[n:]
			stale += len(m.Stale)
			merge(t, far, m.News())
			if a, b := near.Snapshot().EncodedDigest(), far.Snapshot().EncodedDigest(); !bytes.Equal(a, b) {
				t.Fatalf("%v was passed on: digests %v and %v", m, near.Snapshot().Digest(), far.Snapshot().Digest())
			}
		}
	})
	if stale == 0 {
		t.Error("nothing came late")
	}
}

// TestOneMessageTakesAClaimAwayAndBringsItBack: what is gone in between is not gone.
func TestOneMessageTakesAClaimAwayAndBringsItBack(t *testing.T) {
	a, b := New(id(1)), New(id(2))
	wide, narrow := Claim{Block: space, Owner: id(1)}, Claim{Block: prefix("10.0.0.4/30"), Owner: id(1)}
	merge(t, b, []Record{put(t, a, wide), put(t, a, narrow)})
	again, last := put(t, a, wide), put(t, a, narrow)
	fresh, gone := merge(t, b, []Record{last, again})
	if !slices.EqualFunc(fresh, []Record{again, last}, Record.Equal) || len(gone) > 0 {
		t.Errorf("fresh %v, gone %v", fresh, gone)
	}
	if _, gone := merge(t, b, []Record{put(t, a, wide)}); len(gone) != 1 || !gone[0].Equal(last) {
		t.Errorf("gone %v, want %v", gone, last)
	}
}

func checkTouched(t *rapid.T, s *State, changed []Record) {
	t.Helper()
	touched := s.Touched()
	for _, r := range changed {
		if !slices.Contains(touched, r.Key) {
			t.Fatalf("%v changed and is not among %v", r, touched)
		}
	}
}

func reversed(recs []Record) []Record {
	recs = slices.Clone(recs)
	slices.Reverse(recs)
	return recs
}
