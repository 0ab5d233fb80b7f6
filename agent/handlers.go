package agent

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/view"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/diagnose/ping"
	"github.com/grapevine-net/grapevine/driver/limit"
	"github.com/grapevine-net/grapevine/driver/ports"
	"github.com/grapevine-net/grapevine/gossip"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/membership"
	"github.com/grapevine-net/grapevine/overlay/plane"
	"github.com/grapevine-net/grapevine/overlay/secure"
	"github.com/grapevine-net/grapevine/realm"
)

func (a *Agent) handlers() api.Handlers {
	services, policies, clients, networks, egresses := a.naming.desk(a.alloc), policing{a}.desk(), a.clients.desk(), realms(a), leaving{a}.desk()
	counted, pings := policing{a}.counted(), ping.Desk{Nodes: a.nodes, Prober: a.prober, InnerMTU: a.plane.InnerMTU, Encap: a.cfg.Encapsulation(), Lost: a.hellos.Inside.Lost}
	limits := limit.Desk{Self: a.self(), Name: a.cfg.Name, Replica: a.replica, Set: limitsOf(a.driver), CanLag: link.CanLag}
	names := realm.NewNames(a.replica)
	return api.Handlers{
		Status: a.status,
		Nodes: func(context.Context) ([]api.Node, error) {
			return a.hellos.Paths(a.member.Nodes(a.replica.Snapshot())), nil
		},
		Networks: func(context.Context) ([]api.Network, error) {
			snap := a.replica.Snapshot()
			return a.here(a.reached.Note(view.Networks(snap), snap)), nil
		},
		Realm:     realm.WhenNamed(names, networks.Change),
		Endpoints: a.endpoints,
		Ring: func(context.Context) ([]api.Pool, error) {
			return view.Pools(a.replica.Snapshot(), a.member.CIDRs()...), nil
		},
		Flows:        a.plane.Flows,
		Doctor:       a.doctor,
		Ping:         pings.Ping,
		JoinCommand:  a.joinCommand,
		Leave:        a.leave,
		Join:         a.join,
		Forget:       a.member.Forgetter.Forget,
		Services:     services.List,
		NewService:   realm.WhenNamed(names, services.Create),
		DropService:  services.Remove,
		Expose:       realm.WhenNamed(names, services.Expose),
		Clients:      clients.List,
		NewClient:    realm.WhenNamed(names, clients.Add),
		DropClient:   clients.Remove,
		Egresses:     egresses.List,
		NewEgress:    realm.WhenNamed(names, egresses.Create),
		SetEgress:    realm.WhenNamed(names, egresses.Set),
		DropEgress:   egresses.Remove,
		BGP:          a.announcer.Show,
		Keys:         a.member.Keys.List,
		Backup:       a.member.Backup,
		ChangeKeys:   keys{a.member.Keys, a.secure}.change,
		FastPath:     a.plane.SwitchFastPath,
		Policies:     counted.List,
		Apply:        realm.WhenNamed(names, policies.Apply),
		Signing:      policies.Signing,
		ApplySigned:  realm.WhenNamed(names, policies.ApplySigned),
		Try:          realm.WhenNamed(names, policies.Try),
		Allow:        realm.WhenNamed(names, policies.Allow),
		Learn:        realm.WhenNamed(names, policies.Learn),
		RuleCounts:   a.ruleCounts.Counts,
		PolicyLog:    a.audit.Since,
		DeletePolicy: policies.Delete,
		Explain:      counted.Explain,
		Trace:        a.traces.Trace,
		Lead:         a.traces.Lead,
		Capture:      a.captures.Capture,
		Mirrors:      a.mirrors.List,
		StartMirror:  a.mirrors.Start,
		StopMirror:   a.mirrors.Stop,
		Limit:        realm.WhenNamed(names, limits.Limit),
		Traffic:      a.traffic.Traffic,
		Metrics:      a.exporter.Handler(),
	}
}

// nodes are all hosts.
func (a *Agent) nodes() []api.Node { return a.member.Nodes(a.replica.Snapshot()) }

// keys are those of all hosts.
type keys struct {
	gossip    *membership.Keys
	wireguard *secure.Keeper // nil: this host encrypts nothing
}

// change changes those of gossip or of WireGuard.
func (k keys) change(ctx context.Context, r api.KeysRequest) (api.Done, error) {
	if r.Verb == api.KeysWireGuard {
		return k.wireguard.Change(ctx)
	}
	return k.gossip.Change(ctx, r)
}

// joinListLength is how many hosts a join command names: enough that one is there.
const joinListLength = 5

// joinCommand names this host first, then others that are alive.
func (a *Agent) joinCommand(ctx context.Context) (api.JoinCommand, error) {
	snap := a.replica.Snapshot()
	join := []string{hostAt(a.gossip.Addr(), a.cfg.Port)}
	for _, id := range a.gossip.Alive() {
		if n, ok := cluster.Get[cluster.Node](snap, id); ok && len(join) < joinListLength {
			join = append(join, hostAt(n.Gossip, a.cfg.Port))
		}
	}
	return a.installed.JoinCommand(ctx, join, gossip.FormatKey(a.gossip.ListKeys()[0]))
}

// hostAt leaves the default port out.
func hostAt(at netip.AddrPort, port uint16) string {
	if at.Port() == port {
		return at.Addr().String()
	}
	return at.String()
}

// endpoints answers GET /v1/endpoints. Of published ports a host knows its own.
func (a *Agent) endpoints(context.Context) ([]api.Endpoint, error) {
	snap := a.replica.Snapshot()
	list := view.Endpoints(snap)
	published := publishedBy(a.driver)
	for i, e := range list {
		where, _ := cluster.Get[cluster.Endpoint](snap, e.ID)
		list[i].Here = where.Host == a.self()
		slices.SortFunc(published[e.ID], func(a, b ports.Binding) int {
			return cmp.Or(cmp.Compare(a.To.Port(), b.To.Port()), a.Compare(b))
		})
		for _, b := range published[e.ID] {
			list[i].Ports = append(list[i].Ports, api.Port{Proto: b.Proto.String(), Host: b.Host, Container: b.To.Port(), More: b.More})
		}
	}
	return list, nil
}

// here marks the networks that this host's Docker has, as the cluster does.
func (a *Agent) here(list []api.Network) []api.Network {
	for i, n := range list {
		list[i].Encryption = plane.EncryptionOf(a.plane, n.Encrypted)
	}
	if a.driver == nil {
		return list
	}
	here := a.driver.Here()
	for i, n := range list {
		list[i].Here = here[n.Name]
	}
	return list
}
