package hold

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/egress"
	"github.com/grapevine-net/grapevine/host/lan"
)

// spot is an address of an egress, and what this host has of it.
type spot struct {
	lan.Place
	addr netip.Addr
	by   string // the interface that has to have a link for it
}

// spots are those of one egress: one, or one of each family. A host holds all of them or none.
type spots []spot

// Routed says of addresses on no LAN of this host's, which routers are told of by BGP, whether it may take them, and whether
// it may keep those that it has.
type Routed struct {
	Take, Keep bool
	// From are this host's addresses in sessions with routers. A session lasts longer than the link that it goes by.
	From []netip.Addr
}

// cut names an interface without a link, if all sessions go by such; "": one does not, or there is none.
func (r Routed) cut(v View) (nic string) {
	for _, a := range r.From {
		p := v.Find(a)
		if !p.Cut {
			return ""
		}
		nic = p.NIC
	}
	return nic
}

// spotsOf finds the addresses of an egress in a view.
func spotsOf(c egress.Case, v View, r Routed) (list spots) {
	cut := r.cut(v)
	for _, a := range c.Egress.Addrs {
		s := spot{Place: v.Find(a), addr: a}
		s.by = s.NIC
		switch {
		case s.Off && r.Take:
			s.NIC = lan.Loopback
		case s.NIC == lan.Loopback && s.Ours && !r.Keep: // no router leads here
			s.NIC, s.Here = "", false
		}
		if slices.Contains(c.Lost, a) { // what is here is not its
			s.Here, s.Ours = false, false
		}
		if s.routed() { // it is known by no MAC
			s.MAC, s.Cut, s.by = nil, cut != "", cut
		}
		list = append(list, s)
	}
	return list
}

// routed reports whether it is on no LAN: routers lead here.
func (s spot) routed() bool { return s.NIC == lan.Loopback }

func (l spots) any(is func(spot) bool) bool { return slices.ContainsFunc(l, is) }

// here reports whether this host has all of them.
func (l spots) here() bool { return !l.any(func(s spot) bool { return !s.Here }) }

// ours reports whether we have added one of them.
func (l spots) ours() bool { return l.any(func(s spot) bool { return s.Ours }) }

// onLAN reports whether we have added one of them to an interface of a LAN.
func (l spots) onLAN() bool { return l.any(func(s spot) bool { return s.Ours && !s.routed() }) }

// theirs reports whether an administrator has given this host one of them.
func (l spots) theirs() bool { return l.any(func(s spot) bool { return s.Here && !s.Ours }) }

// fit reports whether this host has an interface for each of them, with a link.
func (l spots) fit() bool { return !l.any(func(s spot) bool { return s.NIC == "" || s.Cut }) }

// cut names an interface without a link, if that alone is in the way; "": there is none, or there is no interface.
func (l spots) cut() string {
	i := slices.IndexFunc(l, func(s spot) bool { return s.Cut })
	if i < 0 || l.any(func(s spot) bool { return s.NIC == "" }) {
		return ""
	}
	return l[i].by
}

// remove takes those away that we have added.
func (l spots) remove(on LAN) (err error) {
	for _, s := range l {
		if s.Ours {
			err = errors.Join(err, on.Remove(s.addr))
		}
	}
	return err
}

// add adds those that are not here. It adds all, or none.
func (l spots) add(on LAN) error {
	for i, s := range l {
		if s.Here {
			continue
		}
		if err := on.Add(s.NIC, s.addr); err != nil {
			return errors.Join(err, l[:i].undo(on))
		}
	}
	return nil
}

// gather removes what we have added to another interface than it is to be at: this host would answer itself there, when it asks
// who has the address.
func (l spots) gather(on LAN) (err error) {
	for _, s := range l {
		if s.Ours && !s.Here {
			err = errors.Join(err, on.Remove(s.addr))
		}
	}
	return err
}

// undo removes what was not here and was added since.
func (l spots) undo(on LAN) (err error) {
	for _, s := range l {
		if !s.Here {
			err = errors.Join(err, on.Remove(s.addr))
		}
	}
	return err
}

func (l spots) announce(on LAN) (err error) {
	for _, s := range l {
		err = errors.Join(err, on.Announce(s.NIC, s.addr))
	}
	return err
}

// probe asks at the same time who else has them, and returns the MACs of who answers: without bytes, if routers were asked. Of
// what routers lead here this host itself would answer.
func (l spots) probe(ctx context.Context, on LAN) (who []net.HardwareAddr, err error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, s := range l {
		if s.Here && s.routed() {
			continue
		}
		all.Go(func() {
			mac, failed := on.Probe(ctx, s.NIC, s.addr)
			mu.Lock()
			defer mu.Unlock()
			if err = errors.Join(err, failed); mac != nil {
				who = append(who, mac)
			}
		})
	}
	all.Wait()
	return who, err
}

// occupied says that others have addresses of an egress. The MAC that is known of its holder says whether one is that host,
// which answers without its agent; one that was forgotten carries nothing any more. Routers lead to who held it last.
func occupied(who []net.HardwareAddr, snap *cluster.Snapshot, c egress.Case) *Note {
	h, _ := cluster.Get[cluster.EgressHolder](snap, c.Egress.Name)
	_, member := cluster.Get[cluster.Node](snap, string(c.Holder))
	for _, mac := range who {
		if member && (len(mac) == 0 || mac.String() == h.MAC) {
			return &Note{Occupied: mac, Silent: true}
		}
	}
	return &Note{Occupied: who[0]}
}
