package secure

import (
	"cmp"
	"slices"

	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/wireguard"
)

// Keys of WireGuard change on all hosts together, in four steps. WireGuard knows a peer by its key, and an address inside
// belongs to one peer of a device, so two keys of a host take two devices. A host takes a step when all others have
// taken the one before, as their signed records say:
//
//	steady    gvwg alone, as ever
//	begun     gvwg2 is there as well, with a key and a port of its own; hosts are sent to by gvwg
//	moved     hosts are sent to by gvwg2: each was heard there
//	renewed   nobody sends by gvwg any more, so it was made anew, with a new key
//	steady    hosts are sent to by gvwg: each was heard there. When all are here gvwg2 goes
//
// Both are listened to all the while, so no packet is lost, in whatever order hosts go. All hosts are waited for, those
// whose agent does not run as well: they send by the devices and the keys that they have.
const (
	steady = iota
	begun
	moved
	renewed
	steps
)

// start is the turn of a host that has never changed its keys; 0 is that of an agent that does not know how.
const start = steps

// near is more than hosts that mean well differ by, since each step waits for all. Who is farther ahead is followed if most hosts
// are there, this one among them, as when it was forgotten meanwhile. So a host that is in others' hands cannot lead the others to the
// last turn there is, after which no keys would change any more, not even when it is forgotten.
const near = 2 * steps

// far reports whether a turn is one that is not to be followed. Fresh is a host that says its first turn now: it has no voice.
func far(turn, own uint64, fresh bool, others []another) bool {
	there, all := 0, len(others)
	for _, o := range others {
		if max(o.turn, turn)-min(o.turn, turn) <= near {
			there++
		}
	}
	if fresh {
		return 2*there < all
	}
	return turn > own+near && 2*there <= all+1
}

// another is another host that encrypts, as far as changing keys is concerned.
type another struct {
	id   cluster.NodeID
	name string
	turn uint64
}

// turners are the other hosts that encrypt, and those of them whose agents do not know how to change keys.
func turners(snap *cluster.Snapshot, self cluster.NodeID) (list, older []another) {
	for n := range cluster.All[cluster.Node](snap) {
		if n.ID == self || n.SecureKey() == nil {
			continue
		}
		o := another{n.ID, cmp.Or(n.Name, string(n.ID)), n.Turn.At}
		if o.turn == 0 {
			older = append(older, o)
		} else {
			list = append(list, o)
		}
	}
	return list, older
}

// next is the turn after own, the same if it is not time, and whom it waits for then. It is pure. Heard says who was
// heard on a device, the first or the second one, by the keys that both have there now. Fresh: see far.
func next(own uint64, fresh, ordered bool, others []another, heard [2]map[cluster.NodeID]bool) (turn uint64, waits []string) {
	most := own
	for _, o := range others {
		if o.turn > most && !far(o.turn, own, fresh, others) {
			most = o.turn
		}
	}
	if own%steps == steady {
		switch {
		case most > own: // somebody has begun; or this host was not there when they did
			if most%steps != steady {
				return most - most%steps + begun, nil
			}
			return most, nil
		case ordered:
			return own + 1, nil
		}
		return own, nil
	}
	for _, o := range others {
		silent := own%steps == begun && !heard[1][o.id] || own%steps == renewed && !heard[0][o.id]
		if o.turn < own || silent {
			waits = append(waits, o.name)
		}
	}
	if len(waits) > 0 {
		slices.Sort(waits)
		return own, waits
	}
	return own + 1, nil
}

// behind are those that have not come as far as a turn.
func behind(turn uint64, others []another) (names []string) {
	for _, o := range others {
		if o.turn < turn {
			names = append(names, o.name)
		}
	}
	slices.Sort(names)
	return names
}

func namesOf(list []another) (names []string) {
	for _, o := range list {
		names = append(names, o.name)
	}
	slices.Sort(names)
	return names
}

// held are this host's keys, and how far it is in changing them.
type held struct {
	turn   uint64
	first  wireguard.Key
	second wireguard.Key
	two    bool // there is a second
}

func (h held) step() int { return int(h.turn % steps) }

// some names hosts.
func some(names []string) string { return words.SomeHosts(names, len(names)+1) }
