package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/observe/trace/lead"
	"github.com/grapevine-net/grapevine/overlay/gateway"
	"github.com/grapevine-net/grapevine/service/expose"
	"github.com/grapevine-net/grapevine/service/expose/hold"
)

// exposing is what this host does about ports that all hosts of the cluster have.
type exposing struct{ agent *Agent }

// room makes what leads them here.
func (e exposing) room() *hold.Room {
	a := e.agent
	kept := reserved(a.cfg)
	return hold.New(hold.Config{
		Heed: e.heed(), Reserved: func(p expose.Port) string { return kept[p.Text()] },
		Self: a.self(), Gateway: gateway.Port, Source: a.replica, Stand: a.naming.serving, Publishes: e.publishes, State: a.db, Publishers: e.publishers(), Off: a.naming.unserved != "", Log: a.log.With("room", "expose"),
	})
}

// heed says which exposures this host answers. One without Docker is no way in for others.
func (e exposing) heed() expose.Heed {
	if e.agent.cfg.Edge() {
		return expose.Nothing
	}
	return expose.Heed(e.agent.cfg.Expose)
}

// publishes names the container on this host that has a port by -p, "" if none has.
func (e exposing) publishes(proto string, port uint16) string {
	if e.agent.driver == nil { // it is not open yet
		return ""
	}
	for id, list := range e.agent.driver.Published() {
		for _, b := range list {
			if b.Proto.String() == proto && port >= b.Host.Port() && port-b.Host.Port() <= b.More {
				return "container " + e.container(id) + " (-p)"
			}
		}
	}
	return ""
}

// publishers returns what lists the containers of this host that are to have ports of it, whether they run or not. Their
// ports never change, so each is asked for once. With an error it lists those that Docker told of.
func (e exposing) publishers() func(context.Context) ([]hold.Publisher, error) {
	known := map[string][]docker.PortRange{}
	return func(ctx context.Context) (list []hold.Publisher, err error) {
		if e.agent.docker == nil {
			return nil, nil
		}
		all, err := e.agent.docker.Containers(ctx)
		if err != nil {
			return nil, err
		}
		there := map[string]bool{}
		var failed []error
		for _, c := range all {
			there[c.ID] = true
			has, told := known[c.ID]
			if !told {
				d, err := e.agent.docker.Inspect(ctx, c.ID)
				if errors.Is(err, docker.ErrNotFound) {
					continue // it is gone
				}
				if err != nil {
					failed = append(failed, err) // as of one that is being started; the others answer
					continue
				}
				has = d.Publishes
				known[c.ID] = has
			}
			list = append(list, hold.Publisher{Name: c.Name, Running: c.State == "running", Has: func(p expose.Port) bool {
				return slices.ContainsFunc(has, func(r docker.PortRange) bool { return r.Proto == p.Proto() && r.First <= p.Port && p.Port <= r.Last })
			}})
		}
		maps.DeleteFunc(known, func(id string, _ []docker.PortRange) bool { return !there[id] })
		return list, errors.Join(failed...)
	}
}

func (e exposing) container(endpoint string) string {
	if r, ok := cluster.Get[cluster.Endpoint](e.agent.replica.Snapshot(), endpoint); ok && r.Name != "" {
		return r.Name
	}
	return endpoint
}

// reserved are ports that a service cannot have.
func reserved(cfg config.Config) map[string]string {
	const dhcp = "where DHCP servers answer hosts" // their clients read packets, and have no socket that would tell
	all := map[string]string{
		"68/udp":                                         dhcp,
		"546/udp":                                        dhcp,
		fmt.Sprintf("%d/tcp", cfg.Port):                  "where hosts hear each other",
		fmt.Sprintf("%d/udp", cfg.Port):                  "where hosts hear each other",
		fmt.Sprintf("%d/udp", cfg.VXLANPort):             "where what containers send comes from other hosts",
		fmt.Sprintf("%d/udp", cfg.WireGuardPort):         "where encrypted packets come from other hosts",
		fmt.Sprintf("%d/udp", cfg.SecondWireGuardPort()): "where encrypted packets come from other hosts while keys change",
		fmt.Sprintf("%d/udp", cfg.ClientPort):            "where clients come in",
	}
	if cfg.Metrics.IsValid() {
		all[fmt.Sprintf("%d/tcp", cfg.Metrics.Port())] = "where metrics are read"
	}
	return all
}

// door says who has a port of this host.
func (e exposing) door(at netip.AddrPort, proto string) (d lead.Door) {
	if e.agent.driver != nil {
		for id, list := range e.agent.driver.Published() {
			for _, b := range list {
				host := b.Host.Addr()
				mine := host == at.Addr() || host.IsUnspecified() && host.Is4() == at.Addr().Is4()
				if mine && b.Proto.String() == proto && at.Port() >= b.Host.Port() && at.Port()-b.Host.Port() <= b.More {
					return lead.Door{Endpoint: id, To: netip.AddrPortFrom(b.To.Addr(), b.To.Port()+at.Port()-b.Host.Port())}
				}
			}
		}
	}
	port := expose.Port{UDP: proto == "udp", Port: at.Port()}
	for _, x := range expose.All(e.agent.replica.Snapshot()) {
		if x.Port == port && x.Loses == "" && !e.heed().Heeds(x) {
			d.Refuses = "its GRAPEVINE_EXPOSE does not have it answer such ports"
		}
	}
	for _, n := range e.agent.exposes.Notes() {
		switch {
		case n.Port != port:
		case n.Away:
			d.Refuses = cmp.Or(n.By, "another program") + " had the port before, and may start again"
		case n.By != "":
			d.Refuses = n.By + " has the port"
		case n.Err != nil:
			d.Refuses = n.Err.Error()
		}
	}
	return d
}

// problems says which exposed ports this host does not answer, and which lead nowhere.
func (e exposing) problems(snap *cluster.Snapshot) (list []api.Problem) {
	for _, n := range e.agent.exposes.Notes() {
		what := fmt.Sprintf("this host does not answer port %s for %s: ", n.Text(), n.Name)
		do := "end who has the port here, or expose another one; the other hosts answer it"
		switch {
		case n.Away && n.Next != "":
			what += cmp.Or(n.By, "another program") + " had it before, and " + n.Next + " is to have it"
			do = "start one of them, remove the container, or expose the port anew"
		case n.Away:
			what += cmp.Or(n.By, "another program") + " had it before, and may start again"
			do = fmt.Sprintf("start it, remove the container, or expose the port anew; %d minutes after a program has ended this host answers by itself", int(hold.Patience.Minutes()))
		case n.By != "":
			what += n.By + " has it"
		default:
			what += n.Err.Error()
		}
		list = append(list, api.Problem{Code: api.ExposeTaken, What: what, Do: do})
	}
	for _, s := range expose.Strands(snap, e.agent.self(), e.heed()) {
		var names []string
		for _, id := range s.Hosts {
			n, _ := cluster.Get[cluster.Node](snap, string(id))
			names = append(names, n.Name)
		}
		list = append(list, api.Problem{
			Code: api.ExposeTaken,
			What: fmt.Sprintf("this host does not answer port %s for %s: all its containers are on host %s, of which the agent or the switch cannot have them answer by another host", s.Text(), s.Name(), strings.Join(names, ", ")),
			Do:   "upgrade the agent there, or boot a kernel whose Open vSwitch tracks connections, or run one of the containers on a host that can, or on this one",
		})
	}
	for _, s := range e.agent.exposes.Strays() {
		list = append(list, api.Problem{
			Code: api.ExposeTaken, What: fmt.Sprintf("a rule of another program on this host leads connections to port %s elsewhere, to %s, and not to %s", s.Text(), s.To, s.Name),
			Do: "take out that rule (`nft list ruleset | grep -e dnat -e redirect`, `iptables -t nat -S PREROUTING`), or expose another port; this goes ten minutes after the last such connection",
		})
	}
	if err := e.agent.exposes.Err(); err != nil {
		list = append(list, api.Problem{Code: api.ExposeFails, What: "exposed ports do not lead where they should: " + err.Error(), Do: "see the agent's log; it tries again by itself"})
	}
	for _, x := range expose.All(snap) {
		switch {
		case !e.heed().Heeds(x):
		case x.Loses != "":
			list = append(list, api.Problem{Code: api.ExposeFails, What: fmt.Sprintf("port %s of all hosts does not lead to %s, since %s has it", x.Text(), x.Name(), x.Loses), Do: "expose one of the two by another port"})
		case x.Closed:
			list = append(list, api.Problem{Code: api.ExposeFails, What: fmt.Sprintf("port %s of all hosts does not lead to %s: the network is internal, and has no way to the outside", x.Text(), x.Name()), Do: "put the containers on another network"})
		}
	}
	for at := range cluster.All[cluster.Endpoint](snap) {
		if text := at.Labels[expose.Label]; text != "" && at.Host == e.agent.self() {
			if e.heed() != expose.Labels {
				list = append(list, api.Problem{
					Code: api.ExposeTaken, What: fmt.Sprintf("container %s asks by its label %s for ports of all hosts, and this host gives none to labels", at.Name, expose.Label),
					Do: "set GRAPEVINE_EXPOSE=labels on the hosts that are to heed such labels, or have a service: `grapevine service expose`",
				})
			}
			if _, err := expose.Parse(text); err != nil {
				list = append(list, api.Problem{Code: api.ExposeFails, What: fmt.Sprintf("the label %s of container %s cannot be read: %v", expose.Label, at.Name, err), Do: "make the container anew with a label as 443, 8443:443 or 53/udp"})
			}
		}
	}
	return list
}
