package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/gossip"
	"github.com/grapevine-net/grapevine/ipam"
)

// autoForget takes over from hosts that have not answered for the set time, if this is
// the host that may.
func (m *Forgetter) autoForget(ctx context.Context) error {
	limit := m.cfg.ForgetAfter
	if limit == 0 {
		return nil
	}
	t := time.NewTicker(min(limit/4, time.Minute))
	defer t.Stop()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		var hosts []cluster.NodeID
		for n := range cluster.All[cluster.Node](m.replica.Snapshot()) {
			hosts = append(hosts, n.ID)
		}
		silent := silentFor(limit, hosts, m.gossip.Members(), m.cfg.Started, time.Now())
		if len(silent) == 0 {
			said = ""
			continue
		}
		err := m.alloc.TakeoverUnasked(ctx, silent...)
		switch {
		case errors.Is(err, ipam.ErrNotCoordinator):
		case err == nil:
			m.dropPeers(silent)
			m.log.Warn("forgot hosts that did not answer", "hosts", silent, "for", limit)
		case err.Error() != said: // and not again each minute
			said = err.Error()
			m.log.Warn("hosts that do not answer are not forgotten yet", "hosts", silent, "for", limit, "err", err)
		}
	}
}

// silentFor lists the hosts that have not answered for so long, as far as this agent can say:
// of one that it has not met, for as long as it has run itself.
func silentFor(limit time.Duration, hosts []cluster.NodeID, members []gossip.Member, started, now time.Time) (silent []cluster.NodeID) {
	for _, id := range hosts {
		since := started
		if i := slices.IndexFunc(members, func(m gossip.Member) bool { return m.ID == string(id) }); i >= 0 {
			if members[i].Self || members[i].State == gossip.Alive {
				continue
			}
			since = members[i].Since
		}
		if now.Sub(since) >= limit {
			silent = append(silent, id)
		}
	}
	return silent
}

// ForgetAdvice is what may be done about a host that does not answer.
func (m *Forgetter) ForgetAdvice(id cluster.NodeID) string {
	do := "start it; if it is gone for good: grapevine forget " + forgetName(m.Nodes(m.replica.Snapshot()), id)
	coordinator := m.alloc.Coordinator()
	if m.cfg.ForgetAfter == 0 || coordinator == id || coordinator == "" {
		return do
	}
	name := string(coordinator)
	if n, ok := cluster.Get[cluster.Node](m.replica.Snapshot(), name); ok {
		name = n.Name
	}
	return fmt.Sprintf("%s (host %s does so after %v, if more than half of all hosts answer then)", do, name, m.cfg.ForgetAfter)
}
