package agent

import (
	"context"
	"errors"
	"time"

	"github.com/grapevine-net/grapevine/host/link"
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
	if a.vswitch.embedded == nil || a.cfg.OVS != "auto" {
		return nil
	}
	return every(ctx, lookAtRival, func() error {
		var rival *ovs.RivalError
		if errors.As(a.vswitch.embedded.Rival(ctx), &rival) {
			a.log.Warn("the host's own Open vSwitch has a bridge in the datapath that the agent's has: beginning anew with that one", "bridges", rival.Bridges)
			return errRival
		}
		return nil
	})
}

// handOver ends the agent's Open vSwitch, whose ports the host's takes over. The tasks have
// ended.
func (v *vswitch) handOver(ctx context.Context) error {
	if v.embedded == nil {
		return nil
	}
	return v.embedded.Abandon(ctx)
}

// adoptLinks prepares containers' interfaces for this switch, which may be another one than
// they were made for.
func (v *vswitch) adoptLinks() {
	if v.bridge.Datapath != ovs.Userspace {
		return
	}
	list, err := link.List(innerPrefix)
	for _, l := range list {
		err = errors.Join(err, link.ForUserspace(l.Name, v.embedded != nil && v.embedded.UserspaceTSO))
	}
	if err != nil {
		v.log.Warn("prepare the containers' interfaces for the switch", "err", err)
	}
}
