// Package audit logs what policies say of connections that begin, where a policy wants that: of what package traffic has
// counted on this host. So a flood costs no more than its bounds, whoever sends it: the kernel counts, and here so many
// connections are judged in a second, fewer of each sender, and the rest is a number.
package audit

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/pulse"
)

const (
	every  = 2 * time.Second
	seldom = 10 * time.Minute
	rest   = 20 // times as long as a look took is not looked again
	// most is how many connections are judged at a look, and mostOf how many of one sender.
	most, mostOf = 100, 40
	room         = 1024 // lines that are remembered
)

// Config of a Log.
type Config struct {
	Wanted func() bool // some policy wants verdicts logged
	// Seen is who talks to whom on this host, the newest first.
	Seen func(context.Context) (api.Traffic, error)
	// Judge returns those of the connections that are to be logged.
	Judge func([]api.Connection) []api.LoggedConnection
	Log   *slog.Logger
}

// Log is what was logged of late.
type Log struct {
	cfg Config

	mu   sync.Mutex
	last uint64 // number of the last line
	list []api.LoggedConnection
	lost uint64
	err  string
	on   bool
	// tried is what policies that are only tried would have denied, by rule.
	tried map[string]tally

	// Of Run alone.
	began  time.Time
	known  map[key]time.Time // connections that were looked at, and when they began
	failed int               // looks in a row
	gone   uint64            // packets that the kernel had no room for, at the last look
}

// tally counts connections for one writing of a rule.
type tally struct {
	version string
	n       uint64
}

// same is within what two times are that of the same first packet: each look reckons it from the clocks of then.
const same = time.Second

type key struct {
	from, to netip.AddrPort
	proto    string
}

// New makes a Log.
func New(cfg Config) *Log { return &Log{cfg: cfg} }

// Run looks, while a policy wants it, until ctx ends.
func (l *Log) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		pause := every
		if l.cfg.Wanted() {
			began, now := !l.on, time.Now()
			l.look(ctx, now)
			took := time.Since(now)
			if began { // it waited until something was counted, which cost nothing
				took = 0
			}
			pause = pauseAfter(took, l.failed)
		} else {
			l.set(func() { l.on, l.err = false, "" })
		}
		select {
		case <-ctx.Done():
		case <-pulse.After(pause):
		}
	}
	return nil
}

// pauseAfter is how long is not looked again after a look that took so long. Where nothing can be counted, each look tries
// to begin, and says in the agent's log that it cannot: so looks become rarer, until one succeeds.
func pauseAfter(took time.Duration, failed int) time.Duration {
	if failed > 0 {
		return min(every<<min(failed, 20), seldom)
	}
	return max(every, rest*took)
}

func (l *Log) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// look judges the connections that are new since the last look.
func (l *Log) look(ctx context.Context, now time.Time) {
	begins := !l.on
	if begins {
		l.began, l.known = now, nil
		l.set(func() { l.on = true })
	}
	t, err := l.cfg.Seen(ctx)
	if err != nil {
		l.failed++
		l.set(func() { l.err = err.Error() })
		return
	}
	l.failed = 0
	fresh := l.fresh(t.Connections)
	chosen, lost := choose(fresh)
	for _, h := range t.Hosts {
		if h.Lost > l.gone && !begins { // what was lost before nobody wanted
			lost += int(h.Lost - l.gone) // of connections that nobody has seen
		}
		l.gone = h.Lost
	}
	var logged []api.LoggedConnection
	if len(chosen) > 0 {
		logged = l.cfg.Judge(chosen)
	}
	l.set(func() {
		l.err = ""
		l.lost += uint64(lost)
		for i := range logged {
			l.last++
			logged[i].Number = l.last
		}
		l.tally(logged)
		if l.list = append(l.list, logged...); len(l.list) > room {
			l.list = slices.Clone(l.list[len(l.list)-room:])
		}
	})
	for _, c := range logged {
		if c.Tried { // of these there may be many for days
			continue
		}
		l.cfg.Log.Info("policy", "allowed", c.Allowed, "from", c.From.Addr, "fromName", c.From.Name, "to", c.To.Addr, "toName", c.To.Name, "port", c.To.Port, "proto", c.Proto, "rules", c.RuleNames())
	}
	if lost > 0 {
		l.cfg.Log.Warn("policy: connections or packets were not judged and are not logged: there were too many", "number", lost)
	}
}

// tally counts what would have been denied. Whoever calls it has l.mu.
func (l *Log) tally(logged []api.LoggedConnection) {
	if l.tried == nil || len(l.tried) > room {
		l.tried = map[string]tally{}
	}
	for _, c := range logged {
		for _, r := range c.Rules {
			t := l.tried[r.Rule]
			switch {
			case !c.Tried:
				continue
			case t.version != r.Version:
				t = tally{version: r.Version}
			}
			t.n++
			l.tried[r.Rule] = t
		}
	}
}

// Tried is how many connections each rule of policies that are only tried would have denied, of those writings of policies
// that are there still. The error says why no more are counted.
func (l *Log) Tried(there func(rule, version string) bool) (rules []api.RuleCount, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for rule, t := range l.tried {
		if there(rule, t.version) {
			rules = append(rules, api.RuleCount{Rule: rule, Action: api.WouldDeny, Connections: t.n})
		}
	}
	slices.SortFunc(rules, func(a, b api.RuleCount) int { return cmp.Compare(a.Rule, b.Rule) })
	if l.err != "" {
		err = errors.New(l.err)
	}
	return rules, err
}

// fresh are the connections that were not looked at, the oldest first.
func (l *Log) fresh(seen []api.Connection) (list []api.Connection) {
	known := make(map[key]time.Time, len(seen))
	for _, c := range seen {
		k := key{netip.AddrPortFrom(c.From.Addr, c.From.Port), netip.AddrPortFrom(c.To.Addr, c.To.Port), c.Proto}
		first := c.Begun()
		if at, was := l.known[k]; was && first.Sub(at).Abs() < same {
			first = at
		}
		if at, twice := known[k]; twice && !first.After(at) {
			continue
		}
		known[k] = first
		if at, was := l.known[k]; first.Before(l.began) || was && !first.After(at) {
			continue
		}
		c.First = c.Begun() // of the connection that began, whatever its ports were used for before
		list = append(list, c)
	}
	l.known = known
	slices.SortStableFunc(list, func(a, b api.Connection) int { return a.First.Compare(b.First) })
	return list
}

// choose leaves out what is more than is judged at a look: first what is more than one sender's part. It is pure.
func choose(fresh []api.Connection) (chosen []api.Connection, left int) {
	of := map[netip.Addr]int{}
	for _, c := range fresh {
		if of[c.From.Addr]++; of[c.From.Addr] <= mostOf {
			chosen = append(chosen, c)
		}
	}
	if len(chosen) > most { // those of who has least come first
		slices.SortStableFunc(chosen, func(a, b api.Connection) int { return cmp.Compare(of[a.From.Addr], of[b.From.Addr]) })
		chosen = chosen[:most]
		slices.SortStableFunc(chosen, func(a, b api.Connection) int { return a.First.Compare(b.First) })
	}
	return chosen, len(fresh) - len(chosen)
}

// Since is what was logged behind a line, by its number.
func (l *Log) Since(_ context.Context, number uint64) (api.PolicyLog, error) {
	wanted := l.cfg.Wanted()
	l.mu.Lock()
	defer l.mu.Unlock()
	out := api.PolicyLog{Wanted: wanted, Last: l.last, Lost: l.lost, Error: l.err, Connections: []api.LoggedConnection{}}
	for _, c := range l.list {
		if c.Number > number || number > l.last { // of an agent before this one
			out.Connections = append(out.Connections, c)
		}
	}
	return out, nil
}
