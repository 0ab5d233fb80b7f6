package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/bgp/announce"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/diagnose/probe"
	"github.com/grapevine-net/grapevine/diagnose/watch"
	"github.com/grapevine-net/grapevine/dns"
	"github.com/grapevine-net/grapevine/driver"
	"github.com/grapevine-net/grapevine/driver/exposed"
	"github.com/grapevine-net/grapevine/driver/ports"
	"github.com/grapevine-net/grapevine/gossip"
	"github.com/grapevine-net/grapevine/host/capability"
	"github.com/grapevine-net/grapevine/host/installed"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/nat"
	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/ipam"
	"github.com/grapevine-net/grapevine/membership"
	"github.com/grapevine-net/grapevine/membership/identity"
	"github.com/grapevine-net/grapevine/overlay/gateway"
	"github.com/grapevine-net/grapevine/overlay/ike"
	"github.com/grapevine-net/grapevine/overlay/plane"
	"github.com/grapevine-net/grapevine/overlay/secure"
	"github.com/grapevine-net/grapevine/pulse"
	"github.com/grapevine-net/grapevine/reach/follow"
	"github.com/grapevine-net/grapevine/replica"
)

// open makes the parts of the agent, from the disk up. After an error, close
// undoes what has been done.
func (a *Agent) open(ctx context.Context) (err error) {
	datapath, err := plane.ChooseDatapath(ctx, a.cfg.Datapath)
	if err != nil {
		return err
	}
	if err := mayRun(datapath, a.log); err != nil {
		return err
	}
	if a.cfg.Name == "" {
		if a.cfg.Name, err = os.Hostname(); err != nil {
			return fmt.Errorf("find this host's name: %w; set GRAPEVINE_NAME", err)
		}
	}
	a.member, err = membership.Identify(a.membership())
	if err != nil {
		return err
	}
	a.docker = engineOf(a.cfg)
	a.swarm.Docker = a.docker
	if a.installed, err = installed.Find(a.cfg, a.docker, a.log); err != nil {
		return err
	}
	a.installed.Offer()
	if a.underlay, err = watch.WaitForUnderlay(ctx, a.cfg); err != nil {
		return err
	}
	if err := plane.CanWrap(a.cfg, a.underlay.Addr); err != nil {
		return err
	}
	if err := a.openSecure(); err != nil {
		return err
	}
	if err := openIKE(a); err != nil {
		return err
	}
	a.reached = a.newReached()
	if err := a.reached.Open(); err != nil {
		return err
	}
	if err := a.openMember(); err != nil {
		return err
	}
	a.naming = newNaming(a)
	a.announcer = newAnnouncer(a)
	a.egress = leaving{a}.keeper()
	a.exposes = newExposes(a)
	if err := a.openPlane(ctx, datapath, a.naming.open(gate{a})); err != nil {
		return err
	}
	a.clients = newClientele(a)
	a.groups = newGroups(a)
	a.openWatches()
	if a.cfg.Edge() {
		openEdge(a)
		return nil
	}
	return a.openDriver()
}

// close lets go of what open took, in the reverse order.
func (a *Agent) close() {
	var errs []error
	if a.plane != nil {
		errs = append(errs, a.plane.Close())
	}
	if a.member != nil {
		errs = append(errs, a.member.Close())
	}
	if a.prober != nil {
		a.prober.Close()
	}
	if err := errors.Join(errs...); err != nil {
		a.log.Warn("stop the agent", "err", err)
	}
	a.reached.Close()
}

// openPlane makes the data plane, whose gateway has the given rules as well.
func (a *Agent) openPlane(ctx context.Context, datapath ovs.Datapath, rules []nat.Rule) error {
	log := a.log.With("room", "overlay")
	chosen, err := plane.Choose(ctx, a.cfg, datapath, log)
	if err != nil {
		return err
	}
	if a.secure != nil {
		a.secure.Follow(a.replica)
	}
	if a.ike != nil {
		a.ike.Follow(a.replica)
	}
	a.plane, err = plane.New(plane.Config{
		Settings: a.cfg, Switch: chosen, Self: a.self(), Underlay: a.underlay, Secure: a.secure, Exchanges: a.ike.State, Cannot: a.cannotEncrypt, Source: a.replica, Reach: a.reached, State: a.db, Log: log,
		Names:  plane.Names{Ports: []uint16{dns.DefaultPort}, Rules: rules, Hear: a.naming.resolver.Hear},
		Egress: a.egress, Exposed: a.exposes.Holder, Heeds: exposed.Heed(a.cfg).Heeds, Tell: tellBare(a.replica, a.self()), Call: a.gossip.Call, Unheard: a.former.Unheard,
	})
	if err != nil {
		return err
	}
	a.gossip.Handle(plane.MethodTaken, plane.Neighbours{Plane: a.plane}.Taken)
	openFormer(a)
	a.plane.Adopt()
	return nil
}

// mayRun says what is the matter if the agent may not do what it has to: at once, and not by
// whatever fails first.
func mayRun(datapath ovs.Datapath, log *slog.Logger) error {
	set, err := capability.Effective()
	if err != nil {
		return err
	}
	lacking, err := set.Check(datapath == ovs.Userspace)
	for _, c := range lacking {
		log.Warn("the agent lacks a capability, and works without what needs it", "capability", c.Name, "needs", c.Why)
	}
	return err
}

func ownAddresses() ([]netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list this host's addresses: %w", err)
	}
	var own []netip.Addr
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own = append(own, p.Addr().Unmap())
		}
	}
	return own, nil
}

// membership is what is known before the state directory is looked at.
func (a *Agent) membership() membership.Config {
	return membership.Config{Config: a.cfg, Version: a.version, Log: a.log, Started: a.started, Own: ownAddresses, Carry: carryNetworks}
}

// newReached makes what follows what this host reaches by itself.
func (a *Agent) newReached() *follow.Follower {
	return follow.New(follow.Config{
		Self: a.self(), CIDR4: a.cfg.CIDR4, Underlay: a.underlay.Interface, Started: a.started,
		Snapshot: func() *cluster.Snapshot { return a.replica.Snapshot() }, Watch: func() <-chan struct{} { return a.replica.Watch() },
		CIDRs: a.member.CIDRs, Proven: a.member.Quarantine.WaitProven, Describe: a.member.Joiner.DescribeAgain, Engine: settingsOf(a.docker), Look: func() { lookAtDocker(a.driver) },
		Log: a.log,
	})
}

// openMember opens what makes this host part of a cluster.
func (a *Agent) openMember() error {
	a.prober = probe.New(probe.Config{Peers: caller{a}, Self: string(a.self()), Find: findHost(func() *cluster.Snapshot { return a.replica.Snapshot() }), Device: gateway.Port})
	err := a.member.Open(membership.Host{
		Addr: a.underlay.Addr, Describe: a.node, Reach: func() ipam.Reach { return a.reached.Now() }, Own: func() []netip.Addr { return a.reached.Own() },
		Beside: beside(a), Former: heirs{a},
		Gossip: func(c *gossip.Config) { c.Datagram, c.Pulse, c.Awake = a.prober.Datagram, pulse.Wait, awake },
	})
	a.db, a.replica, a.gossip, a.alloc = a.member.DB(), a.member.Replica(), a.member.Gossip(), a.member.Allocator()
	if err != nil {
		return err
	}
	a.openCapture()
	a.openTraffic()
	a.openTrace()
	policing{a}.openCounts()
	policing{a}.openLog()
	for _, methods := range []map[string]func(context.Context, string, []byte) ([]byte, error){a.prober.Methods(), a.captures.Methods(), a.traffic.Methods(), a.traces.Methods(), a.ruleCounts.Methods()} {
		for method, handler := range methods {
			a.gossip.Handle(method, handler)
		}
	}
	return nil
}

// awake is how long the host has been there, the time that it slept included.
func awake() time.Duration {
	var at unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &at) // never fails
	return time.Duration(at.Nano())
}

// newAnnouncer makes what tells routers which addresses are here.
func newAnnouncer(a *Agent) *announce.Announcer {
	return announce.New(announce.Config{
		Self: a.self(), Settings: a.cfg, Underlay: a.underlay.Addr, Source: a.replica, Own: ownAddresses,
		Serves: func(egress string) bool { return a.egress.Serves(egress) }, Log: a.log.With("room", "bgp"),
	})
}

// newExposes makes what leads ports of all hosts to containers, by this one.
func newExposes(a *Agent) *exposed.Room {
	return exposed.New(exposed.Config{
		Self: a.self(), Settings: a.cfg, Gateway: gateway.Port, Source: a.replica, Stand: a.naming.hosts.Of, State: a.db, Docker: a.docker,
		Published: func() map[string][]ports.Binding { return publishedBy(a.driver) }, Off: a.naming.unserved != "", Log: a.log.With("room", "expose"),
	})
}

// node is what this host says of itself.
func (a *Agent) node(snap *cluster.Snapshot) cluster.Node {
	n := cluster.Node{
		VTEP: a.underlay.Addr, VXLANPort: a.cfg.VXLANPort, MTU: a.wire().MTU, Datapath: string(a.plane.Datapath()),
		Enforces: policing{a}.enforces(snap), Reaches: a.reached.Reaches(snap), Hellos: watch.HellosVersion, HelloRun: a.helloRun, Realms: true, Bind: behindNAT(a.cfg, a.underlay.Addr),
	}
	n.KnowsEncrypted, n.Edge, n.Encap = true, a.cfg.Edge(), a.cfg.Encapsulation().Mark()
	n.HoldsIPv6, n.LabelEgress, n.PolicyKeys = true, true, cluster.KeyPrints(cluster.PoliciesOf(snap).Keys())
	n.Labels = a.reached.Labels(snap)
	if a.ike != nil {
		n.IPsec = a.ike.Public()
	}
	n.Exposes = n.Enforces > 0 // both need a switch that tracks connections
	switch {
	case a.secure == nil:
	case a.secure.All(): // whoever does not encrypt has nowhere to send to
		n.VTEP = netip.Addr{}
		n.WireGuard, n.KeyProof, n.WireGuardAt, n.Turn = a.secure.Record(snap)
	default:
		n.NetworksKey, n.KeyProof, n.WireGuardAt, n.Turn = a.secure.Record(snap)
	}
	return n
}

// openSecure reads the key of what encrypts, where anything may have to be; nothing is made on the host yet. A host that
// cannot encrypt has no part in encrypted networks, and does all else.
func (a *Agent) openSecure() error {
	if a.cannotEncrypt = plane.CannotEncrypt(a.cfg, a.underlay); a.cannotEncrypt != nil {
		return nil
	}
	key, err := identity.LoadWireGuard(a.cfg.State)
	switch {
	case err != nil && a.cfg.Encrypts():
		return err
	case err != nil:
		a.cannotEncrypt = err
		return nil
	}
	a.secure = secure.New(secure.Config{
		Self: a.self(), Key: key, Port: a.cfg.WireGuardPort, Second: a.cfg.SecondWireGuardPort(), Keys: identity.WireGuardKeys{Dir: a.cfg.State},
		Tell: func() error { return a.member.Joiner.DescribeAgain() }, All: a.cfg.Encrypts(), Underlay: a.underlay, Run: a.cfg.Run, Log: a.log.With("room", "secure"),
	})
	return nil
}

// openIKE reads the key that this host's strongSwan has, if it is to be told of the others. If it was, and is not to be any more,
// that ends.
func openIKE(a *Agent) error {
	told := identity.IPsecTold{Dir: a.cfg.State}
	if !a.cfg.ByStrongSwan() {
		if gone, err := ike.Purge(context.Background(), told); err != nil || len(gone) > 0 {
			a.log.Info("strongSwan is told of no host any more", "removed", gone, "err", err)
		}
		return nil
	}
	key, err := identity.LoadIPsec(a.cfg.State)
	if err != nil {
		return err
	}
	a.ike, err = ike.New(ike.Config{Self: a.self(), Key: key, Here: plane.Here(a.cfg, a.underlay), Port: a.cfg.VXLANPort, Note: told, Log: a.log.With("room", "ike")})
	return err
}

// wire is what VXLAN goes by: the underlay, or what encrypts.
func (a *Agent) wire() link.Underlay {
	if a.secure.All() {
		return a.secure.Wire()
	}
	return a.underlay
}

// behindNAT is this host's own address if the others know it by another one; else it is invalid.
func behindNAT(cfg config.Config, underlay netip.Addr) netip.Addr {
	own := cfg.Bind.Unmap().WithZone("")
	if own.IsUnspecified() || own == underlay.Unmap() {
		return netip.Addr{}
	}
	return own
}

// carryNetworks takes along the names of the networks that Docker here has: Docker's first calls
// are for those, and tell IDs.
func carryNetworks(old *store.DB) (func(*store.DB) error, error) {
	had, err := driver.CarriedNetworks(old)
	return func(fresh *store.DB) error { return had.Save(fresh) }, err
}

func (a *Agent) self() cluster.NodeID { return a.member.Self() }

// tellBare writes what a host says of packets without headers, or takes it away.
func tellBare(r *replica.Replica, self cluster.NodeID) func(cluster.Body) error {
	return func(b cluster.Body) error {
		_, err := r.Update(func(tx *replica.Tx) error {
			if b == nil {
				tx.Delete(cluster.Bare{Host: self}.Key())
				return nil
			}
			return tx.Put(b)
		})
		return err
	}
}
