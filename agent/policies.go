package agent

import (
	"context"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/driver"
	"github.com/grapevine-net/grapevine/policy/edit"
)

// policies is what people do with policies here.
func (a *Agent) policies() edit.Desk {
	return edit.Desk{
		Self: a.self(), Name: a.cfg.Name, Replica: a.replica, Enforced: a.plane.Overlay().Wait, Published: driver.Published, Told: a.plane.Overlay().Answers, Full: a.plane.Overlay().FullByName,
		Lacks: func() string {
			_, lacks := a.plane.Overlay().Enforces(past())
			return lacks
		},
	}
}

// past is for questions that are not to wait.
func past() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// describeTracking tells the others whether this host enforces policies, as soon as that is known.
func (a *Agent) describeTracking(ctx context.Context) error {
	a.plane.Overlay().Enforces(ctx)
	for ctx.Err() == nil {
		if err := a.member.Joiner.DescribeAgain(); err == nil {
			break
		}
		select { // the disk takes nothing: again
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return nil
}

// enforces is up to which level this host enforces policies; until that is known, as before.
func (a *Agent) enforces(snap *cluster.Snapshot) uint8 {
	can, lacks := a.plane.Overlay().Enforces(past())
	switch {
	case can:
		return cluster.EnforcesV2
	case lacks != "":
		return 0
	}
	was, _ := cluster.Get[cluster.Node](snap, string(a.self()))
	return was.Enforces
}
