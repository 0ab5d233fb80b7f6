// Package rulecount says what the rules of policies let through and denied: of what this host's switch has counted, and of
// what other hosts say that theirs have.
package rulecount

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/gossip"
)

const (
	method = "policy.counts"
	// maxRows bounds an answer between hosts, maxAll what all of them answer together, and leastRows what each may say.
	maxRows   = 2000
	maxAll    = 60_000
	leastRows = 60
	// callPatience bounds a question to another host.
	callPatience = 5 * time.Second
)

// Config of a Desk.
type Config struct {
	Self     cluster.NodeID
	Snapshot func() *cluster.Snapshot
	// Alive are the other hosts that answer, by ID; Call asks one (gossip.Gossip).
	Alive func() []string
	Call  func(ctx context.Context, node, method string, body []byte) ([]byte, error)
	// Count reads what this host's switch has counted.
	Count func(context.Context) ([]api.RuleCount, error)
}

// Desk is where people and other hosts ask.
type Desk struct{ cfg Config }

// New makes a Desk.
func New(cfg Config) *Desk { return &Desk{cfg} }

// question is what a host asks of another one.
type question struct {
	Most int `cbor:"1,keyasint,omitempty"`
}

// answer is what a host says to another one.
type answer struct {
	Rows []api.RuleCount `cbor:"1,keyasint,omitempty"`
	Left int             `cbor:"2,keyasint,omitempty"`
}

// Methods answer other hosts.
func (d *Desk) Methods() map[string]func(ctx context.Context, from string, body []byte) ([]byte, error) {
	return map[string]func(context.Context, string, []byte) ([]byte, error){
		method: func(ctx context.Context, _ string, body []byte) ([]byte, error) {
			var q question
			if err := cbor.Unmarshal(body, &q); err != nil {
				return nil, fmt.Errorf("read the question: %w", err)
			}
			rows, err := d.cfg.Count(ctx)
			if err != nil {
				return nil, err
			}
			a := answer{Rows: rows}
			a.most(min(q.Most, maxRows))
			return cbor.Marshal(a)
		},
	}
}

// most leaves out the rows that say least.
func (a *answer) most(n int) {
	slices.SortStableFunc(a.Rows, func(a, b api.RuleCount) int { return cmp.Compare(b.Packets, a.Packets) })
	if n = max(0, n); len(a.Rows) > n {
		a.Left, a.Rows = a.Left+len(a.Rows)-n, a.Rows[:n]
	}
}

func (d *Desk) there(ctx context.Context, id string, most int) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	body, err := cbor.Marshal(question{most})
	if err != nil {
		return a, err
	}
	reply, err := d.cfg.Call(ctx, id, method, body)
	if there, ok := errors.AsType[*gossip.RemoteError](err); ok {
		if strings.HasPrefix(there.Text, "unknown method") {
			return a, errors.New("its agent is older, and does not count")
		}
		return a, errors.New(there.Text)
	}
	if err != nil {
		return a, fmt.Errorf("it could not be asked (%w): `grapevine status` says whether it is there", err)
	}
	if err := cbor.Unmarshal(reply, &a); err != nil {
		return answer{}, fmt.Errorf("read its answer: %w", err)
	}
	a.most(most)
	return a, nil
}

// Counts is what rules have counted on this host, or on all.
func (d *Desk) Counts(ctx context.Context, all bool) (api.RuleCounts, error) {
	ids := []string{string(d.cfg.Self)}
	if all {
		ids = append(ids, d.cfg.Alive()...)
	}
	answers, failed := make([]answer, len(ids)), make([]error, len(ids))
	most := max(leastRows, min(maxRows, maxAll/len(ids)))
	var asking sync.WaitGroup
	places := make(chan struct{}, 64) // at once
	for i, id := range ids {
		asking.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			if i == 0 {
				answers[0].Rows, failed[0] = d.cfg.Count(ctx)
				return
			}
			answers[i], failed[i] = d.there(ctx, id, most)
		})
	}
	asking.Wait()
	if !all && failed[0] != nil {
		return api.RuleCounts{}, fmt.Errorf("read what the rules of policies counted: %w", failed[0])
	}
	snap := d.cfg.Snapshot()
	out := api.RuleCounts{Notes: []string{}}
	for i, id := range ids {
		name := snap.HostName(cluster.NodeID(id))
		if failed[i] != nil {
			out.Notes = append(out.Notes, fmt.Sprintf("host %s is not counted: %v", name, failed[i]))
		}
		if n := answers[i].Left; n > 0 {
			out.Notes = append(out.Notes, fmt.Sprintf("host %s has %d more rules, which counted least", name, n))
		}
	}
	for n := range cluster.All[cluster.Node](snap) {
		if all && !slices.Contains(ids, string(n.ID)) {
			out.Notes = append(out.Notes, fmt.Sprintf("host %s is not counted: it does not answer", n.Name))
		}
	}
	slices.Sort(out.Notes)
	out.Rules = sum(answers)
	return out, nil
}

// sum adds up what hosts say of the same rules. It is pure.
func sum(answers []answer) []api.RuleCount {
	type key struct{ rule, action, direction, network, container, of string }
	at, list := map[key]int{}, []api.RuleCount{}
	for _, a := range answers {
		here := map[key]bool{} // a rule with several ports by name has several rows
		for _, r := range a.Rows {
			k := key{r.Rule, r.Action, r.Direction, r.Network, r.Container, strings.Join(r.Policies, " ")}
			i, there := at[k]
			if !there {
				at[k], here[k] = len(list), true
				r.Hosts = 1
				list = append(list, r)
				continue
			}
			if !here[k] {
				list[i].Hosts++
				here[k] = true
			}
			list[i].Packets, list[i].Bytes, list[i].Connections = list[i].Packets+r.Packets, list[i].Bytes+r.Bytes, list[i].Connections+r.Connections
		}
	}
	slices.SortFunc(list, func(a, b api.RuleCount) int {
		return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Action, b.Action), cmp.Compare(a.Network, b.Network), cmp.Compare(a.Container, b.Container), cmp.Compare(a.Direction, b.Direction))
	})
	return list
}
