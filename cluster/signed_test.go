package cluster

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/grapevine-net/grapevine/sshkey"
)

// operator is the key of an operator.
func operator(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
}

func publicOf(key ed25519.PrivateKey) PublicKey { return Public(key) }

// signed is a policy as an operator signs it over others.
func signed(key ed25519.PrivateKey, name string, serial uint64, text string, over ...SignedPolicy) SignedPolicy {
	public := Public(key)
	p := SignedPolicy{Scope: ScopeNetwork, Network: "blue", Name: name, Signer: public[:], Serial: serial, Text: text, Author: "host1"}
	if len(over) > 0 {
		p.Over = over[0].Before()
	}
	p.Signature = ed25519.Sign(key, sshkey.Signed(SigningPurpose, p.Message()))
	return p
}

// written is a record as a host may write it that keeps to no rule.
func written(v Version, prev uint64, k Key, b Body) Record {
	r := Record{Key: k, Version: v, Prev: prev, Body: b}
	if b == nil {
		r.Deleted = 50
	}
	return r
}

// onWire is a record as it comes by gossip.
func onWire(t rapid.TB, r Record) Record {
	t.Helper()
	recs, err := Decode(Encode([]Record{r}))
	if err != nil {
		t.Fatal(err)
	}
	return recs[0]
}

// TestSignedIsChecked: a body that says something else than what was signed is no signed policy, whatever of it differs, and under
// another key than its own neither. It is kept, and passed on to the bit.
func TestSignedIsChecked(t *testing.T) {
	good := signed(operator(1), "db", 3, "x", signed(operator(1), "db", 2, "w"))
	if err := Validate(good); err != nil {
		t.Fatal(err)
	}
	other := publicOf(operator(2))
	bad := map[string]func(p *SignedPolicy){
		"scope":     func(p *SignedPolicy) { p.Scope, p.Network = ScopeCluster, "" },
		"network":   func(p *SignedPolicy) { p.Network = "red" },
		"name":      func(p *SignedPolicy) { p.Name = "web" },
		"serial":    func(p *SignedPolicy) { p.Serial = 4 },
		"text":      func(p *SignedPolicy) { p.Text = "y" },
		"deletion":  func(p *SignedPolicy) { p.Text = "" },
		"over":      func(p *SignedPolicy) { p.Over = nil },
		"signer":    func(p *SignedPolicy) { p.Signer = other[:] },
		"signature": func(p *SignedPolicy) { p.Signature = make([]byte, 64) },
		"none":      func(p *SignedPolicy) { p.Signature = nil },
		"no key":    func(p *SignedPolicy) { p.Signer = nil },
		"purpose": func(p *SignedPolicy) {
			p.Signature = ed25519.Sign(operator(1), sshkey.Signed("file", p.Message()))
		},
	}
	for name, change := range bad {
		p := good
		change(&p)
		if Validate(p) == nil {
			t.Errorf("%s: it is valid", name)
		}
		raw := must(encoding.Marshal(p))
		for _, key := range []Key{p.Key(), good.Key()} {
			w := wireRecord{Kind: KindSignedPolicy, Counter: 5, Node: id(1), Body: raw, ID: key.ID}
			wire := wireMessage{Records: []part{must(encoding.Marshal(w))}}.encode()
			recs, err := Decode(wire)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			s := New(id(2))
			merge(t, s, recs)
			for range All[SignedPolicy](s.Snapshot()) {
				t.Errorf("%s under %s: it counts", name, key)
			}
			if on := Encode(slices.Collect(s.Missing(Digest{}))); !bytes.Equal(on, wire) || s.Digest().Marks[id(1)] != 5 {
				t.Errorf("%s: it is not passed on as it came", name)
			}
		}
		if _, _, err := New(id(1)).Put(p); err == nil {
			t.Errorf("%s: it can be written", name)
		}
	}
	for name, p := range map[string]SignedPolicy{
		"serial 0": signed(operator(1), "db", 0, "x"), "serial out of reach": signed(operator(1), "db", MaxSerial+1, "x"), "a slash": signed(operator(1), "a/b", 1, "x"),
		"a text too long": signed(operator(1), "db", 1, string(bytes.Repeat([]byte{'x'}, MaxSignedText+1))), "a line break": signed(operator(1), "a\nb", 1, "x"),
		"over a later one": signed(operator(1), "db", 1, "x", signed(operator(1), "db", 2, "y")),
	} {
		if Validate(p) == nil {
			t.Errorf("%s is valid", name)
		}
	}
	longest := signed(operator(1), "db", MaxSerial, string(bytes.Repeat([]byte{'x'}, MaxSignedText)))
	longest.Author = string(bytes.Repeat([]byte{'x'}, maxName))
	for range MaxBase {
		longest.Over = append(longest.Over, SignedEdit{Serial: MaxSerial - 1, Sum: make([]byte, 8)})
	}
	longest.Signature = ed25519.Sign(operator(1), sshkey.Signed(SigningPurpose, longest.Message()))
	put(t, New(id(1)), longest)
}

// TestSignedReplay: what somebody has signed last holds against each later record that is not signed later: a tombstone, an older
// text, what nobody signed. This host cannot take it away by mistake either.
func TestSignedReplay(t *testing.T) {
	first := signed(operator(1), "db", 1, "first")
	second := signed(operator(1), "db", 2, "second", first)
	gone := signed(operator(1), "db", 3, "", second)
	s := New(id(1))
	put(t, s, second)
	later := written(Version{100, id(2)}, 0, second.Key(), nil)
	forged := second
	forged.Serial = 9
	for i, r := range []Record{
		later, written(Version{101, id(2)}, 100, second.Key(), first), onWire(t, written(Version{102, id(2)}, 101, second.Key(), forged)),
		written(Version{103, id(2)}, 102, second.Key(), opaque{second.Key(), []byte{0xa0}}),
	} {
		m, err := s.Merge([]Record{onWire(t, r)})
		if err != nil || len(m.Stale) != 1 || len(m.Lost) != 0 {
			t.Errorf("%d: %+v, %v", i, m, err)
		}
		if now, _ := Get[SignedPolicy](s.Snapshot(), second.Key().ID); now.Text != "second" {
			t.Fatalf("%d: there is %+v", i, now)
		}
		if mark := s.Digest().Marks[id(2)]; mark != r.Version.Counter {
			t.Errorf("%d: the mark is %d: it would be asked for again and again", i, mark)
		}
	}
	if _, ok := s.Delete(second.Key(), time.Unix(50, 0)); ok {
		t.Error("it can be deleted without a signature")
	}
	if _, _, err := s.Put(first); !errors.Is(err, ErrSerial) {
		t.Errorf("an older one can be written: %v", err)
	}
	put(t, s, gone)
	merge(t, s, []Record{written(Version{200, id(3)}, 0, second.Key(), second)})
	if now, there := Get[SignedPolicy](s.Snapshot(), second.Key().ID); !there || now.Text != "" {
		t.Errorf("a deleted one is back: %+v", now)
	}
	put(t, s, signed(operator(1), "db", 4, "again", gone))

	// An older agent went by versions: what it had on its disk is no reason to refuse to start.
	for name, r := range map[string]Record{"a tombstone": later, "a forged one": onWire(t, written(Version{102, id(2)}, 101, second.Key(), forged))} {
		old, err := Restore(id(1), []Record{r}, map[NodeID]uint64{id(2): 102})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		merge(t, old, []Record{written(Version{1, id(4)}, 0, second.Key(), second)})
		if _, there := Get[SignedPolicy](old.Snapshot(), second.Key().ID); !there {
			t.Errorf("%s keeps out what is signed", name)
		}
	}
}

// TestSignedAtOnce: of two texts of one serial all hosts take the same, and who has both is told of the other one; a text is taken
// before a deletion. An edit that the later one was made over is not lost.
func TestSignedAtOnce(t *testing.T) {
	base := signed(operator(1), "db", 1, "base")
	a, b := signed(operator(1), "db", 2, "a", base), signed(operator(1), "db", 2, "b", base)
	gone := signed(operator(1), "db", 2, "", base)
	after := signed(operator(1), "db", 3, "after", a)
	for _, tt := range []struct {
		bodies []SignedPolicy
		want   string
		lost   []string
	}{
		{[]SignedPolicy{base, a, b}, "b", []string{"a"}},
		{[]SignedPolicy{base, b, a}, "b", []string{"a"}},
		{[]SignedPolicy{base, gone, a}, "a", []string{""}},
		{[]SignedPolicy{base, a, after}, "after", nil},
		{[]SignedPolicy{after, a, base}, "after", nil},
		{[]SignedPolicy{base, b, after}, "after", []string{"b"}},
		{[]SignedPolicy{after, b}, "after", []string{"b"}},
		{[]SignedPolicy{a, a}, "a", nil},
	} {
		s := New(id(9))
		var lost []string
		for i, p := range tt.bodies {
			m, err := s.Merge([]Record{written(Version{uint64(10 + i), id(1 + i)}, 0, p.Key(), p)})
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range m.Lost {
				lost = append(lost, l.Edit.Body.(SignedPolicy).Text)
			}
		}
		if now, _ := Get[SignedPolicy](s.Snapshot(), base.Key().ID); now.Text != tt.want || !slices.Equal(lost, tt.lost) {
			t.Errorf("%q holds, lost %q; want %q, %q", now.Text, lost, tt.want, tt.lost)
		}
	}
	p := base
	for i := range uint64(2 * MaxBase) {
		p = signed(operator(1), "db", 2+i, fmt.Sprint(i), p)
	}
	if len(p.Over) != MaxBase || p.Misses(base) || !p.Misses(signed(operator(1), "db", p.Serial-1, "another")) {
		t.Errorf("over %d edits", len(p.Over))
	}
}

// TestSignedMergeCommutes: whatever hosts write that keep to no rule (replays, forgeries, tombstones, several writers of the same),
// in whatever order, grouping and repetition it comes: all hosts have the same, of each key the highest serial that was signed, and
// who hears what another one passes on knows as much.
func TestSignedMergeCommutes(t *testing.T) {
	held, stood := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		var sent []Record
		best := map[Key]SignedPolicy{}
		counter, last := uint64(0), map[NodeID]uint64{}
		history := map[string][]SignedPolicy{}
		for range rapid.IntRange(1, 15).Draw(t, "writes") {
			n := rapid.IntRange(1, 2).Draw(t, "operator")
			name := rapid.SampledFrom([]string{"db", "web"}).Draw(t, "name")
			at := fmt.Sprint(n, name)
			writer := id(rapid.IntRange(1, 3).Draw(t, "writer"))
			counter += uint64(rapid.IntRange(0, 2).Draw(t, "later"))
			counter = max(counter, last[writer]+1)
			p := signed(operator(byte(n)), name, uint64(rapid.IntRange(1, 4).Draw(t, "serial")), rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "text"))
			if old := history[at]; len(old) > 0 && rapid.Bool().Draw(t, "replay") {
				p = rapid.SampledFrom(old).Draw(t, "which")
			}
			v := Version{counter, writer}
			r := written(v, last[writer], p.Key(), p)
			switch rapid.IntRange(0, 5).Draw(t, "rule") {
			case 0:
				r = written(v, last[writer], p.Key(), nil)
			case 1:
				p.Serial += 5
				r = written(v, last[writer], p.Key(), p)
			default:
				history[at] = append(history[at], p)
				if old, there := best[r.Key]; !there || p.Serial > old.Serial || p.Serial == old.Serial && p.Text > old.Text {
					best[r.Key] = p
				}
			}
			last[writer] = counter
			sent = append(sent, onWire(t, r))
		}
		want := New(id(99))
		merge(t, want, sent)
		for key, p := range best {
			held++
			if now, there := Get[SignedPolicy](want.Snapshot(), key.ID); !there || now.Serial != p.Serial || now.Text != p.Text {
				t.Fatalf("%s: %+v, want %+v", key, now, p)
			}
			if now, _ := want.Snapshot().Record(key); slices.ContainsFunc(sent, func(r Record) bool { return r.Key == key && r.Version.Compare(now.Version) > 0 }) {
				stood++
			}
		}
		order := append(rapid.Permutation(sent).Draw(t, "first"), rapid.Permutation(sent).Draw(t, "second")...)
		near, far := New(id(98)), New(id(99))
		for len(order) > 0 {
			n := rapid.IntRange(1, len(order)).Draw(t, "message")
			m, err := near.Merge(slices.Clone(order[:n]))
			if err != nil {
				t.Fatal(err)
			}
			order = order[n:]
			merge(t, far, m.News())
			if a, b := near.Snapshot().EncodedDigest(), far.Snapshot().EncodedDigest(); !bytes.Equal(a, b) {
				t.Fatalf("%v was passed on: digests %v and %v", m, near.Snapshot().Digest(), far.Snapshot().Digest())
			}
		}
		if !slices.EqualFunc(recordsOf(near), recordsOf(want), Record.Equal) || !slices.EqualFunc(recordsOf(far), recordsOf(want), Record.Equal) {
			t.Fatalf("%v, want %v", recordsOf(near), recordsOf(want))
		}
		checkState(t, near)
		again, err := Restore(id(99), recordsOf(want), want.Digest().Marks)
		if err != nil || !slices.EqualFunc(recordsOf(again), recordsOf(want), Record.Equal) {
			t.Fatalf("restored %v, %v", recordsOf(again), err)
		}
	})
	if held == 0 || stood == 0 {
		t.Errorf("%d signed policies, of which %d stood against a later record", held, stood)
	}
}

// TestStandings: which policies are in force, by the keys that a host goes by.
func TestStandings(t *testing.T) {
	alice, bob, eve := operator(1), operator(2), operator(3)
	s := New(id(1))
	unsigned := func(name string) {
		put(t, s, Policy{Scope: ScopeNetwork, Network: "blue", Name: name, Text: "plain"})
	}
	force := func(keys ...ed25519.PrivateKey) (text string) {
		var public []PublicKey
		for _, k := range keys {
			public = append(public, Public(k))
		}
		s.GoBy(public)
		for rec, p := range PoliciesOf(s.Snapshot()).InForce() {
			if rec.Key != p.Key() || rec.Body.(Policy).Text != p.Text {
				t.Errorf("%+v is the record of %+v", rec, p)
			}
			text += p.Name + ":" + p.Text + " "
		}
		return text
	}
	check := func(what string, want map[string]string) {
		t.Helper()
		for who, keys := range map[string][]ed25519.PrivateKey{"nobody": nil, "alice": {alice}, "both": {alice, bob}} {
			if got := force(keys...); got != want[who] {
				t.Errorf("%s, by %s: %q, want %q", what, who, got, want[who])
			}
		}
	}
	check("nothing", nil)
	unsigned("db")
	unsigned("web")
	check("unsigned", map[string]string{"nobody": "db:plain web:plain "})
	first := signed(alice, "db", 1, "alice")
	put(t, s, first)
	check("signed by alice", map[string]string{"nobody": "db:plain web:plain ", "alice": "db:alice ", "both": "db:alice "})
	put(t, s, signed(eve, "db", 9, "eve"))
	check("and by a stranger", map[string]string{"nobody": "db:plain web:plain ", "alice": "db:alice ", "both": "db:alice "})
	put(t, s, signed(bob, "db", 2, "bob"))
	check("changed by bob", map[string]string{"nobody": "db:plain web:plain ", "alice": "db:alice ", "both": "db:bob "})
	put(t, s, signed(bob, "db", 3, ""))
	check("deleted by bob", map[string]string{"nobody": "db:plain web:plain ", "alice": "db:alice "})
	put(t, s, signed(eve, "db", 10, ""))
	check("deleted by all", map[string]string{"nobody": "db:plain web:plain ", "alice": "db:alice "})
	s.GoBy([]PublicKey{Public(alice), Public(bob)})
	var all []string
	for _, one := range PoliciesOf(s.Clone().Snapshot()).All() {
		all = append(all, fmt.Sprintf("%s%d%t", one.Policy.Name, one.Force, one.Signed != nil))
	}
	slices.Sort(all)
	if want := []string{"db1false", "db2true", "db3true", "db5true", "web1false"}; !slices.Equal(all, want) {
		t.Errorf("%q, want %q", all, want)
	}
}

func TestKeyPrints(t *testing.T) {
	a, b := publicOf(operator(1)), publicOf(operator(2))
	if x, y := KeyPrints([]PublicKey{a, b, a}), KeyPrints([]PublicKey{b, a}); !bytes.Equal(x, y) || len(x) != 2*printSize || KeyPrints(nil) != nil && len(KeyPrints(nil)) != 0 {
		t.Errorf("%x and %x", x, y)
	}
	if Validate(Node{ID: id(1), PolicyKeys: []byte{1}}) == nil {
		t.Error("half a print is valid")
	}
}
