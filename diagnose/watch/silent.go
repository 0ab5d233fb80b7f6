package watch

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/gossip"
	"github.com/grapevine-net/grapevine/host/link"
)

// doubtPatience is how long a host is in doubt before status says so: a busy one is for
// a moment.
const doubtPatience = 1500 * time.Millisecond

// silent is another host that does not answer.
type silent struct {
	name   string
	vtep   netip.Addr
	since  time.Time // zero: not since this agent began, or not known
	dead   bool      // else in doubt
	astray string    // by what this host sends to it, if that is not the underlay
	do     string    // if the matter is with it
}

// Silence says which hosts do not answer, and whether the matter is with them or with this host.
type Silence struct {
	Host
	Contacts *Contacts
	Advice   func(cluster.NodeID) string // what may be done about one that does not answer
}

// Problems are for status; nodes are all hosts.
func (w Silence) Problems(nodes []api.Node) []api.Problem {
	now := time.Now()
	var list []silent
	others := 0
	for _, n := range nodes {
		if n.Self {
			continue
		}
		others++
		m, _ := w.Gossip.Member(n.ID)
		s := silent{name: n.Name, vtep: n.Underlay(), since: m.Since, dead: !n.Alive, do: w.Advice(cluster.NodeID(n.ID))}
		switch {
		case n.Alive && (m.State != gossip.Alive || m.DoubtfulSince.IsZero() || now.Sub(m.DoubtfulSince) < doubtPatience):
			continue
		case n.Alive && w.Contacts.packetless(n.ID):
			continue // it answers, and what does not pass is known: contactProblems
		case n.Alive:
			s.since = m.DoubtfulSince
		case m.Since.Before(w.Started.Add(time.Second)): // it was not met
			s.since = time.Time{}
		}
		if s.dead {
			s.astray = astray(s.vtep.Unmap(), w.Underlay.Interface, link.Way)
		}
		list = append(list, s)
	}
	return whoIsSilent(list, others, w.trouble(), w.Underlay.Interface, now)
}

// CutOff is what is to be said of this host if it is this one, and not the others, that does
// not answer; nil: it is not.
func (w Silence) CutOff(nodes []api.Node) []api.Problem {
	others, answer := 0, 0
	for _, n := range nodes {
		if n.Self {
			continue
		}
		if others++; n.Alive {
			answer++
		}
	}
	if w.trouble() == "" && (others < 2 || answer > 0) {
		return nil
	}
	return w.Problems(nodes)
}

// trouble says why this host reaches nobody, "" if nothing is known.
func (w Silence) trouble() string {
	addr := w.Underlay.Addr
	if w.Settings.Bind.IsValid() && w.Settings.Advertise.Addr().Unmap() == addr {
		addr = netip.Addr{} // behind NAT it need not be this host's
	}
	return link.Trouble(w.Underlay.Interface, addr)
}

// astray says by what this host sends to another one if it does not do so by its underlay, as when a VPN, a bridge or an administrator
// has brought a route; else nothing. Of hosts that are reached by several interfaces that is so, and all is well.
func astray(to netip.Addr, dev string, way func(netip.Addr) string) string {
	switch by := way(to); {
	case by == dev || !to.IsValid():
		return ""
	case by == "":
		return "by no interface (unreachable)"
	default:
		return fmt.Sprintf("by %s, and not by %s", by, dev)
	}
}

// whoIsSilent is pure: list are those of the others that do not answer; trouble is what is
// wrong with this host's own underlay. Who hears nobody is advised to forget nobody.
func whoIsSilent(list []silent, others int, trouble, dev string, now time.Time) (problems []api.Problem) {
	add := func(code api.Code, do, format string, args ...any) {
		problems = append(problems, api.Problem{Code: code, What: fmt.Sprintf(format, args...), Do: do})
	}
	switch {
	case trouble != "":
		what := "this host is cut off: " + trouble
		if others > 0 && len(list) == others {
			what = "no other host answers" + earliest(list, now) + ": it is this one, since " + trouble
		}
		add(api.UnderlayCut, fmt.Sprintf("see its cable, `ip link show %s` and `ip addr show %s`; the other hosts need nothing", dev, dev), "%s", what)
		return problems
	case len(list) > 1 && len(list) == others:
		if led := led(list); led != "" {
			add(api.UnderlayCut, "`ip route get` the other hosts' addresses says by which routes: take these away, unless they are meant; the other hosts need nothing",
				"no other host answers%s: it is probably this one, which sends to %s", earliest(list, now), led)
			return problems
		}
		add(api.UnderlayCut, fmt.Sprintf("look at this host first: the cable and the switch behind %s, its address, its firewall; only then at the others", dev),
			"no other host answers%s: it is probably this one, unless all of them are off (%s)", earliest(list, now), strings.Join(namesOf(list), ", "))
		return problems
	}
	for _, s := range list {
		switch {
		case !s.dead:
			add(api.HostDoubtful, "wait some seconds: it is busy, cut off or off, which is known then", "host %s (%s) does not answer just now%s", s.name, s.vtep, words.Since(s.since, now))
		case s.astray != "":
			add(api.HostSilent, fmt.Sprintf("`ip route get %s` says by which route: take that away; if it is meant, see that %s can be reached so, and is on", s.vtep, s.name),
				"host %s (%s) does not answer%s: this host sends to it %s", s.name, s.vtep, words.Since(s.since, now), s.astray)
		case others == 1:
			add(api.HostSilent, fmt.Sprintf("see that this host's own network is whole (%s); %s", dev, s.do), "host %s (%s) does not answer%s", s.name, s.vtep, words.Since(s.since, now))
		default:
			add(api.HostSilent, s.do, "host %s (%s) does not answer%s", s.name, s.vtep, words.Since(s.since, now))
		}
	}
	return problems
}

// led says where this host's packets to hosts go, if it is by no underlay of theirs that they go to all of them.
func led(list []silent) string {
	for _, s := range list {
		if s.astray == "" {
			return ""
		}
	}
	return fmt.Sprintf("%s (%s) %s", list[0].name, list[0].vtep, list[0].astray)
}

func namesOf(list []silent) (out []string) {
	const most = 5
	for i, s := range list {
		if i == most {
			return append(out, fmt.Sprintf("and %d more", len(list)-most))
		}
		out = append(out, s.name)
	}
	return out
}

// earliest is since when the first of them does not answer.
func earliest(list []silent, now time.Time) string {
	var first time.Time
	for _, s := range list {
		if !s.since.IsZero() && (first.IsZero() || s.since.Before(first)) {
			first = s.since
		}
	}
	return words.Since(first, now)
}
