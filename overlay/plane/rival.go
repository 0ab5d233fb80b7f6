package plane

import (
	"context"
	"errors"
	"time"

	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/pulse"
)

// ErrRival ends the agent's tasks: this host's own Open vSwitch wants the datapath that the
// agent's has. Two would delete each other's ports for ever, so the agent moves over.
var ErrRival = errors.New("this host's own Open vSwitch has the datapath now")

// lookAtRival is how often it is looked whether there is a rival: one question by a socket, if
// there is any.
const lookAtRival = time.Second

// WatchRival returns ErrRival when the host's own Open vSwitch has a bridge in our datapath.
// Where the agent is told to run one of its own, status names the rival, and that is all.
func (p *Plane) WatchRival(ctx context.Context) error {
	if p.Embedded == nil || p.cfg.Settings.OVS != "auto" {
		return nil
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-pulse.After(lookAtRival):
		}
		var rival *ovs.RivalError
		if errors.As(p.Embedded.Rival(ctx), &rival) {
			p.log.Warn("the host's own Open vSwitch has a bridge in the datapath that the agent's has: beginning anew with that one", "bridges", rival.Bridges)
			return ErrRival
		}
	}
}
