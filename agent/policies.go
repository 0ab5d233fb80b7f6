package agent

import (
	"context"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/driver"
	"github.com/grapevine-net/grapevine/observe/counts"
	"github.com/grapevine-net/grapevine/observe/rulecount"
	"github.com/grapevine-net/grapevine/overlay"
	"github.com/grapevine-net/grapevine/policy/edit"
)

// policing is what this host does about policies.
type policing struct{ agent *Agent }

// desk is what people do with policies here.
func (p policing) desk() edit.Desk {
	a := p.agent
	return edit.Desk{
		Self: a.self(), Name: a.cfg.Name, Replica: a.replica, Enforced: a.plane.Overlay().Wait, Published: driver.Published, Traffic: a.traffic.Whole, Told: a.plane.Overlay().Answers, Full: a.plane.Overlay().FullByName, Unheard: a.former.Notes,
		Lacks: func() string {
			_, lacks := a.plane.Overlay().Enforces(past())
			return lacks
		},
	}
}

// counted is where people look at policies with what their rules have counted.
func (p policing) counted() counts.Desk {
	a := p.agent
	return counts.Desk{Config: counts.Config{
		Self: a.self(), Snapshot: a.replica.Snapshot, Desk: p.desk, Rules: a.ruleCounts,
		Switch: func(ctx context.Context) (overlay.RuleCounts, error) { return a.plane.Overlay().CountRules(ctx) },
		Tried:  func(there func(rule, version string) bool) ([]api.RuleCount, error) { return a.audit.Tried(there) },
	}}
}

// openCounts makes the desk where is asked what the rules of policies have counted.
func (p policing) openCounts() {
	a := p.agent
	a.ruleCounts = rulecount.New(rulecount.Config{
		Self: a.self(), Snapshot: a.replica.Snapshot, Alive: a.gossip.Alive, Call: a.gossip.Call,
		Count: func(ctx context.Context) ([]api.RuleCount, error) { return p.counted().Here(ctx) },
	})
}

// past is for questions that are not to wait.
func past() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// tell tells the others whether this host enforces policies, as soon as that is known.
func (p policing) tell(ctx context.Context) error {
	p.agent.plane.Overlay().Enforces(ctx)
	for ctx.Err() == nil {
		if err := p.agent.member.Joiner.DescribeAgain(); err == nil {
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
func (p policing) enforces(snap *cluster.Snapshot) uint8 {
	can, lacks := p.agent.plane.Overlay().Enforces(past())
	switch {
	case can:
		return cluster.EnforcesV4
	case lacks != "":
		return 0
	}
	was, _ := cluster.Get[cluster.Node](snap, string(p.agent.self()))
	return was.Enforces
}
