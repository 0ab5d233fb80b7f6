package doctor

import (
	"fmt"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/diagnose/probe"
)

// Path is what became of the probes to one host.
type Path struct {
	Peer   string // its name
	Limits probe.Limits
	Report probe.Report
	// Err says why the host could not be asked, Dial why its gossip port could not be
	// connected to (nil: it could).
	Err, Dial error
	// Astray is by what this host sends VXLAN there, if not by the underlay's interface: "by docker0, and not by eth0".
	Astray string
	// Old: it runs an agent that knows no probes.
	Old bool
}

// Cluster is what all paths have in common.
type Cluster struct {
	Self       string // name of this host
	GossipPort uint16
	// By is what containers' packets come by, such as "UDP port 4789".
	By string
	// Overhead is what the tunnel adds to a packet, bytes.
	Overhead int
	// Hung: this host's switch does not answer, which is why nothing passes through the tunnel, if nothing does.
	Hung bool
}

// maxSkew is by how much clocks may differ: logs of two hosts are read side by side,
// and tombstones live for days.
const maxSkew = 5 * time.Second

// Paths judges the ways to and from the other hosts: a line for each that is wrong, and
// one for all of a kind if all are well.
func (c Cluster) Paths(paths []Path) []api.Check {
	if len(paths) == 0 {
		return []api.Check{ok("gossip", "no other host is known yet")}
	}
	var checks []api.Check
	asked := 0
	for _, p := range paths {
		if p.Err != nil {
			checks = append(checks, c.unasked(p))
			continue
		}
		asked++
	}
	if asked == 0 {
		return checks
	}
	hosts := words.Plural(asked, "host")
	add := func(subject, fine string, judge func(Path) []api.Check) {
		var found []api.Check
		for _, p := range paths {
			if p.Err == nil {
				found = append(found, judge(p)...)
			}
		}
		if found == nil {
			found = []api.Check{ok(subject, "%s", fine)}
		}
		checks = append(checks, found...)
	}
	add("gossip", fmt.Sprintf("TCP and UDP port %d, to and from %s", c.GossipPort, hosts), c.gossip)
	add("encap", fmt.Sprintf("%s, to and from %s, through both switches", c.By, hosts), c.encap)
	add("mtu", "packets of the full size pass to and from "+hosts+": "+sizes(paths),
		func(p Path) []api.Check { return c.mtu(p, c.least(paths)) })
	add("clock", fmt.Sprintf("within %v of %s", skew(paths), hosts), c.clock)
	return checks
}

// unasked is for a host that does not answer calls.
func (c Cluster) unasked(p Path) api.Check {
	switch {
	case p.Old:
		return unknown("gossip", "upgrade its agent", "%s answers, but its agent knows no probes: the paths to and from it were not tried", p.Peer)
	case p.Dial != nil:
		return wrong("gossip", fmt.Sprintf("start the agent of %s; open TCP and UDP port %d between the two hosts in both directions", p.Peer, c.GossipPort),
			"%s -> %s: TCP port %d cannot be connected to: %v", c.Self, p.Peer, c.GossipPort, p.Dial)
	}
	return wrong("gossip", fmt.Sprintf("open TCP and UDP port %d from %s to %s; if it is open, the log of %s's agent says more", c.GossipPort, p.Peer, c.Self, p.Peer),
		"%s -> %s: TCP port %d can be connected to, but no answer comes back: %v", c.Self, p.Peer, c.GossipPort, p.Err)
}

// ways calls judge for both directions.
func (c Cluster) ways(p Path, judge func(from, to string, gossip, tunnel, gossipLimit, tunnelLimit int) []api.Check) []api.Check {
	r, l := p.Report, p.Limits
	return append(
		judge(c.Self, p.Peer, r.Gossip.Out, r.Tunnel.Out, l.Gossip.Out, l.Tunnel.Out),
		judge(p.Peer, c.Self, r.Gossip.In, r.Tunnel.In, l.Gossip.In, l.Tunnel.In)...)
}

func (c Cluster) gossip(p Path) []api.Check {
	return c.ways(p, func(from, to string, gossip, _, _, _ int) []api.Check {
		if gossip != 0 {
			return nil
		}
		return []api.Check{wrong("gossip", fmt.Sprintf("let UDP port %d out of %s and into %s (firewall, security group)", c.GossipPort, from, to),
			"%s -> %s: nothing arrives at UDP port %d; gossip goes on by TCP, and hosts are found dead later", from, to, c.GossipPort)}
	})
}

func (c Cluster) encap(p Path) []api.Check {
	if p.Report.TunnelErr != nil {
		return []api.Check{wrong("encap", "see the switch's problems, above or in `grapevine status` there",
			"%s <-> %s: the tunnel could not be tried: %v", c.Self, p.Peer, p.Report.TunnelErr)}
	}
	if c.Hung && (p.Report.Tunnel.In == 0 || p.Report.Tunnel.Out == 0) {
		return []api.Check{unknown("encap", "see to the switch first", "%s <-> %s: nothing passes through the tunnel as long as this host's switch does not answer", c.Self, p.Peer)}
	}
	return c.ways(p, func(from, to string, _, tunnel, _, _ int) []api.Check {
		if tunnel != 0 {
			return nil
		}
		if from == c.Self && p.Astray != "" {
			return []api.Check{wrong("encap", fmt.Sprintf("`ip rule` and `ip route` on this host show which rule or route leads there: take it away, or except %s", c.By),
				"%s -> %s: nothing arrives through the tunnel, %s: this host sends it %s", from, to, c.By, p.Astray)}
		}
		return []api.Check{wrong("encap", fmt.Sprintf("let %s out of %s and into %s (firewall, security group); `grapevine doctor` on both tells their own rules, and whether a switch hangs", c.By, from, to),
			"%s -> %s: nothing arrives through the tunnel, %s", from, to, c.By)}
	})
}

// least is the largest packet that all paths carry, bytes: what all hosts can be set to.
func (c Cluster) least(paths []Path) int {
	least := 65535
	for _, p := range paths {
		for _, size := range []int{p.Report.Gossip.Out, p.Report.Gossip.In} {
			if size != 0 {
				least = min(least, size)
			}
		}
		for _, size := range []int{p.Report.Tunnel.Out, p.Report.Tunnel.In} {
			if size != 0 {
				least = min(least, size+c.Overhead)
			}
		}
	}
	return least
}

// mtu judges one path; least is that of all.
func (c Cluster) mtu(p Path, least int) []api.Check {
	return c.ways(p, func(from, to string, gossip, tunnel, gossipLimit, tunnelLimit int) []api.Check {
		var short []string
		if gossip != 0 && gossip < gossipLimit {
			short = append(short, fmt.Sprintf("of %d bytes at most %d arrive unfragmented", gossipLimit, gossip))
		}
		then := "the tunnel's large packets are fragmented on the way, which costs throughput"
		if p.Report.TunnelErr == nil && tunnel != 0 && tunnel < tunnelLimit {
			short = append(short, fmt.Sprintf("in the tunnel %d of %d", tunnel, tunnelLimit))
			then = "containers' large packets get lost"
		}
		if short == nil {
			return nil
		}
		return []api.Check{wrong("mtu", fmt.Sprintf("make the path carry %d bytes, or set GRAPEVINE_MTU=%d on every host (containers that are then started get %d)", gossipLimit, least, least-c.Overhead),
			"%s -> %s: %s: %s", from, to, strings.Join(short, ", "), then)}
	})
}

func (c Cluster) clock(p Path) []api.Check {
	d := p.Report.Skew
	if d.Abs() <= max(maxSkew, p.Report.Answer) {
		return nil
	}
	than := "ahead of"
	if d < 0 {
		than = "behind"
	}
	return []api.Check{wrong("clock", "set the clock by NTP on every host (chrony, systemd-timesyncd)",
		"%s's clock is %v %s this host's", p.Peer, d.Abs().Round(time.Second/10), than)}
}

// sizes names the limits, as far as they are the same everywhere.
func sizes(paths []Path) string {
	seen := map[string]bool{}
	var list []string
	for _, p := range paths {
		if p.Err != nil {
			continue
		}
		for _, text := range []string{
			fmt.Sprintf("%d bytes, %d in the tunnel", p.Limits.Gossip.Out, p.Limits.Tunnel.Out),
			fmt.Sprintf("%d bytes, %d in the tunnel", p.Limits.Gossip.In, p.Limits.Tunnel.In),
		} {
			if !seen[text] {
				seen[text] = true
				list = append(list, text)
			}
		}
	}
	return strings.Join(list, "; ")
}

// skew is the largest difference seen, or what it could not have been told from.
func skew(paths []Path) time.Duration {
	var most time.Duration
	for _, p := range paths {
		if p.Err == nil {
			most = max(most, p.Report.Skew.Abs(), p.Report.Answer/2)
		}
	}
	return most.Round(time.Millisecond) + time.Millisecond
}
