package agent

import (
	"net/netip"

	"github.com/grapevine-net/grapevine/former"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/replica"
)

// beside opens what knows who had addresses before, which is written with the replica.
func (p *place) beside(db *store.DB) (options []replica.Option, err error) {
	if p.former, err = former.Open(db, p.self()); err != nil {
		return nil, err
	}
	return []replica.Option{replica.Beside(p.former.Note)}, nil
}

// heirs is the place's former, which comes with its state file.
type heirs struct{ of *place }

// Given implements ipam.Former.
func (h heirs) Given(blocks []netip.Prefix) ([]byte, error) { return h.of.former.Given(blocks) }

// Take implements ipam.Former.
func (h heirs) Take(given []byte) error { return h.of.former.Take(given) }

// openFormer has other hosts asked, and answered, who has heard whose an address is.
func (a *Agent) openFormer() {
	a.former.Follow(former.Config{
		Snapshot: a.replica.Snapshot, Watch: a.replica.Watch, Flush: a.replica.Flush, Call: a.gossip.Call, Alive: a.gossip.Alive,
		Placed: a.plane.Overlay().Wait, Pass: a.plane.Overlay().Pass, Log: a.log.With("room", "former"),
	})
	a.gossip.Handle(former.Method, a.former.Answer)
}
