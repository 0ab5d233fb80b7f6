package agent

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/bgp/announce"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/diagnose/probe"
	"github.com/grapevine-net/grapevine/diagnose/watch"
	"github.com/grapevine-net/grapevine/dns"
	"github.com/grapevine-net/grapevine/driver"
	"github.com/grapevine-net/grapevine/driver/exposed"
	"github.com/grapevine-net/grapevine/driver/ports"
	"github.com/grapevine-net/grapevine/gossip"
	"github.com/grapevine-net/grapevine/host/capability"
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
	a.swarm.Docker = a.docker
	a.installed.Offer()
	if a.underlay, err = watch.WaitForUnderlay(ctx, a.cfg); err != nil {
		return err
	}
	if err := plane.CanWrap(a.cfg, a.underlay.Addr); err != nil {
		return err
	}
	if a.secure, a.cannotEncrypt, err = secure.Open(a.secureConfig(), plane.CannotEncrypt(a.cfg, a.underlay), func() ([32]byte, error) { return identity.LoadWireGuard(a.cfg.State) }); err != nil {
		return err
	}
	if a.ike, err = a.openIKE(); err != nil {
		return err
	}
	a.reached = a.newReached()
	if err := a.reached.Open(); err != nil {
		return err
	}
	if err := a.openMember(); err != nil {
		return err
	}
	a.naming = newNaming(a.place)
	a.announcer = a.newAnnouncer()
	a.egress = a.newEgress()
	a.exposes = a.newExposes()
	if err := a.openPlane(ctx, datapath, a.naming.open(gate{a.rooms})); err != nil {
		return err
	}
	a.clients = a.newClients()
	a.groups = a.newGroups()
	a.openWatches()
	if a.cfg.Edge() {
		a.openEdge()
		return nil
	}
	return a.openDriver()
}

// close lets go of what open took, in the reverse order.
func (a *Agent) close() {
	err := errors.Join(a.plane.Close(), a.member.Close())
	a.prober.Close()
	if err != nil {
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
	a.secure.Follow(a.replica)
	a.ike.Follow(a.replica)
	a.plane, err = plane.New(plane.Config{
		Settings: a.cfg, Switch: chosen, Self: a.self(), Underlay: a.underlay, Secure: a.secure, Exchanges: a.ike.State, Cannot: a.cannotEncrypt, Source: a.replica, Reach: a.reached, State: a.db, Log: log,
		Names:  plane.Names{Ports: []uint16{dns.DefaultPort}, Rules: rules, Hear: a.naming.resolver.Hear},
		Egress: a.egress, Heeds: exposed.Heed(a.cfg).Heeds, Tell: plane.TellBare(a.replica, a.self()), Call: a.gossip.Call, Unheard: a.former.Unheard,
	})
	if err != nil {
		return err
	}
	a.gossip.Handle(plane.MethodTaken, plane.Neighbours{Plane: a.plane}.Taken)
	a.openFormer()
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

// membership is what is known before the state directory is looked at.
func (a *Agent) membership() membership.Config {
	return membership.Config{Config: a.cfg, Version: a.version, Log: a.log, Started: a.started, Own: link.Addresses, Carry: carryNetworks}
}

// newReached makes what follows what this host reaches by itself.
func (a *Agent) newReached() *follow.Follower {
	return follow.New(follow.Config{
		Self: a.self(), CIDR4: a.cfg.CIDR4, Underlay: a.underlay.Interface, Started: a.started,
		Snapshot: a.snapshot, Watch: func() <-chan struct{} { return a.replica.Watch() },
		CIDRs: a.member.CIDRs, Proven: a.member.Quarantine.WaitProven, Describe: a.member.Joiner.DescribeAgain, Engine: a.docker.Settings, Look: func() { a.driver.Look() },
		Log: a.log,
	})
}

// openMember opens what makes this host part of a cluster.
func (a *Agent) openMember() error {
	a.prober = probe.New(probe.Config{Peers: a.place, Self: string(a.self()), Find: findHost(a.snapshot), Device: gateway.Port})
	err := a.member.Open(membership.Host{
		Addr: a.underlay.Addr, Describe: a.node, Reach: func() ipam.Reach { return a.reached.Now() }, Own: func() []netip.Addr { return a.reached.Own() },
		Beside: a.beside, Former: heirs{a.place},
		Gossip: func(c *gossip.Config) { c.Datagram, c.Pulse, c.Awake = a.prober.Datagram, pulse.Wait, awake },
	})
	a.db, a.replica, a.gossip, a.alloc = a.member.DB(), a.member.Replica(), a.member.Gossip(), a.member.Allocator()
	if err != nil {
		return err
	}
	a.desks.open()
	for _, methods := range append(a.desks.methods(), a.prober.Methods()) {
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
func (a *Agent) newAnnouncer() *announce.Announcer {
	return announce.New(announce.Config{
		Self: a.self(), Settings: a.cfg, Underlay: a.underlay.Addr, Source: a.replica, Own: link.Addresses,
		Serves: func(egress string) bool { return a.egress.Serves(egress) }, Log: a.log.With("room", "bgp"),
	})
}

// newExposes makes what leads ports of all hosts to containers, by this one.
func (a *Agent) newExposes() *exposed.Room {
	return exposed.New(exposed.Config{
		Self: a.self(), Settings: a.cfg, Gateway: gateway.Port, Source: a.replica, Stand: a.naming.hosts.Of, State: a.db, Docker: a.docker,
		Published: func() map[string][]ports.Binding { return a.driver.Published() }, Off: a.naming.unserved != "", Log: a.log.With("room", "expose"),
	})
}

// node is what this host says of itself.
func (a *Agent) node(snap *cluster.Snapshot) cluster.Node {
	n := a.plane.Node(snap)
	n.Reaches, n.Labels, n.Hellos, n.HelloRun, n.IPsec = a.reached.Reaches(snap), a.reached.Labels(snap), watch.HellosVersion, a.helloRun, a.ike.Public()
	return n
}

// secureConfig is for what encrypts; nothing is made on the host yet.
func (a *Agent) secureConfig() secure.Config {
	return secure.Config{
		Self: a.self(), Port: a.cfg.WireGuardPort, Second: a.cfg.SecondWireGuardPort(), Keys: identity.WireGuardKeys{Dir: a.cfg.State},
		Tell: func() error { return a.member.Joiner.DescribeAgain() }, All: a.cfg.Encrypts(), Underlay: a.underlay, Run: a.cfg.Run, Log: a.log.With("room", "secure"),
	}
}

// openIKE makes what tells this host's strongSwan of the others, if it is to be told.
func (a *Agent) openIKE() (*ike.Keeper, error) {
	return ike.Open(ike.Config{Self: a.self(), Here: plane.Here(a.cfg, a.underlay), Port: a.cfg.VXLANPort, Note: identity.IPsecTold{Dir: a.cfg.State}, Log: a.log.With("room", "ike")},
		a.cfg.ByStrongSwan(), func() (*ecdsa.PrivateKey, error) { return identity.LoadIPsec(a.cfg.State) })
}

// wire is what VXLAN goes by: the underlay, or what encrypts.
func (a *Agent) wire() link.Underlay { return plane.Wire(a.underlay, a.secure) }

// carryNetworks takes along the names of the networks that Docker here has: Docker's first calls
// are for those, and tell IDs.
func carryNetworks(old *store.DB) (func(*store.DB) error, error) {
	had, err := driver.CarriedNetworks(old)
	return func(fresh *store.DB) error { return had.Save(fresh) }, err
}
