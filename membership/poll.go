package membership

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
)

// A host gives its identity up for nothing less than what forget itself rests on: that the
// others agree. One host alone, broken or with a stolen key, may have said so.

// methodForgotten asks whether the called host believes that the caller is forgotten: one
// byte, 1 if so.
const methodForgotten = "agent.forgotten"

func (m *Rejoiner) serveForgotten(_ context.Context, from string, _ []byte) ([]byte, error) {
	if m.replica.Snapshot().Tombstone(cluster.Node{ID: cluster.NodeID(from)}.Key()) {
		return []byte{1}, nil
	}
	return []byte{0}, nil
}

// forgottenBy returns the host that says that self is forgotten, and false if none does. A
// host that left has said so itself.
func forgottenBy(snap *cluster.Snapshot, self cluster.NodeID) (heir cluster.NodeID, ok bool) {
	r, ok := snap.Record(cluster.Node{ID: self}.Key())
	return r.Version.Node, ok && r.Deleted != 0 && r.Version.Node != self
}

// poll is what the other hosts say to a host of which one says that it is forgotten.
type poll struct {
	heir                cluster.NodeID
	agree, deny, silent []cluster.NodeID
}

// proven: who takes over has the promise of every host that is there then, so all that
// answer know of it sooner or later, and a thief alone is contradicted. That more than half
// of all have to say so keeps a host from it that is cut off with a thief.
func (v poll) proven() bool {
	return len(v.deny) == 0 && 2*len(v.agree) > len(v.agree)+len(v.silent)
}

const (
	pollPause    = 500 * time.Millisecond // before the others are asked again, and then twice that
	pollPauseMax = 15 * time.Second
	pollTimeout  = 3 * time.Second
	pollAtOnce   = 16 // hosts that are asked at the same time
)

// forgottenForSure reports whether the cluster has forgotten this host, and keeps for status
// what the others say.
func (m *Rejoiner) forgottenForSure(ctx context.Context) bool {
	heir, told := forgottenBy(m.replica.Snapshot(), m.Self())
	if !told {
		return true // by its own word
	}
	v := m.askForgotten(ctx, heir)
	before := m.poll.Swap(&v)
	if !v.proven() && (before == nil || len(before.deny) != len(v.deny)) {
		p := v.problem(m.replica.Snapshot(), m.cfg.State)
		m.log.Warn(p.What, "do", p.Do)
	}
	return v.proven()
}

// askForgotten asks all other hosts whether heir is right that this one is forgotten.
func (m *Rejoiner) askForgotten(ctx context.Context, heir cluster.NodeID) poll {
	v := poll{heir: heir}
	var mu sync.Mutex
	var asking errgroup.Group
	asking.SetLimit(pollAtOnce)
	for n := range cluster.All[cluster.Node](m.replica.Snapshot()) {
		asking.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, pollTimeout)
			defer cancel()
			b, err := m.gossip.Call(ctx, string(n.ID), methodForgotten, nil)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil || len(b) != 1:
				v.silent = append(v.silent, n.ID)
			case b[0] == 1:
				v.agree = append(v.agree, n.ID)
			default:
				v.deny = append(v.deny, n.ID)
			}
			return nil
		})
	}
	_ = asking.Wait() // none fails
	slices.Sort(v.deny)
	slices.Sort(v.silent)
	return v
}

// problem says what a host waits for that is told to be forgotten.
func (v poll) problem(snap *cluster.Snapshot, dir string) api.Problem {
	name := func(ids []cluster.NodeID) string {
		var names []string
		for _, id := range ids {
			names = append(names, hostName(snap, id))
		}
		return strings.Join(names, ", ")
	}
	by := hostName(snap, v.heir)
	manual := "stop the agent, move " + dir + " away and start it again: it joins as a new host"
	switch {
	case len(v.deny) > 0:
		return api.Problem{
			Code: api.HostForgotten,
			What: fmt.Sprintf("host %s says that the cluster has forgotten this host, which other hosts deny: %s", by, name(v.deny)),
			Do: fmt.Sprintf("if somebody forgot this host on purpose: wait, the others may not have heard of it yet; else the agent of %s is broken or its key is stolen: stop it for good and `grapevine forget` it. "+
				"Until the hosts agree this one hands out nothing; to end that: `grapevine forget` this host on another one, and %s", by, manual),
		}
	case len(v.silent) > 0:
		return api.Problem{
			Code: api.HostForgotten,
			What: fmt.Sprintf("host %s says that the cluster has forgotten this host: more than half of all hosts have to say so, and %d do. These do not answer: %s", by, len(v.agree), name(v.silent)),
			Do:   "start those: then this host joins as a new one by itself; until then it hands out nothing. Or " + manual,
		}
	}
	return api.Problem{
		Code: api.HostForgotten,
		What: fmt.Sprintf("host %s says that the cluster has forgotten this host, which asks the others", by),
		Do:   "wait some seconds: if they agree it sets its state aside and joins as a new host",
	}
}
