package agent

import (
	"context"
	"errors"
	"time"

	"github.com/grapevine-net/grapevine/host/ovs"
)

// errRival ends the agent's tasks: this host's own Open vSwitch wants the datapath that the
// agent's has. Two would delete each other's ports for ever, so the agent moves over.
var errRival = errors.New("this host's own Open vSwitch has the datapath now")

// lookAtRival is how often it is looked whether there is a rival: one question by a socket, if
// there is any.
const lookAtRival = time.Second

// watchRival returns errRival when the host's own Open vSwitch has a bridge in our datapath.
// Where the agent is told to run one of its own, status names the rival, and that is all.
func (a *Agent) watchRival(ctx context.Context) error {
	if a.plane.Embedded == nil || a.cfg.OVS != "auto" {
		return nil
	}
	return every(ctx, lookAtRival, func() error {
		var rival *ovs.RivalError
		if errors.As(a.plane.Embedded.Rival(ctx), &rival) {
			a.log.Warn("the host's own Open vSwitch has a bridge in the datapath that the agent's has: beginning anew with that one", "bridges", rival.Bridges)
			return errRival
		}
		return nil
	})
}
