// Package verdict says what must not be, of what was read from the hosts of a chaos run.
// All of it is pure: what was read comes as values, and each violation is a sentence.
package verdict

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/tests/lab"
)

// Facts is what one host says of the cluster, and what its Docker has.
type Facts struct {
	Host      string
	Status    api.Status
	Nodes     []api.Node
	Networks  []api.Network
	Endpoints []api.Endpoint
	Ring      []api.Pool
	// Containers are those of grapevine's networks that run, as Docker has them.
	Containers []Container
}

// Container is a container's place in a network, as Docker has it.
type Container struct {
	Name, Network string
	Addr          netip.Addr
}

// Fault is something that was done to the hosts.
type Fault struct {
	Name  string
	Hosts []string // that it was done to
	// Between: it concerns the packets between the two hosts only. Else it concerns all
	// packets of any of the hosts.
	Between bool
	// Packets may be lost by it, and connections be reset. Commands on its hosts may fail.
	Packets, Commands bool
	// Until is when it had ended and all was seen to be well again: it excuses nothing
	// that begins later. Zero: not yet.
	From, Until time.Time
}

// at reports whether the fault may show at that time.
func (f Fault) at(t time.Time) bool {
	return !t.Before(f.From.Add(-lookBack)) && (f.Until.IsZero() || !t.After(f.Until.Add(grace)))
}

const (
	lookBack = 200 * time.Millisecond // what was under way when the fault struck may be lost as well
	grace    = 200 * time.Millisecond // witnesses ask ten times a second
)

// Owners says which addresses, ranges and VNIDs have two owners. Hosts are read one after
// the other, and what is given away in between seems to have two: a violation is what is said
// of two readings in succession (Both).
func Owners(hosts []Facts) (wrong []string) {
	return slices.Concat(ranges(hosts), leases(hosts), vnids(hosts))
}

// Both are those that are in both lists.
func Both(before, now []string) (both []string) {
	for _, w := range now {
		if slices.Contains(before, w) {
			both = append(both, w)
		}
	}
	return both
}

// ranges: each host says what it owns itself; no two of these overlap.
func ranges(hosts []Facts) (wrong []string) {
	type block struct {
		host, pool string // networks' prefixes are parts of the cluster's own
		netip.Prefix
	}
	var own []block
	for _, h := range hosts {
		for _, pool := range h.Ring {
			for _, s := range pool.Shares {
				if s.Node != h.Status.Node {
					continue
				}
				for _, b := range s.Blocks {
					own = append(own, block{h.Host, pool.Network, b})
				}
			}
		}
	}
	for i, a := range own {
		for _, b := range own[:i] {
			if a.host != b.host && a.pool == b.pool && a.Overlaps(b.Prefix) {
				wrong = append(wrong, fmt.Sprintf("%s is owned by %s and %s by %s", b.Prefix, b.host, a.Prefix, a.host))
			}
		}
	}
	return wrong
}

// leases: no two containers of the cluster have one address.
func leases(hosts []Facts) (wrong []string) {
	owner := map[netip.Addr]string{}
	for _, h := range hosts {
		for _, c := range h.Containers {
			who := c.Name + " on " + h.Host
			if other, taken := owner[c.Addr]; taken && other != who {
				wrong = append(wrong, fmt.Sprintf("%s has the address %s of %s", who, c.Addr, other))
			}
			owner[c.Addr] = who
		}
	}
	return wrong
}

// vnids: a VNID belongs to one network, whoever is asked. A host that cannot write, or has
// not heard of it yet, may know that network by its provisional name: two networks have two
// names of one kind.
func vnids(hosts []Facts) (wrong []string) {
	type of struct {
		vnid        uint32
		provisional bool
	}
	owner := map[of]string{}
	for _, h := range hosts {
		for _, n := range h.Networks {
			at := of{n.VNID, strings.HasPrefix(n.Name, "provisional/")}
			if other, taken := owner[at]; taken && other != n.Name && n.VNID != 0 {
				wrong = append(wrong, fmt.Sprintf("VNID %d is that of %q and, on %s, of %q", n.VNID, other, h.Host, n.Name))
			}
			owner[at] = n.Name
		}
	}
	return wrong
}

// Agree says in what the hosts differ from the first one, what their own status finds
// wrong, and whether the cluster knows the containers that Docker has, and no others.
func Agree(hosts []Facts) (wrong []string) {
	if len(hosts) == 0 {
		return []string{"no host was read"}
	}
	first := shared(hosts[0])
	for _, h := range hosts {
		for _, p := range h.Status.Problems {
			wrong = append(wrong, fmt.Sprintf("%s: %s", h.Host, p.What))
		}
		if p := h.Status.Hosts; p.Part != len(hosts) || p.All != len(hosts) {
			wrong = append(wrong, fmt.Sprintf("%s has %d of %d hosts alive, and there are %d", h.Host, p.Part, p.All, len(hosts)))
		}
		for what, text := range shared(h) {
			if text != first[what] {
				wrong = append(wrong, fmt.Sprintf("%s are on %s\n  %s\nand on %s\n  %s", what, hosts[0].Host, first[what], h.Host, text))
			}
		}
		wrong = append(wrong, h.known()...)
	}
	slices.Sort(wrong)
	return wrong
}

// shared is what all hosts should have alike.
func shared(h Facts) map[string]string {
	nodes := slices.Clone(h.Nodes)
	for i := range nodes {
		nodes[i].Self, nodes[i].Path = false, "" // each host's own
	}
	ends := slices.Clone(h.Endpoints)
	for i := range ends {
		ends[i].Ports, ends[i].Here = nil, false // are told of a host's own only
	}
	all := map[string]string{}
	for what, v := range map[string]any{"hosts": nodes, "networks": h.Networks, "endpoints": ends, "ranges": h.Ring} {
		text, err := json.Marshal(v)
		if err != nil {
			text = []byte(err.Error())
		}
		all[what] = string(text)
	}
	return all
}

// known compares the host's own endpoints with its Docker.
func (h Facts) known() (wrong []string) {
	recorded, running := map[string]bool{}, map[string]bool{}
	for _, e := range h.Endpoints {
		if e.Host == h.Status.Name {
			for _, addr := range e.Addrs {
				recorded[e.Name+" on "+e.Network+" at "+addr.String()] = true
			}
		}
	}
	for _, c := range h.Containers {
		running[c.Name+" on "+c.Network+" at "+c.Addr.String()] = true
	}
	for _, r := range slices.Sorted(maps.Keys(running)) {
		if !recorded[r] {
			wrong = append(wrong, fmt.Sprintf("%s: Docker has %s, of which the cluster does not know", h.Host, r))
		}
	}
	for _, r := range slices.Sorted(maps.Keys(recorded)) {
		if !running[r] {
			wrong = append(wrong, fmt.Sprintf("%s: the cluster knows %s, which Docker has not", h.Host, r))
		}
	}
	return wrong
}

// Packets says which sightings no fault explains: datagrams that crossed networks always,
// losses and resets unless a fault that may cause them concerned one of the two hosts, or
// both where it was between hosts. host tells where a witness is.
func Packets(seen []lab.Sighting, faults []Fault, host func(witness string) string) (wrong []string) {
	for _, s := range seen {
		a, b := host(s.By), host(s.To)
		excused := func(t time.Time) bool { return excused(a, b, faults, t) }
		pair := s.By + " and " + s.To
		switch {
		case s.Kind == "crossed":
			wrong = append(wrong, fmt.Sprintf("%s: a datagram of %s came to %s, which is on another network", clock(s.From), s.To, s.By))
		case s.Kind == "lost" && !excused(s.From):
			wrong = append(wrong, fmt.Sprintf("%s: %d datagrams between %s were lost, for %s, with no fault there", clock(s.From), s.N, pair, s.Until.Sub(s.From).Round(time.Millisecond)))
		case s.Kind == "lost" && !excused(s.Until):
			wrong = append(wrong, fmt.Sprintf("%s: datagrams between %s were lost for %s, until long after the fault", clock(s.From), pair, s.Until.Sub(s.From).Round(time.Millisecond)))
		case s.Kind == "reset" && !excused(s.From): // the last byte: that a host has lost its power is noticed later
			wrong = append(wrong, fmt.Sprintf("%s: the connection between %s ended with no fault there, %s later: %s", clock(s.From), pair, s.Until.Sub(s.From).Round(time.Millisecond), s.Why))
		}
	}
	return wrong
}

// Judged is the part of a time, 0 to 1, in which no fault excuses a packet between two hosts.
func Judged(a, b string, faults []Fault, from, until time.Time) float64 {
	const step = 100 * time.Millisecond
	judged, all := 0, 0
	for t := from; t.Before(until); t = t.Add(step) {
		all++
		if !excused(a, b, faults, t) {
			judged++
		}
	}
	return float64(judged) / float64(max(all, 1))
}

// excused reports whether a fault may lose packets between two hosts at that time.
func excused(a, b string, faults []Fault, t time.Time) bool {
	return slices.ContainsFunc(faults, func(f Fault) bool {
		here, there := slices.Contains(f.Hosts, a), slices.Contains(f.Hosts, b)
		return f.Packets && f.at(t) && (here && there || !f.Between && (here || there))
	})
}

// Met is nil if every witness has had an answer from all others of its network, a
// connection to them and frames of theirs, since both were started: else what is sent between them shows
// nothing. all are the witnesses, by NETWORK/NAME.
func Met(seen []lab.Sighting, all map[string]lab.WitnessAt) error {
	last := map[[3]string]time.Time{}
	for _, s := range seen {
		last[[3]string{s.Kind, s.By, s.To}] = s.From
	}
	var missing []string
	for _, by := range slices.Sorted(maps.Keys(all)) {
		for _, to := range slices.Sorted(maps.Keys(all)) {
			network, _, _ := strings.Cut(by, "/")
			if by == to || !strings.HasPrefix(to, network+"/") {
				continue
			}
			for _, kind := range []string{"met", "joined", "framed"} {
				at := last[[3]string{kind, by, to}]
				if at.Before(all[by].Since) || at.Before(all[to].Since) {
					missing = append(missing, fmt.Sprintf("%s has none %q of %s", by, kind, to))
				}
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("of the witnesses, since they were started: %s", strings.Join(missing, ", "))
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }

// Command is one that was run on a host, as a user would.
type Command struct {
	Host, Text  string
	From, Until time.Time
	Err         error
}

// Excused reports whether a fault of its host explains that it fails, or that it has no
// effect.
func (c Command) Excused(faults []Fault) bool {
	return slices.ContainsFunc(faults, func(f Fault) bool {
		return f.Commands && slices.Contains(f.Hosts, c.Host) && (f.at(c.From) || f.at(c.Until) || c.From.Before(f.From) && c.Until.After(f.From))
	})
}

// Commands says which ones failed on hosts where no fault explains it.
func Commands(run []Command, faults []Fault) (wrong []string) {
	for _, c := range run {
		if c.Err != nil && !c.Excused(faults) {
			wrong = append(wrong, fmt.Sprintf("%s: %s# %s failed after %s, with no fault there: %v", clock(c.From), c.Host, c.Text, c.Until.Sub(c.From).Round(time.Millisecond), c.Err))
		}
	}
	return wrong
}

// Belongings is what a host has of grapevine's: lines by kind ("flows", "links", ...), and
// amounts ("goroutines", ...).
type Belongings struct {
	Lines   map[string][]string
	Amounts map[string]int
}

// Slack is by how much an amount may grow.
var Slack = map[string]int{"goroutines": 4, "descriptors": 4, "heap MB": 16, "agent's MB": 48, "ovs-vswitchd's MB": 32, "ovsdb-server's MB": 16}

// Left says what a host has more than before.
func Left(host string, before, after Belongings) (wrong []string) {
	for _, kind := range slices.Sorted(maps.Keys(after.Lines)) {
		was := slices.Clone(before.Lines[kind])
		for _, line := range after.Lines[kind] {
			if i := slices.Index(was, line); i >= 0 {
				was = slices.Delete(was, i, i+1)
				continue
			}
			wrong = append(wrong, fmt.Sprintf("%s: left among the %s: %s", host, kind, strings.TrimSpace(line)))
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(after.Amounts)) {
		if was, is := before.Amounts[kind], after.Amounts[kind]; is > was+Slack[kind] {
			wrong = append(wrong, fmt.Sprintf("%s: %d %s, and %d before", host, is, kind, was))
		}
	}
	return wrong
}
