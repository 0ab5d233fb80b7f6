package agent

import (
	"context"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/view"
	"github.com/grapevine-net/grapevine/diagnose/ping"
	"github.com/grapevine-net/grapevine/driver/limit"
	"github.com/grapevine-net/grapevine/gossip"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/membership"
	"github.com/grapevine-net/grapevine/overlay/secure"
	"github.com/grapevine-net/grapevine/realm"
)

func (a *Agent) handlers() api.Handlers {
	d := &a.desks
	services, policies, clients, networks, egresses, counted, lists := a.naming.desk(a.alloc), d.policies(), d.clients(), d.realms(), d.egresses(), d.counted(), d.listed()
	pings := ping.Desk{Nodes: a.nodes, Prober: a.prober, InnerMTU: a.plane.InnerMTU, Encap: a.cfg.Encapsulation(), Lost: a.hellos.Inside.Lost}
	limits := limit.Desk{Self: a.self(), Name: a.cfg.Name, Replica: a.replica, Set: a.driver.SetLimits, CanLag: link.CanLag}
	names := realm.NewNames(a.replica)
	return api.Handlers{
		Status:    a.status,
		Nodes:     func(context.Context) ([]api.Node, error) { return a.hellos.Paths(a.nodes()), nil },
		Networks:  func(context.Context) ([]api.Network, error) { return lists.Networks(), nil },
		Realm:     realm.WhenNamed(names, networks.Change),
		Endpoints: func(context.Context) ([]api.Endpoint, error) { return lists.Endpoints(), nil },
		Ring: func(context.Context) ([]api.Pool, error) {
			return view.Pools(a.replica.Snapshot(), a.member.CIDRs()...), nil
		},
		Flows:        a.plane.Flows,
		Doctor:       a.doctor,
		Ping:         pings.Ping,
		JoinCommand:  a.joinCommand,
		Leave:        a.leave,
		Join:         func(context.Context) (api.Done, error) { return a.member.Joiner.Joined(), nil },
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
		RuleCounts:   d.ruleCounts.Counts,
		PolicyLog:    d.audit.Since,
		DeletePolicy: policies.Delete,
		Explain:      counted.Explain,
		Trace:        d.traces.Trace,
		Lead:         d.traces.Lead,
		Capture:      d.captures.Capture,
		Mirrors:      d.mirrors.List,
		StartMirror:  d.mirrors.Start,
		StopMirror:   d.mirrors.Stop,
		Limit:        realm.WhenNamed(names, limits.Limit),
		Traffic:      d.traffic.Traffic,
		Metrics:      d.exporter.Handler(),
	}
}

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

// joinCommand adds a host to this one's cluster.
func (a *Agent) joinCommand(ctx context.Context) (api.JoinCommand, error) {
	asPlugin, asService, err := a.installed.JoinCommands(ctx, a.member.Joiner.Hosts(), gossip.FormatKey(a.gossip.ListKeys()[0]))
	return api.JoinCommand{Plugin: asPlugin, Service: asService}, err
}
