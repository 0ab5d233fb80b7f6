package watch

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/diagnose/paths"
	"github.com/grapevine-net/grapevine/diagnose/probe"
	"github.com/grapevine-net/grapevine/encap"
	"github.com/grapevine-net/grapevine/gossip"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/overlay/gateway"
	"github.com/grapevine-net/grapevine/pulse"
)

// HellosVersion is that of the hellos that this agent sends: sealed ones, and those inside what encrypts. 2 is without
// the latter, 1 without either.
const HellosVersion = insideVersion

// Hellos finds out whether packets get through the tunnel between this host and the others.
// One goroutine owns its Table (Run); others read the verdicts.
type Hellos struct {
	Host
	RunID   uint64      // what this host's record says (cluster.Node.HelloRun)
	Leaving func() bool // nobody is said hello any more
	Inside  Inside      // the ways through what encrypts
	latest[paths.Verdict]
}

const (
	helloTick = time.Second
	// greetEvery is how often it is looked who is to be heard.
	greetEvery = time.Second
	// deafAfter is how late a tick is if this host was too busy to hear anybody.
	deafAfter = 6 * pulse.Every
)

// Run says and hears hellos until ctx ends.
func (p *Hellos) Run(ctx context.Context) error {
	hellos := probe.NewHellos(gateway.Port)
	defer hellos.Close()
	table, inside := paths.New(string(p.Self)), paths.NewInside(string(p.Self))
	hear := func(h paths.Hello, came time.Time) {
		if h.Inside {
			inside.Hear(h, came)
		} else {
			table.Hear(h, came)
		}
	}
	var vteps map[string]cluster.Node
	var greeted time.Time
	for last, tick := time.Now(), pulse.After(helloTick); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
			tick = pulse.After(helloTick)
		}
		hellos.Hear(hear) // they wait for this: that one comes wakes nobody
		now := time.Now()
		anew, err := hellos.Ready()
		if anew || err != nil || now.Sub(last) > helloTick+deafAfter {
			table.Forgive(now)
			inside.Forgive(now)
		}
		last = now
		if now.Sub(greeted) >= greetEvery {
			var ring probe.Ring
			vteps, ring = p.greet(table, inside, now)
			greeted = now
			hellos.Know(ring)
		}
		for id, h := range table.Due(now.Add(pulse.Every)) { // who is due just behind this moment is not to wait for the next one
			if err == nil && !p.Leaving() { // who has left is a stranger
				err = hellos.Say(id, vteps[id].Tunnel(), h)
			}
		}
		for id, h := range inside.Due(now.Add(pulse.Every)) {
			if h.Inside = true; err == nil && !p.Leaving() {
				err = hellos.Say(id, cluster.SecureVTEP(cluster.NodeID(id)), h)
			}
		}
		if err != nil {
			p.Log.Debug("hellos to the other hosts", "err", err)
		}
		p.set(table.Verdicts(now))
		p.Inside.set(inside.Verdicts(now))
	}
}

// greet tells the tables who is to be heard, and returns all hosts, and by what they are known.
func (p *Hellos) greet(table, inside *paths.Table, now time.Time) (map[string]cluster.Node, probe.Ring) {
	nodes := map[string]cluster.Node{}
	ring := probe.Ring{Self: string(p.Self), Run: p.RunID, Keys: p.Gossip.ListKeys(), Peers: map[string]uint64{}}
	var hosts, within []paths.Host
	me, _ := cluster.Get[cluster.Node](p.Snapshot(), string(p.Self))
	for n := range cluster.All[cluster.Node](p.Snapshot()) {
		nodes[string(n.ID)] = n
		says := n.Hellos == 1 || n.Hellos >= 2 && n.HelloRun != 0
		if says && n.ID != p.Self {
			run := n.HelloRun
			if n.Hellos == 1 {
				run = 0
			}
			ring.Peers[string(n.ID)] = run
		}
		m, _ := p.Gossip.Member(string(n.ID))
		sends := says && m.State == gossip.Alive && !m.Doubtful
		within = append(within, paths.Host{ID: string(n.ID), Sends: sends && p.Inside.judges(me, n)})
		hosts = append(hosts, paths.Host{
			ID:    string(n.ID),
			Sends: sends && n.Encrypts() == me.Encrypts() && n.Address().Is4() == p.Underlay.Addr.Is4() && n.VXLANPort == p.Settings.VXLANPort && n.Encap == me.Encap,
		})
	}
	table.Set(hosts, now)
	inside.Set(within, now)
	return nodes, ring
}

// Problems says which ways carry nothing, for people; nodes are all hosts.
func (p *Hellos) Problems(nodes []api.Node) []api.Problem {
	return pathProblems(p.now(), nodes, p.Settings.Encapsulation(), p.Settings.TunnelPort(), time.Now(), p.Host.astray)
}

// astray says by what containers' packets go from here to another host, if that is not the underlay's interface; else nothing.
func (h Host) astray(n api.Node) string {
	if !h.Settings.Encapsulation().Ports() {
		return astray(n.Underlay(), h.Underlay.Interface, link.Way)
	}
	return astray(n.Underlay(), h.Underlay.Interface, func(to netip.Addr) string { return link.UDPWay(to, h.Settings.TunnelPort()) })
}

// Paths adds to the hosts whether packets pass to and from them.
func (p *Hellos) Paths(nodes []api.Node) []api.Node {
	of := map[string]string{}
	for _, v := range p.now() {
		of[v.Host] = pathOf(v)
	}
	for _, v := range p.Inside.now() {
		if plain, ok := of[v.Host]; v.Bad() && (!ok || plain == "ok" || plain == "") {
			of[v.Host] = "encrypted " + pathOf(v)
		}
	}
	for i, n := range nodes {
		if n.Alive && !n.Self {
			nodes[i].Path = of[n.ID]
		}
	}
	return nodes
}

// pathOf is a verdict in a word or two.
func pathOf(v paths.Verdict) string {
	switch in, out := v.In, v.Out; {
	case in == paths.Nothing && out == paths.Nothing:
		return "lost both ways"
	case in == paths.Nothing:
		return "lost to here"
	case out == paths.Nothing:
		return "lost to there"
	case in == paths.Small || out == paths.Small:
		return "large ones lost"
	case v.Lost > 0:
		return fmt.Sprintf("%d%% lost to here", v.Lost)
	case in == paths.All && out == paths.All:
		return "ok"
	}
	return ""
}

// pathProblems is pure. Hosts of which the same is to be said share a problem.
func pathProblems(verdicts []paths.Verdict, nodes []api.Node, wrapped encap.Kind, port uint16, now time.Time, astray func(api.Node) string) (list []api.Problem) {
	judged := 0
	names := map[string]string{}
	for _, n := range nodes {
		if n.Alive && !n.Doubtful && !n.Self {
			names[n.ID] = n.Name
		}
	}
	led := func(hosts []string) (text, do string) { // why nothing arrives, if this host's routes are
		for _, n := range nodes {
			if !slices.Contains(hosts, n.Name) || n.Self {
				continue
			}
			if by := astray(n); by != "" {
				query := ""
				if wrapped.Ports() {
					query = fmt.Sprintf(" ipproto udp dport %d", port)
				}
				return fmt.Sprintf("; this host sends them to %s %s", n.Name, by),
					fmt.Sprintf("`ip rule` and `ip route get %s%s` on this host show which rule or route leads them there: take it away, or except %s", n.Underlay(), query, wrapped.By(port))
			}
		}
		return "", ""
	}
	type group struct {
		hosts []string
		since time.Time
		most  int
	}
	groups := map[int]*group{}
	for _, v := range verdicts {
		name, alive := names[v.Host]
		if !alive {
			continue
		}
		judged++
		var kind int
		switch {
		case v.In == paths.Nothing:
			kind = 0
		case v.Out == paths.Nothing:
			kind = 1
		case v.In == paths.Small:
			kind = 2
		case v.Out == paths.Small:
			kind = 3
		case v.Lost > 0:
			kind = 4
		default:
			continue
		}
		g := groups[kind]
		if g == nil {
			g = &group{since: v.Since}
			groups[kind] = g
		}
		g.hosts, g.most = append(g.hosts, name), max(g.most, v.Lost)
		if v.Since.Before(g.since) {
			g.since = v.Since
		}
	}
	firewall := fmt.Sprintf("let %s pass between the hosts, both ways: a firewall of one of them, or of the network between (a security group), drops it, or the switch of one of them hangs, as `grapevine status` there says; `grapevine doctor` tries every way", wrapped.By(port))
	narrow := "`grapevine doctor` says how large packets may be; make the path carry them, or set GRAPEVINE_MTU on every host"
	for kind, text := range []struct {
		code     api.Code
		what, do string
	}{
		{api.EncapLost, "nothing that the containers of %s send arrives here (" + wrapped.Title + "), though %s", firewall},
		{api.EncapLost, "nothing that containers send from here arrives at %s (" + wrapped.Title + "), though %s", firewall},
		{api.EncapNarrow, "large packets that the containers of %s send are lost on the way here, though small ones arrive and %s", narrow},
		{api.EncapNarrow, "large packets that containers send from here are lost on the way to %s, though small ones arrive and %s", narrow},
		{api.EncapLossy, "a part of what the containers of %s send is lost on the way here (" + wrapped.Title + "), up to %d in a hundred packets, though %s", "find what loses them: `grapevine ping` that host, `ip -s link` on both, cables and switches between, what limits or polices"},
	} {
		g := groups[kind]
		if g == nil {
			continue
		}
		slices.Sort(g.hosts)
		hosts, answers := words.SomeHosts(g.hosts, judged), "its agent answers"
		if len(g.hosts) > 1 {
			answers = "their agents answer"
		}
		if text.code == api.EncapLossy {
			list = append(list, api.Problem{Code: text.code, What: fmt.Sprintf(text.what, hosts, g.most, answers), Do: text.do})
			continue
		}
		problem := api.Problem{Code: text.code, What: fmt.Sprintf(text.what, hosts, answers) + words.Since(g.since, now), Do: text.do}
		if text.code == api.EncapLost {
			if way, do := led(g.hosts); way != "" {
				problem.What, problem.Do = problem.What+way, do
			}
		}
		list = append(list, problem)
	}
	return list
}
