package secure

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
)

// TestNext: who waits for whom.
func TestNext(t *testing.T) {
	a := func(turn uint64) []another { return []another{{one, "host1", turn}, {two, "host2", 8}} }
	all := map[cluster.NodeID]bool{one: true, two: true}
	both := [2]map[cluster.NodeID]bool{all, all}
	none := [2]map[cluster.NodeID]bool{}
	for _, tt := range []struct {
		name    string
		own     uint64
		ordered bool
		others  []another
		heard   [2]map[cluster.NodeID]bool
		want    uint64
		waits   []string
	}{
		{"nothing to do", 8, false, a(8), none, 8, nil},
		{"it is said", 8, true, a(8), none, 9, nil},
		{"somebody has begun", 8, false, a(9), none, 9, nil},
		{"somebody is further", 4, false, a(10), none, 9, nil},
		{"a new host comes to those that are ready", 4, true, []another{{one, "host1", 12}}, none, 12, nil},
		{"not all have begun", 9, false, a(9), both, 9, []string{"host2"}},
		{"not all are heard", 5, false, a(9), [2]map[cluster.NodeID]bool{all, {one: true}}, 5, []string{"host2"}},
		{"all have begun and are heard", 5, false, a(9), both, 6, nil},
		{"not all have moved", 6, false, a(5), both, 6, []string{"host1"}},
		{"all have moved", 6, false, a(6), none, 7, nil},
		{"not heard with the new key", 7, false, a(7), none, 7, []string{"host1", "host2"}},
		{"heard with the new key", 7, false, a(7), both, 8, nil},
		{"alone", 7, false, nil, none, 8, nil},
	} {
		got, waits := next(tt.own, false, tt.ordered, tt.others, tt.heard)
		if got != tt.want || !reflect.DeepEqual(waits, tt.waits) {
			t.Errorf("%s: %d, waits for %v, want %d and %v", tt.name, got, waits, tt.want, tt.waits)
		}
	}
}

// TestFarAhead: a host that says that it has changed its keys a million times leads nobody there, but for who comes to no other;
// and who comes to a cluster that has changed them often goes along.
func TestFarAhead(t *testing.T) {
	const liar, often = 1 << 40, 400
	at := func(turns ...uint64) (list []another) {
		for _, turn := range turns {
			list = append(list, another{turn: turn})
		}
		return list
	}
	for _, tt := range []struct {
		name   string
		own    uint64
		fresh  bool
		others []another
		want   uint64
	}{
		{"one liar among two", start, false, at(liar), start},
		{"one among three", start, false, at(start, liar), start},
		{"in the midst of a change", often + begun, false, at(often+begun, liar+begun), often + begun},
		{"one somewhat ahead", often, false, at(often, often+steps+begun), often + steps + begun},
		{"a new host", start, true, at(often, often, liar), often},
		{"a new host in the midst of a change", start, true, at(often+moved, often+begun, liar), often + begun},
		{"two new hosts", start, true, at(often, start), often},
		{"the second one", start, true, at(often, often), often},
		{"one that was forgotten meanwhile", start, false, at(often, often), often},
	} {
		if got, _ := next(tt.own, tt.fresh, false, tt.others, [2]map[cluster.NodeID]bool{}); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// model is a host with its two devices, and what it has heard of others' records.
type model struct {
	id      cluster.NodeID
	turn    uint64
	key     [2]int // of each device, 0: there is none
	peers   [2]map[cluster.NodeID]int
	said    map[cluster.NodeID]record // what it has heard, of itself what it has said
	ordered bool
}

type record struct {
	turn uint64
	key  [2]int
}

// sends is the device by which it sends to others.
func (m *model) sends() int {
	if step := m.turn % steps; step == moved || step == renewed {
		return 1
	}
	return 0
}

// session says whether a packet of one arrives at the other by a device.
func session(a, b *model, d int) bool {
	return a.key[d] != 0 && b.key[d] != 0 && a.peers[d][b.id] == b.key[d] && b.peers[d][a.id] == a.key[d]
}

// TestNoKeyIsMissed has hosts change their keys twice, in whatever order they take steps and hear of each other. At any
// moment each is heard by each by the device by which it sends. A host whose agent is away for a while is waited for.
func TestNoKeyIsMissed(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		keys := 0
		fresh := func() int { keys++; return keys }
		var all []*model
		for i := range 2 + random.IntN(4) {
			all = append(all, &model{id: cluster.NodeID(fmt.Sprint(i)), turn: start, key: [2]int{fresh(), 0}, said: map[cluster.NodeID]record{}})
		}
		tell := func(m *model) { m.said[m.id] = record{m.turn, m.key} }
		apply := func(m *model) { // what ensure does
			for d := range m.peers {
				m.peers[d] = map[cluster.NodeID]int{}
				for id, r := range m.said {
					if id != m.id && m.key[d] != 0 && r.key[d] != 0 {
						m.peers[d][id] = r.key[d]
					}
				}
			}
		}
		hear := func(m, of *model) { m.said[of.id] = of.said[of.id] }
		for _, m := range all {
			tell(m)
		}
		for _, m := range all {
			for _, of := range all {
				hear(m, of)
			}
			apply(m)
		}
		act := func(m *model) {
			apply(m)
			var others []another
			heard := [2]map[cluster.NodeID]bool{{}, {}}
			for _, o := range all {
				if o == m {
					continue
				}
				others = append(others, another{o.id, string(o.id), m.said[o.id].turn})
				for d := range heard {
					heard[d][o.id] = session(m, o, d)
				}
			}
			turn, _ := next(m.turn, false, m.ordered, others, heard)
			switch {
			case turn == m.turn && turn%steps == steady && m.key[1] != 0 && len(behind(turn, others)) == 0:
				m.key[1] = 0
			case turn == m.turn:
				return
			case turn%steps == begun:
				m.ordered, m.key[1] = false, fresh()
			case turn%steps == renewed:
				m.key[0] = fresh()
			}
			m.turn = turn
			apply(m)
			tell(m)
		}
		first := map[cluster.NodeID]int{}
		for round := range uint64(2) {
			for _, m := range all {
				first[m.id] = m.key[0]
			}
			all[random.IntN(len(all))].ordered = true
			away, until := random.IntN(len(all)), random.IntN(400)
			done := false
			for i := 0; i < 100000 && !done; i++ {
				m := all[random.IntN(len(all))]
				if m == all[away] && i < until {
					continue
				}
				if random.IntN(2) == 0 {
					hear(m, all[random.IntN(len(all))])
					apply(m)
				} else {
					act(m)
				}
				done = true
				for _, a := range all {
					done = done && a.turn == start+steps*(round+1) && a.key[1] == 0
					for _, b := range all {
						if a != b && !session(a, b, a.sends()) {
							t.Fatalf("seed %d: %s (%d) is not heard by %s (%d) on device %d: %+v %+v", seed, a.id, a.turn, b.id, b.turn, a.sends(), a, b)
						}
					}
				}
			}
			if !done {
				t.Fatalf("seed %d: no end", seed)
			}
			for _, m := range all {
				if m.key[0] == first[m.id] {
					t.Errorf("seed %d: %s has the key that it had", seed, m.id)
				}
			}
		}
	}
}
