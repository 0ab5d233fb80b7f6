package membership

import (
	"context"
	"time"
)

// movePatience is how long a host at a new address looks for one of the others, which would
// know of a host that has this ID and is still at the old address.
const movePatience = 3 * time.Second

// proveMoved finds out, for a host whose address is not that of its Node record, whether it
// has moved or is a copy: then what it writes would draw the other one's traffic here. The
// first host that it meets knows of the other address, and whoever is there proves whether
// it is the other one. Where there is none, it goes on.
func (m *Quarantine) proveMoved(ctx context.Context) error {
	const look = 50 * time.Millisecond
	end := time.Now().Add(movePatience)
	for met := false; m.elsewhere.Load(); {
		_, cloned := m.gossip.Clone()
		if !cloned && !m.gossip.CloneSought() && (met || !m.hadPeers() || time.Now().After(end)) {
			m.elsewhere.Store(false)
		}
		met = len(m.gossip.Alive()) > 0 // and one more look, since it tells all that it knows one by one
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(look):
		}
	}
	return nil
}

// WaitMoved lets Docker's calls wait until proveMoved knows, rather than fail for it.
func (m *Quarantine) WaitMoved(ctx context.Context) {
	for end := time.Now().Add(movePatience); m.elsewhere.Load() && time.Now().Before(end) && ctx.Err() == nil; {
		if _, cloned := m.gossip.Clone(); cloned {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}
