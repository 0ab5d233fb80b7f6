package plane

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/overlay/guard"
	"github.com/grapevine-net/grapevine/pulse"
)

const (
	posedEvery = 10 * time.Second
	posedStays = 10 * time.Minute // it is said for as long after the last one
)

// posed is who calls a published port, and has a gateway's address by another program's NAT: that is dropped, so that the port
// is of no use to him. One packet may be of the moment in which rules change.
type posed struct {
	mu           sync.Mutex
	known        bool // a former agent's rules may have dropped some
	count        uint64
	before, last time.Time // when it grew
}

func (p *posed) look(count uint64, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known && count > p.count {
		p.before, p.last = p.last, now
	}
	p.known, p.count = true, count
}

func (p *posed) problems(now time.Time) []api.Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.before.IsZero() || now.Sub(p.before) > posedStays {
		return nil
	}
	return []api.Problem{{
		Code: api.FirewallDrops,
		What: fmt.Sprintf("another program's NAT gives who calls published ports of this host a gateway's address, by which policies know this host: so they are not answered (%d packets in all)", p.count),
		Do:   "`nft list ruleset` and `iptables -t nat -S` name the rule (nat in postrouting, priority below 100): let it leave out what goes to gv0",
	}}
}

// watch counts them until ctx ends.
func (p *posed) watch(ctx context.Context, g *guard.Guard) {
	for {
		count := uint64(0)
		for _, r := range g.Posed() {
			count += r.Packets
		}
		p.look(count, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-pulse.After(posedEvery):
		}
	}
}
