package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/store/storetest"
)

// scene is a world of three hosts with a network, in which something is about to happen.
type scene struct {
	*world
	net  netip.Prefix
	vnid uint32  // how many were asked for by number
	said []Lease // that a host was told it has
	at   []*host
}

// lease has a host ask for an address, and notes what it was told.
func (s *scene) lease(h *host) error {
	a, err := h.Address(ctx, s.net, anywhere, anyAddr)
	if err == nil && !h.life.Over {
		s.said, s.at = append(s.said, Lease{Addr: a}), append(s.at, h)
	}
	return err
}

// TestKilledAtEveryWrite loses the power of each host at each write of all that makes numbers
// change their owner: before the write is on the disk, and after. Then the host starts
// again, the same is done once more, and everybody hands out what it has: what was said is
// true, nothing has two owners, and nothing is lost.
func TestKilledAtEveryWrite(t *testing.T) {
	deeds := map[string]func(s *scene) error{
		"an address of another host's share": func(s *scene) error { return errors.Join(s.lease(s.hosts[1]), s.lease(s.hosts[2])) },
		"VNIDs": func(s *scene) error {
			_, err := s.hosts[1].VNID(ctx)
			s.vnid++
			return errors.Join(err, s.hosts[2].VNIDExact(ctx, 70+s.vnid, "blue"))
		},
		"a network": func(s *scene) error {
			p, err := s.hosts[2].Prefix(ctx, 4, 24, 0)
			if err == nil && !s.hosts[2].life.Over {
				err = s.hosts[2].PoolDone(p)
			}
			return err
		},
		"a lease ends": func(s *scene) error {
			for _, h := range s.hosts[:2] {
				for i, l := range s.said {
					if s.at[i] == h && !h.life.Over {
						if err := h.Release(l.Addr); err != nil {
							return err
						}
						s.said[i].Addr = netip.Addr{} // whichever it is, nobody was told that it is there
					}
				}
			}
			return nil
		},
		"space goes home": func(s *scene) error {
			if h := s.hosts[0]; !h.life.Over && !h.replica.Snapshot().Tombstone(cluster.Subnet{Prefix: s.net}.Key()) {
				h.deleteSubnet(s.net)
			}
			s.spread()
			return errors.Join(s.hosts[0].homing.sendHome(), s.hosts[1].homing.sendHome(), s.hosts[2].homing.sendHome())
		},
		"a host leaves": func(s *scene) error { return s.hosts[2].Leave(ctx) },
		"a host is forgotten": func(s *scene) error {
			s.hosts[2].down = true
			return s.hosts[1].Takeover(ctx, s.hosts[2].id)
		},
	}
	for what, do := range deeds {
		t.Run(what, func(t *testing.T) {
			total := 0
			for victim := range 3 {
				for n, ended := 1, true; ended; n++ {
					for _, wrote := range []bool{false, true} {
						ended = killedIn(t, what, do, victim, n, wrote)
					}
					if ended {
						total++
					}
				}
			}
			if total == 0 {
				t.Error("nothing was written")
			}
			t.Logf("power lost at %d writes", total)
		})
	}
}

// killedIn has the deed done with the victim ending at its nth write, and reports whether it
// did end.
func killedIn(t *testing.T, what string, do func(*scene) error, victim, n int, wrote bool) bool {
	t.Helper()
	w := newWorld(t, 3)
	defer func() {
		for _, h := range w.hosts {
			_ = h.db.Close()
		}
	}()
	s := &scene{world: w}
	s.net = w.network(w.hosts[0], "blue", 0)
	w.spread()
	owned := get(w.hosts[2].Address(ctx, s.net, anywhere, anyAddr))(t) // so the third host has a share
	must(t, w.hosts[2].ReleaseVNID(get(w.hosts[2].VNID(ctx))(t)))
	must(t, w.hosts[2].Release(owned))
	switch what {
	case "a lease ends":
		must(t, errors.Join(s.lease(w.hosts[0]), s.lease(w.hosts[1])))
	case "space goes home":
		for _, h := range w.hosts[1:] {
			must(t, h.Release(get(h.Address(ctx, s.net, anywhere, anyAddr))(t)))
		}
	}
	w.spread()
	h := w.hosts[victim]
	h.life = storetest.Life{Ends: n, Wrote: wrote}
	_ = do(s)
	if !h.life.Over {
		return false
	}
	when := fmt.Sprintf("host %d without power at write %d (on the disk: %v)", victim, n, wrote)
	h.restart()
	w.spread()
	if err := do(s); err != nil {
		t.Errorf("%s: once more: %v", when, err)
	}
	w.spread()
	for _, h := range w.hosts {
		h.restart()
	}
	w.spread()
	for i, l := range s.said {
		if l.Addr.IsValid() && !hasLease(s.at[i], l.Addr) {
			t.Errorf("%s: %s was leased, and is not", when, l.Addr)
		}
	}
	for _, h := range w.hosts {
		for range 20 {
			_, _ = h.Address(ctx, s.net, anywhere, anyAddr)
			_, _ = h.VNID(ctx)
		}
	}
	w.spread()
	w.unique(t)
	all := 0
	for _, c := range []cluster.NodeID{w.hosts[0].id, w.hosts[1].id, w.hosts[2].id} {
		all += int(w.hosts[1].replica.Snapshot().Ring().Counts(s.net)[c])
	}
	if all != 256 {
		t.Errorf("%s: of 256 addresses %d have an owner", when, all)
	}
	return true
}

func hasLease(h *host, a netip.Addr) bool {
	for _, l := range h.Leases() {
		if l.Addr == a {
			return true
		}
	}
	return false
}
