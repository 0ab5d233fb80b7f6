package watch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/diagnose/paths"
	"github.com/grapevine-net/grapevine/pulse"
)

// Contacts finds out whether gossip's streams and its packets both pass between this host
// and the others. One goroutine owns its table (Run); others read what is wrong.
type Contacts struct {
	Host
	latest[paths.Contact]
}

// contactTick is how often it is looked whom to try, and suspectTick when one has just failed.
const (
	contactTick = time.Second
	suspectTick = 2 * pulse.Every
)

// Run tries the other hosts until ctx ends.
func (c *Contacts) Run(ctx context.Context) error {
	type result struct {
		host string
		paths.Tried
	}
	results := make(chan result)
	var tries sync.WaitGroup
	defer tries.Wait()
	table := paths.NewContacts()
	for tick := pulse.After(contactTick); ; {
		select {
		case <-ctx.Done():
			return nil
		case r := <-results:
			table.Note(r.host, r.Tried, time.Now())
			if r.Call != nil || r.Packet != nil {
				tick = pulse.After(suspectTick)
			}
		case now := <-tick:
			tick = pulse.After(contactTick)
			alive := c.Gossip.Alive()
			table.Set(alive)
			for _, id := range alive {
				table.Shown(id, c.Gossip.Tried(id))
			}
			for _, due := range table.Due(now) {
				tries.Go(func() {
					t := c.Gossip.Try(ctx, due.Host, due.Packets)
					m, _ := c.Gossip.Member(due.Host)
					select {
					case results <- result{due.Host, paths.Tried{Call: t.Call, Dial: t.Dial, Packet: t.Packet, Doubtful: m.Doubtful}}:
					case <-ctx.Done():
					}
				})
			}
		}
		c.set(table.Contacts())
	}
}

// Problems are for status; nodes are all hosts.
func (c *Contacts) Problems(nodes []api.Node) []api.Problem {
	return contactProblems(c.now(), nodes, c.Settings.Port, time.Now())
}

// packetless reports whether a host answers calls, and packets do not pass.
func (c *Contacts) packetless(host string) bool {
	return slices.ContainsFunc(c.now(), func(p paths.Contact) bool { return p.Host == host && p.Trouble == paths.NoPackets })
}

// contactProblems is pure. Hosts of which the same is to be said share a problem.
func contactProblems(list []paths.Contact, nodes []api.Node, port uint16, now time.Time) (problems []api.Problem) {
	names := map[string]string{}
	for _, n := range nodes {
		if n.Alive && !n.Self {
			names[n.ID] = n.Name
		}
	}
	const calls = ", though UDP passes: what hosts ask each other fails, as for --subnet and --ip, and much of what is new comes late"
	for _, kind := range []struct {
		trouble        paths.Trouble
		code           api.Code
		protocol, what string
	}{
		{paths.NoStream, api.GossipTCP, "TCP", "TCP port %[2]d of %[1]s cannot be connected to from here (%[3]s)" + calls},
		{paths.NoAnswer, api.GossipTCP, "TCP", "%[1]s can be connected to at TCP port %[2]d, and no answer comes back from there" + calls},
		{paths.NoPackets, api.GossipUDP, "UDP", "UDP port %[2]d does not pass between this host and %[1]s, though TCP does: what is new comes late, and that a host is off is found late"},
	} {
		var hosts []string
		var first paths.Contact
		for _, c := range list {
			name, alive := names[c.Host]
			if c.Trouble != kind.trouble || !alive {
				continue
			}
			if hosts = append(hosts, name); len(hosts) == 1 || c.Since.Before(first.Since) {
				first = c
			}
		}
		if hosts == nil {
			continue
		}
		slices.Sort(hosts)
		problems = append(problems, api.Problem{
			Code: kind.code,
			What: fmt.Sprintf(kind.what, words.SomeHosts(hosts, len(names)), port, dialError(first.Err)) + words.Since(first.Since, now),
			Do:   fmt.Sprintf("let %s port %d pass between the hosts, both ways: a firewall of one of them, or of the network between (a security group), drops it; `grapevine doctor` tries every way", kind.protocol, port),
		})
	}
	return problems
}

// dialError is why a connection could not be opened, without what is said beside it.
func dialError(err error) string {
	var late net.Error
	var errno syscall.Errno
	switch {
	case errors.As(err, &late) && late.Timeout():
		return "no answer"
	case errors.As(err, &errno):
		return errno.Error()
	}
	return fmt.Sprint(err)
}
