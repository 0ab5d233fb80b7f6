package plane

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/policy"
)

// near says what an address is that this host has itself, or that is a container's of another network of its Docker's; else
// nothing. Whether containers reach such an address is not for a name to say.
func (p *Plane) near(a netip.Addr) string {
	routes, err := netlink.RouteGet(a.AsSlice())
	if err != nil {
		return "" // it leads nowhere
	}
	for _, r := range routes {
		switch {
		case r.Type != unix.RTN_UNICAST:
			return "this host's own, or all hosts' of a network"
		case p.guard.IsDockers(r.LinkIndex):
			return "in a network of this host's Docker"
		}
	}
	return ""
}

// told keeps in the state file what containers were told by name.
type told struct{ db store.File }

// answer is a policy.Answer in the file, under its place in the list.
type answer struct {
	Endpoint, Name string
	Addr           netip.Addr
	Asked, Until   time.Time
	Past           bool
}

var answerBucket = store.NewBucket[answer]("overlay/answers")

// Load implements overlay.Told.
func (t told) Load() (list []policy.Answer, err error) {
	err = t.db.View(func(tx *store.Tx) error {
		return answerBucket.ForEach(tx, func(_ string, one answer) error {
			list = append(list, policy.Answer(one))
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read what containers were told by name: %w", err)
	}
	return list, nil
}

// Save implements overlay.Told.
func (t told) Save(list []policy.Answer) error {
	err := t.db.Update(func(tx *store.Tx) error {
		if err := answerBucket.Clear(tx); err != nil {
			return err
		}
		for i, one := range list {
			if err := answerBucket.Put(tx, fmt.Sprintf("%08d", i), answer(one)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("save what containers were told by name: %w", err)
	}
	return nil
}
