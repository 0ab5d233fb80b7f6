// Package exposed is what a host says and asks about the ports that all hosts of the cluster have: which are its own, which containers
// of it are to have one by Docker, and what is wrong with them.
package exposed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/driver/ports"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/service"
	"github.com/grapevine-net/grapevine/service/expose"
	"github.com/grapevine-net/grapevine/service/expose/hold"
)

// Config of a Room.
type Config struct {
	Self     cluster.NodeID
	Settings config.Config
	Gateway  string // the interface by which this host reaches containers
	Source   hold.Source
	Stand    service.Hosts
	State    store.File
	Docker   *docker.Client // nil: there is none
	// Published are the ports that this host's containers have by -p, by endpoint: none before the driver is open.
	Published func() map[string][]ports.Binding
	Off       bool // this kernel cannot do it
	Log       *slog.Logger
}

// Room is what this host does about ports that all hosts of the cluster have.
type Room struct {
	*hold.Room
	cfg Config
}

// New makes what leads them here.
func New(cfg Config) *Room {
	r := &Room{cfg: cfg}
	kept := Reserved(cfg.Settings)
	r.Room = hold.New(hold.Config{
		Heed: r.heed(), Reserved: func(p expose.Port) string { return kept[p.Text()] },
		Self: cfg.Self, Gateway: cfg.Gateway, Source: cfg.Source, Stand: cfg.Stand, Publishes: r.publishes, State: cfg.State, Publishers: r.publishers(), Off: cfg.Off, Log: cfg.Log,
	})
	return r
}

// Heed says which exposures a host with these settings answers. One without Docker is no way in for others.
func Heed(cfg config.Config) expose.Heed {
	if cfg.Edge() {
		return expose.Nothing
	}
	return expose.Heed(cfg.Expose)
}

func (r *Room) heed() expose.Heed { return Heed(r.cfg.Settings) }

// publishes names the container on this host that has a port by -p, "" if none has.
func (r *Room) publishes(proto string, port uint16) string {
	for id, list := range r.cfg.Published() {
		for _, b := range list {
			if b.Proto.String() == proto && port >= b.Host.Port() && port-b.Host.Port() <= b.More {
				return "container " + r.container(id) + " (-p)"
			}
		}
	}
	return ""
}

// publishers returns what lists the containers of this host that are to have ports of it, whether they run or not. Their
// ports never change, so each is asked for once. With an error it lists those that Docker told of.
func (r *Room) publishers() func(context.Context) ([]hold.Publisher, error) {
	known := map[string][]docker.PortRange{}
	return func(ctx context.Context) (list []hold.Publisher, err error) {
		if r.cfg.Docker == nil {
			return nil, nil
		}
		all, err := r.cfg.Docker.Containers(ctx)
		if err != nil {
			return nil, err
		}
		there := map[string]bool{}
		var failed []error
		for _, c := range all {
			there[c.ID] = true
			has, told := known[c.ID]
			if !told {
				d, err := r.cfg.Docker.Inspect(ctx, c.ID)
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
				return slices.ContainsFunc(has, func(in docker.PortRange) bool {
					return in.Proto == p.Proto() && in.First <= p.Port && p.Port <= in.Last
				})
			}})
		}
		maps.DeleteFunc(known, func(id string, _ []docker.PortRange) bool { return !there[id] })
		return list, errors.Join(failed...)
	}
}

func (r *Room) container(endpoint string) string {
	if e, ok := cluster.Get[cluster.Endpoint](r.cfg.Source.Snapshot(), endpoint); ok && e.Name != "" {
		return e.Name
	}
	return endpoint
}

// Reserved are ports that a service cannot have.
func Reserved(cfg config.Config) map[string]string {
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

// Door says who has a port of this host.
func (r *Room) Door(at netip.AddrPort, proto string) (d expose.Door) {
	for id, list := range r.cfg.Published() {
		for _, b := range list {
			host := b.Host.Addr()
			mine := host == at.Addr() || host.IsUnspecified() && host.Is4() == at.Addr().Is4()
			if mine && b.Proto.String() == proto && at.Port() >= b.Host.Port() && at.Port()-b.Host.Port() <= b.More {
				return expose.Door{Endpoint: id, To: netip.AddrPortFrom(b.To.Addr(), b.To.Port()+at.Port()-b.Host.Port())}
			}
		}
	}
	port := expose.Port{UDP: proto == "udp", Port: at.Port()}
	for _, x := range expose.All(r.cfg.Source.Snapshot()) {
		if x.Port == port && x.Loses == "" && !r.heed().Heeds(x) {
			d.Refuses = "its GRAPEVINE_EXPOSE does not have it answer such ports"
		}
	}
	for _, n := range r.Notes() {
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

// Problems says which exposed ports this host does not answer, and which lead nowhere.
func (r *Room) Problems(snap *cluster.Snapshot) (list []api.Problem) {
	for _, n := range r.Notes() {
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
	for _, s := range expose.Strands(snap, r.cfg.Self, r.heed()) {
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
	for _, s := range r.Strays() {
		list = append(list, api.Problem{
			Code: api.ExposeTaken, What: fmt.Sprintf("a rule of another program on this host leads connections to port %s elsewhere, to %s, and not to %s", s.Text(), s.To, s.Name),
			Do: "take out that rule (`nft list ruleset | grep -e dnat -e redirect`, `iptables -t nat -S PREROUTING`), or expose another port; this goes ten minutes after the last such connection",
		})
	}
	if err := r.Err(); err != nil {
		list = append(list, api.Problem{Code: api.ExposeFails, What: "exposed ports do not lead where they should: " + err.Error(), Do: "see the agent's log; it tries again by itself"})
	}
	for _, x := range expose.All(snap) {
		switch {
		case !r.heed().Heeds(x):
		case x.Loses != "":
			list = append(list, api.Problem{Code: api.ExposeFails, What: fmt.Sprintf("port %s of all hosts does not lead to %s, since %s has it", x.Text(), x.Name(), x.Loses), Do: "expose one of the two by another port"})
		case x.Closed:
			list = append(list, api.Problem{Code: api.ExposeFails, What: fmt.Sprintf("port %s of all hosts does not lead to %s: the network is internal, and has no way to the outside", x.Text(), x.Name()), Do: "put the containers on another network"})
		}
	}
	for at := range cluster.All[cluster.Endpoint](snap) {
		if text := at.Labels[expose.Label]; text != "" && at.Host == r.cfg.Self {
			if r.heed() != expose.Labels {
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
