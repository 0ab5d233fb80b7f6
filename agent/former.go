package agent

import (
	"net/netip"

	"github.com/grapevine-net/grapevine/former"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/replica"
)

// beside opens what knows who had addresses before, which is written with the replica.
func beside(a *Agent) func(*store.DB) ([]replica.Option, error) {
	return func(db *store.DB) (options []replica.Option, err error) {
		if a.former, err = former.Open(db, a.self()); err != nil {
			return nil, err
		}
		return []replica.Option{replica.Beside(a.former.Note)}, nil
	}
}

// heirs is the agent's former, which comes with its state file.
type heirs struct{ agent *Agent }

// Given implements ipam.Former.
func (h heirs) Given(blocks []netip.Prefix) ([]byte, error) { return h.agent.former.Given(blocks) }

// Take implements ipam.Former.
func (h heirs) Take(given []byte) error { return h.agent.former.Take(given) }

// openFormer has other hosts asked, and answered, who has heard whose an address is.
func openFormer(a *Agent) {
	a.former.Follow(former.Config{
		Snapshot: a.replica.Snapshot, Watch: a.replica.Watch, Flush: a.replica.Flush, Call: a.gossip.Call, Alive: a.gossip.Alive,
		Placed: a.plane.Overlay().Wait, Pass: a.plane.Overlay().Pass, Log: a.log.With("room", "former"),
	})
	a.gossip.Handle(former.Method, a.former.Answer)
}
