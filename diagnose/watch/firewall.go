package watch

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/clients"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/diagnose/doctor"
	"github.com/grapevine-net/grapevine/diagnose/paths"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/nat"
	"github.com/grapevine-net/grapevine/overlay/gateway"
	"github.com/grapevine-net/grapevine/pulse"
)

// Firewall knows what this host's own firewall drops of what hosts and containers need:
// ufw, firewalld, an administrator's rules. One goroutine reads them (Run).
type Firewall struct {
	Host
	Hellos *Hellos // what has come through the tunnel, whatever the rules look like

	mu     sync.Mutex
	drops  []doctor.Drop
	unread doctor.Unread
	since  map[string]time.Time // of each of them
	latest time.Time            // when it was known last that they are there
}

const (
	firewallTick = time.Second
	// Between two readings, which run programs, is so much time at least, and at most so many
	// times what one takes: Docker changes its rules with every container.
	firewallPause, firewallPauseMax = 3 * time.Second, 6 * time.Second
	firewallShare                   = 20
	firewallFailures                = 4 // times that the pause doubles while they cannot be read
	// firewallPatience is how long something is dropped before status says so: who makes rules
	// anew begins by removing the old ones.
	firewallPatience = 3 * time.Second
	// firewallHosts is for how many other hosts it is judged what the rules do: they differ
	// rarely, and a cluster may be large.
	firewallHosts = 16
)

// Checks are what doctor says of the rules that there are now; proven says that packets have passed on all ways.
func (w *Firewall) Checks(ctx context.Context, nodes []api.Node, proven bool) []api.Check {
	var found []doctor.Firewall
	var packets [][]doctor.Packet
	for _, v6 := range w.Families() {
		found, packets = append(found, doctor.LookAtFirewall(ctx, v6)), append(packets, w.Packets(nodes, v6, len(nodes)))
	}
	return doctor.JudgeAll(found, packets, proven)
}

// Run reads the rules whenever they have changed, until ctx ends.
func (w *Firewall) Run(ctx context.Context) error {
	var seen string
	var rested time.Time // when they may be read again
	failures := 0        // one after the other
	var generations nat.Generations
	defer generations.Close()
	legacy := []*link.Held{link.NewHeld("/proc/net/ip_tables_names"), link.NewHeld("/proc/net/ip6_tables_names")}
	for _, f := range legacy {
		defer f.Close()
	}
	var nft program
	var about subjects
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-pulse.After(firewallTick):
		}
		begin := time.Now()
		now := firewallPrint(legacy, &generations) + about.of(w) + fmt.Sprint(" ", nft.there(begin))
		if now == seen {
			w.still(begin)
			continue
		}
		if begin.Before(rested) {
			continue
		}
		drops, unread, unanswered := w.judge(ctx)
		w.set(drops, unread, time.Now())
		pause := min(max(firewallPause, firewallShare*time.Since(begin)), firewallPauseMax)
		if seen = now; unanswered { // as on a host that is too busy: what was not read is not known to be well
			seen, pause = "", pause<<failures
			failures = min(failures+1, firewallFailures)
		} else {
			failures = 0
		}
		rested = time.Now().Add(pause)
	}
}

// subjects are what the rules are judged for.
type subjects struct {
	text string // "": not known yet
	rev  uint64
}

// of is a text that changes with them.
func (s *subjects) of(w *Firewall) string {
	snap := w.Snapshot()
	if s.text == "" || s.rev != snap.Rev() {
		hosts := 0
		for range cluster.All[cluster.Node](snap) {
			hosts++
		}
		s.text, s.rev = fmt.Sprint(" ", w.hasIPv6(), hosts, w.letsClientsIn()), snap.Rev()
	}
	return s.text
}

// programEvery is how often it is looked for the program that reads rules of nftables, once it was found.
const programEvery = 30 * time.Second

// program is that one.
type program struct {
	is     bool
	looked time.Time
}

func (p *program) there(now time.Time) bool {
	if !p.is || now.Sub(p.looked) >= programEvery {
		p.is, p.looked = doctor.HasNFT(), now
	}
	return p.is
}

// firewallPrint changes with any change of the rules that the kernel tells; "" and the time
// where it does not, as with legacy tables.
func firewallPrint(legacy []*link.Held, generations *nat.Generations) string {
	for _, file := range legacy {
		if text, _ := file.Read(); len(bytes.TrimSpace(text)) > 0 { // absent: no such tables
			return time.Now().String()
		}
	}
	generation, err := generations.Now()
	if err != nil {
		return ""
	}
	return strconv.FormatUint(uint64(generation), 10)
}

// hasIPv6 reports whether a network has IPv6.
func (w *Firewall) hasIPv6() bool {
	return slices.ContainsFunc(w.Snapshot().Subnets(), func(p netip.Prefix) bool { return p.Addr().Is6() })
}

// letsClientsIn reports whether clients were added at this host.
func (w *Firewall) letsClientsIn() bool { return len(clients.On(w.Snapshot(), w.Self)) > 0 }

// Families are the families of which rules matter: IPv6's, false and true.
func (w *Firewall) Families() (list []bool) {
	list = append(list, false)
	if w.Underlay.Addr.Is6() || w.hasIPv6() || w.Settings.Encrypts() {
		list = append(list, true)
	}
	return list
}

// judge is what the rules drop now.
func (w *Firewall) judge(ctx context.Context) (list []doctor.Drop, unread doctor.Unread, unanswered bool) {
	nodes := w.Nodes(w.Snapshot())
	for _, v6 := range w.Families() {
		f := doctor.LookAtFirewall(ctx, v6)
		list, unread, unanswered = append(list, f.Drops(w.Packets(nodes, v6, firewallHosts))...), f.Unread, unanswered || f.Unanswered
	}
	return list, unread, unanswered
}

func (w *Firewall) set(drops []doctor.Drop, unread doctor.Unread, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	since := map[string]time.Time{}
	for _, d := range drops {
		key := d.By + d.For + d.Proto
		if since[key] = now; !w.since[key].IsZero() {
			since[key] = w.since[key]
		}
	}
	w.drops, w.unread, w.since, w.latest = drops, unread, since, now
}

// still is told that nothing has changed.
func (w *Firewall) still(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.latest = now
}

// Problems are for status; nodes are all hosts.
func (w *Firewall) Problems(nodes []api.Node) []api.Problem { return w.problems(w.Hellos.now(), nodes) }

func (w *Firewall) problems(verdicts []paths.Verdict, nodes []api.Node) []api.Problem {
	w.mu.Lock()
	defer w.mu.Unlock()
	drops := slices.DeleteFunc(slices.Clone(w.drops), func(d doctor.Drop) bool {
		return w.latest.Sub(w.since[d.By+d.For+d.Proto]) < firewallPatience
	})
	list := firewallProblems(drops, heardVXLAN(verdicts, nodes))
	if w.unread.Tables != "" {
		list = append(list, api.Problem{Code: api.FirewallUnread, What: w.unread.String(), Do: w.unread.Do()})
	}
	return list
}

// heardVXLAN are the hosts from whose VTEPs packets come through the tunnel, whatever the
// rules look like.
func heardVXLAN(verdicts []paths.Verdict, nodes []api.Node) map[netip.Addr]bool {
	heard := map[netip.Addr]bool{}
	for _, n := range nodes {
		came := slices.ContainsFunc(verdicts, func(v paths.Verdict) bool {
			return v.Host == n.ID && (v.In == paths.All || v.In == paths.Small)
		})
		heard[n.Underlay()], heard[n.VTEP] = came, came
	}
	return heard
}

// firewallProblems is pure: what is dropped for sure. Hosts of which the same is to be said
// share a problem. What DOCKER-USER drops of containers' packets is dropped on purpose.
func firewallProblems(drops []doctor.Drop, heard map[netip.Addr]bool) (list []api.Problem) {
	var order []string
	found := map[string][]doctor.Drop{}
	for _, d := range drops {
		if !d.Sure || d.Meant || d.Chain == "INPUT" && d.Proto != "tcp" && heard[d.Src] && d.Tunnel && !d.Led {
			continue
		}
		key := fmt.Sprint(d.By, d.Chain, d.Proto, d.Port, d.DNAT)
		if found[key] == nil {
			order = append(order, key)
		}
		found[key] = append(found[key], d)
	}
	for _, key := range order {
		d, also := found[key][0], ""
		if more := len(found[key]) - 1; more > 0 {
			also = fmt.Sprintf(", and of %s", words.Plural(more, "more host"))
		}
		what := fmt.Sprintf("this host's firewall drops %s%s: %s", d.Packet, also, d.By)
		if d.Led {
			what = fmt.Sprintf("a rule of this host's NAT leads %s%s elsewhere, though what is under way is not led, and seems well: %s", d.Packet, also, d.By)
		}
		list = append(list, api.Problem{Code: api.FirewallDrops, What: what, Do: d.Do})
	}
	return list
}

// Packets are those that the firewall has to let through, of a family: what containers send and
// are sent, and that of at most so many other hosts.
func (w *Firewall) Packets(nodes []api.Node, v6 bool, most int) (list []doctor.Packet) {
	own, dev := w.Underlay.Addr, w.Underlay.Interface
	// An address of the world's that hardly any rule names (RFC 7535).
	world, inside := netip.MustParseAddr("192.31.196.1"), w.Settings.CIDR4.Addr().Next()
	if v6 {
		world = netip.MustParseAddr("2001:4:112::1")
	}
	for _, p := range w.CIDRs() {
		if v6 && p.Addr().Is6() {
			inside = p.Addr().Next()
		}
	}
	suffix := map[bool]string{true: " by IPv6"}[v6]
	if !w.Settings.Edge() { // which has no containers
		list = append(list,
			doctor.Packet{Chain: "FORWARD", In: gateway.Port, Out: dev, Src: inside, Dst: world, Proto: "tcp", For: "what containers send to the outside" + suffix},
			doctor.Packet{Chain: "FORWARD", In: dev, Out: gateway.Port, Src: world, Dst: inside, Proto: "tcp", DNAT: true, For: "what comes to containers' published ports" + suffix})
	}
	if own.Is6() == v6 && w.letsClientsIn() {
		list = append(list, doctor.Packet{Chain: "INPUT", In: dev, Src: world, Dst: own, Proto: "udp", Port: w.Settings.ClientPort, For: "WireGuard of clients"})
	}
	tunnel, by := w.Settings.Encapsulation().Title, "udp"
	if !w.Settings.Encapsulation().Ports() {
		by = w.Settings.Encap
	}
	if w.Settings.Encrypts() {
		tunnel = "WireGuard"
		list = append(list, w.inside(nodes, v6, most)...)
	}
	for _, n := range w.talkers(nodes, v6, most) {
		for _, port := range []struct {
			proto, what string
			port        uint16
		}{{"tcp", "gossip", w.Settings.Port}, {"udp", "gossip", w.Settings.Port}, {by, tunnel, w.Settings.TunnelPort()}} {
			p := doctor.Packet{Proto: port.proto, Port: port.port, Tunnel: port.what == tunnel}
			in, out := p, p
			in.Chain, in.In, in.Src, in.Dst, in.For = "INPUT", dev, n.Underlay(), own, port.what+" from "+n.Name
			out.Chain, out.Out, out.Src, out.Dst, out.For = "OUTPUT", dev, own, n.Underlay(), port.what+" to "+n.Name
			list = append(list, in, out)
		}
	}
	return append(list, w.encrypted(nodes, v6, most)...)
}

// encrypted are those by which encrypted networks go, beside what is in the clear.
func (w *Firewall) encrypted(nodes []api.Node, v6 bool, most int) (list []doctor.Packet) {
	snap := w.Snapshot()
	me, _ := cluster.Get[cluster.Node](snap, string(w.Self))
	if w.Settings.Encrypts() || me.SecureKey() == nil || !snap.Encrypted() {
		return nil
	}
	own, dev := w.Underlay.Addr, w.Underlay.Interface
	for _, n := range w.talkers(nodes, v6, most) {
		node, _ := cluster.Get[cluster.Node](snap, n.ID)
		if node.SecureKey() == nil {
			continue
		}
		list = append(list,
			doctor.Packet{Chain: "INPUT", In: dev, Src: n.Underlay(), Dst: own, Proto: "udp", Port: w.Settings.WireGuardPort, For: "WireGuard of encrypted networks from " + n.Name},
			doctor.Packet{Chain: "OUTPUT", Out: dev, Src: own, Dst: n.Underlay(), Proto: "udp", Port: node.WireGuardAt.Port(), For: "WireGuard of encrypted networks to " + n.Name})
	}
	return list
}

// inside are those that come out of WireGuard, by IPv6.
func (w *Firewall) inside(nodes []api.Node, v6 bool, most int) (list []doctor.Packet) {
	own := cluster.SecureVTEP(w.Self)
	for _, n := range nodes {
		if !v6 || n.Self || !n.Encrypts || len(list) >= 2*most {
			continue
		}
		p := doctor.Packet{Proto: "udp", Port: w.Settings.VXLANPort, Tunnel: true}
		in, out := p, p
		in.Chain, in.In, in.Src, in.Dst, in.For = "INPUT", link.WireGuard, n.VTEP, own, "VXLAN out of WireGuard from "+n.Name
		out.Chain, out.Out, out.Src, out.Dst, out.For = "OUTPUT", link.WireGuard, own, n.VTEP, "VXLAN into WireGuard to "+n.Name
		list = append(list, in, out)
	}
	return list
}

// talkers are at most so many other hosts of a family: if none has been met, those to join.
func (w *Firewall) talkers(nodes []api.Node, v6 bool, most int) (list []api.Node) {
	for _, n := range nodes {
		if !n.Self && n.Underlay().Is6() == v6 && w.Underlay.Addr.Is6() == v6 && len(list) < most {
			list = append(list, n)
		}
	}
	if list != nil {
		return list
	}
	for _, at := range w.Settings.Join {
		if addr := at.Addr().Unmap(); addr != w.Underlay.Addr && addr.Is6() == v6 && len(list) < most {
			list = append(list, api.Node{Name: addr.String(), VTEP: addr})
		}
	}
	return list
}
