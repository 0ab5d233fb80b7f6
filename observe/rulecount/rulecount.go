// Package rulecount says what the rules of policies let through and denied: of what this host's switch has counted, and of
// what other hosts say that theirs have.
package rulecount

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fxamacker/cbor/v2"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/observe/ask"
)

const (
	method = "policy.counts"
	// maxRows bounds an answer between hosts, maxAll what all of them answer together, and leastRows what each may say.
	maxRows   = 2000
	maxAll    = 60_000
	leastRows = 60
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
type Desk struct {
	cfg  Config
	rows *recent[[]api.RuleCount] // of this host
	all  *recent[api.RuleCounts]  // of all
}

// New makes a Desk.
func New(cfg Config) *Desk {
	return &Desk{cfg: cfg, rows: newRecent[[]api.RuleCount](), all: newRecent[api.RuleCounts]()}
}

// count is what this host's switch has counted.
func (d *Desk) count(ctx context.Context) ([]api.RuleCount, error) {
	rows, err := d.rows.get(ctx, d.cfg.Count)
	return slices.Clone(rows), err // who asks sorts them
}

// question is what a host asks of another one.
type question struct {
	Most int `cbor:"1,keyasint,omitempty"`
}

// answer is what a host says to another one.
type answer struct {
	Rows []api.RuleCount `cbor:"1,keyasint,omitempty"`
	Left int             `cbor:"2,keyasint,omitempty"`
}

// On is what rules have counted on one host.
func (d *Desk) On(ctx context.Context, host cluster.NodeID) ([]api.RuleCount, error) {
	if host == d.cfg.Self {
		return d.count(ctx)
	}
	a, err := d.there(ctx, string(host), maxRows)
	return a.Rows, err
}

// Methods answer other hosts.
func (d *Desk) Methods() map[string]func(ctx context.Context, from string, body []byte) ([]byte, error) {
	return map[string]func(context.Context, string, []byte) ([]byte, error){
		method: func(ctx context.Context, _ string, body []byte) ([]byte, error) {
			var q question
			if err := cbor.Unmarshal(body, &q); err != nil {
				return nil, fmt.Errorf("read the question: %w", err)
			}
			rows, err := d.count(ctx)
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

// there asks another host.
func (d *Desk) there(ctx context.Context, id string, most int) (answer, error) {
	a, err := ask.Host[answer](ctx, d.cfg.Call, id, method, question{most})
	a.most(most)
	return a, err
}

// Counts is what rules have counted on this host, or on all. However often somebody asks, hosts are asked once at a time.
func (d *Desk) Counts(ctx context.Context, all bool) (api.RuleCounts, error) {
	if !all {
		return d.counts(ctx, false)
	}
	return d.all.get(ctx, func(ctx context.Context) (api.RuleCounts, error) { return d.counts(ctx, true) })
}

func (d *Desk) counts(ctx context.Context, all bool) (api.RuleCounts, error) {
	ids := []string{string(d.cfg.Self)}
	if all {
		ids = append(ids, d.cfg.Alive()...)
	}
	answers, failed := make([]answer, len(ids)), make([]error, len(ids))
	most := max(leastRows, min(maxRows, maxAll/len(ids)))
	ask.Each(len(ids), func(i int) {
		if i == 0 {
			answers[0].Rows, failed[0] = d.count(ctx)
			return
		}
		answers[i], failed[i] = d.there(ctx, ids[i], most)
	})
	if err := ctx.Err(); err != nil { // nobody wants what is told of others, who were not asked to the end
		return api.RuleCounts{}, err
	}
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
			out.Notes = append(out.Notes, fmt.Sprintf("host %s has %d more, which counted least", name, n))
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
			for _, rule := range r.Also { // an agent before this one does not say them
				if !slices.Contains(list[i].Also, rule) {
					list[i].Also = append(slices.Clip(list[i].Also), rule)
				}
			}
			list[i].Packets, list[i].Bytes, list[i].Connections = list[i].Packets+r.Packets, list[i].Bytes+r.Bytes, list[i].Connections+r.Connections
		}
	}
	slices.SortFunc(list, func(a, b api.RuleCount) int {
		return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Action, b.Action), cmp.Compare(a.Network, b.Network), cmp.Compare(a.Container, b.Container), cmp.Compare(a.Direction, b.Direction))
	})
	return list
}
