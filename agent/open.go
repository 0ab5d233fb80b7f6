package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/diagnose/probe"
	"github.com/grapevine-net/grapevine/gossip"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/ipam"
	"github.com/grapevine-net/grapevine/membership/backup"
	"github.com/grapevine-net/grapevine/membership/identity"
	"github.com/grapevine-net/grapevine/overlay/gateway"
	"github.com/grapevine-net/grapevine/replica"
)

const stateFile = backup.StateFile

// open makes the parts of the agent, from the disk up. After an error, close
// undoes what has been done.
func (a *Agent) open(ctx context.Context) (err error) {
	datapath, err := chooseDatapath(ctx, a.cfg.Datapath)
	if err != nil {
		return err
	}
	if err := a.mayRun(datapath); err != nil {
		return err
	}
	if a.cfg.Name == "" {
		if a.cfg.Name, err = os.Hostname(); err != nil {
			return fmt.Errorf("find this host's name: %w; set GRAPEVINE_NAME", err)
		}
	}
	if err := a.identify(); err != nil {
		return err
	}
	a.docker = docker.New(a.cfg.Docker)
	if err := a.openManaged(); err != nil {
		return err
	}
	if a.underlay, err = waitForUnderlay(ctx, a.cfg); err != nil {
		return err
	}
	if a.db, err = store.Open(filepath.Join(a.cfg.State, stateFile)); err != nil {
		return err
	}
	if a.replica, err = replica.Open(a.db, a.self(), replica.Signed(a.id.Private()), replica.Judged(a.mayForget, a.promisedAway), replica.Gated(a.gate)); err != nil {
		return err
	}
	if err := a.behind(); err != nil {
		return err
	}
	if err := a.resumeSeed(); err != nil {
		return err
	}
	if err := a.seedAlone(); err != nil {
		return err
	}
	if err := a.openGossip(); err != nil {
		return err
	}
	if err := a.openReach(); err != nil {
		return err
	}
	if err := a.openIPAM(); err != nil {
		return err
	}
	if err := a.openSwitch(ctx, datapath, a.openNames()); err != nil {
		return err
	}
	return a.openDriver()
}

// close lets go of what open took, in the reverse order.
func (a *Agent) close() {
	var errs []error
	if a.vswitch != nil {
		errs = append(errs, a.vswitch.close())
	}
	if a.gossip != nil {
		errs = append(errs, a.gossip.Close())
		a.prober.Close()
	}
	if a.db != nil {
		errs = append(errs, a.db.Close())
	}
	if err := errors.Join(errs...); err != nil {
		a.log.Warn("stop the agent", "err", err)
	}
	if a.reached != nil {
		a.reached.Close()
	}
	if a.release != nil {
		a.release()
	}
}

// identify finds out who this host is and what it is to do about the cluster.
func (a *Agent) identify() (err error) {
	if a.release, err = store.Hold(a.cfg.State, store.LockWait); err != nil {
		return err
	}
	if err := a.startAnew(); err != nil {
		return err
	}
	if err := whole(a.cfg.State); err != nil {
		return err
	}
	if a.id, err = identity.Load(a.cfg.State); err != nil {
		return err
	}
	own, err := ownAddresses()
	if err != nil {
		return err
	}
	a.unproven.Store(a.id.Restored)
	// Behind NAT this host knows itself by the address outside, as the others do.
	own = append(own, a.cfg.Advertise.Addr())
	a.role = identity.Decide(a.id, own, a.cfg.Join)
	keys, err := identity.Keys(a.role, a.cfg.Keys, a.cfg.KeyFile, config.ParseKeys)
	if err != nil {
		return err
	}
	from := a.cfg.KeyFile
	if len(a.cfg.Keys) > 0 {
		from = "GRAPEVINE_KEY"
	}
	if len(a.cfg.Keys) > 0 && a.cfg.KeyFile == filepath.Join(a.cfg.State, "key") {
		if a.keyKept, err = identity.KeepKeys(a.cfg.Keys, a.cfg.KeyFile, config.ParseKeys); err != nil {
			a.log.Warn("the gossip key stays in the settings alone", "error", err)
		}
	}
	if err := a.id.KnowKeys(a.cfg.State, keys, from); err != nil {
		return err
	}
	if a.ring.Keyring, err = identity.LoadKeyring(a.cfg.State, keys); err != nil {
		return err
	}
	a.log.Info("this host", "node", a.id.Node, "name", a.cfg.Name, "role", a.role, "cluster", a.id.Cluster)
	return nil
}

// behind treats a state file that may lack the last thing that was written as one from a
// backup: the other hosts know what this one has said. A host that never had others asks
// for some seconds all the same.
func (a *Agent) behind() error {
	if !a.db.Behind() || a.id.Cluster == "" {
		return nil
	}
	next := a.id
	next.Restored, next.Alone = true, !a.hadPeers()
	a.log.Warn("a page of the state file is damaged, and the last thing that was written may be missing: this host hands out nothing until the others say that it is not", "file", a.db.Path())
	if err := next.Save(a.cfg.State); err != nil { // before the next Update repairs the page
		return err
	}
	a.id = next
	a.unproven.Store(true)
	return nil
}

// whole refuses a state directory that has lost one of its two files: to go on
// without would begin anew under an ID that owns something, or with the memory of
// another host.
func whole(dir string) error {
	const advice = "restore both from a backup (`grapevine restore`), else `grapevine forget` this host on another one, and remove %s to join as a new host"
	st, err := os.Stat(filepath.Join(dir, stateFile))
	there := err == nil && st.Size() > 0
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("look for the state file: %w; the agent must run as root", err)
	}
	if _, err := os.Stat(filepath.Join(dir, identity.File)); errors.Is(err, os.ErrNotExist) {
		if there {
			return fmt.Errorf("%s is there, but %s beside it is gone: "+advice, filepath.Join(dir, stateFile), identity.File, dir)
		}
		return nil
	}
	id, err := identity.Load(dir)
	if err != nil {
		return err
	}
	if id.Cluster != "" && !there {
		return fmt.Errorf("state file %s is gone, but %s beside it says that this host is part of a cluster: "+advice, filepath.Join(dir, stateFile), identity.File, dir)
	}
	return nil
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

var peers = store.NewBucket[[]gossip.Peer]("agent/peers")

const peersKey = "known"

func knownPeers(db *store.DB) (known []gossip.Peer, err error) {
	err = db.View(func(tx *store.Tx) (err error) {
		known, _, err = peers.Get(tx, peersKey)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the addresses of the other hosts: %w", err)
	}
	return known, nil
}

func (a *Agent) openGossip() (err error) {
	known, err := knownPeers(a.db)
	if err != nil {
		return err
	}
	prober := probe.New(probe.Config{Peers: caller{a}, Self: a.id.Node, Find: a.findHost, Device: gateway.Port})
	a.gossip, err = gossip.New(gossip.Config{
		Node: a.id.Node, Name: a.cfg.Name, ClusterID: a.id.Cluster, Keys: a.ring.Keys,
		Bind:      netip.AddrPortFrom(a.bindAddr(), a.cfg.Port),
		Advertise: netip.AddrPortFrom(a.underlay.Addr, cmp.Or(a.cfg.Advertise.Port(), a.cfg.Port)),
		Join:      joinList(a.cfg.Join), Known: known, SaveKnown: a.savePeers,
		Datagram: prober.Datagram,
		Sign:     func(b []byte) []byte { return cluster.Sign(a.id.Private(), b) },
		Signed:   func(node string, b, sig []byte) bool { return cluster.Signed(cluster.NodeID(node), b, sig) },
		Left:     func(node string) bool { return a.replica.Snapshot().Left(cluster.NodeID(node)) },
		Log:      a.log.With("room", "gossip"),
	}, a.replica)
	if err != nil {
		return err
	}
	was, described := cluster.Get[cluster.Node](a.replica.Snapshot(), a.id.Node)
	a.elsewhere.Store(described && was.Gossip != a.gossip.Addr())
	a.prober = prober
	for method, handler := range prober.Methods() {
		a.gossip.Handle(method, handler)
	}
	return nil
}

// bindAddr is where gossip listens: all addresses of the underlay's family if
// nothing is configured.
func (a *Agent) bindAddr() netip.Addr {
	switch {
	case a.cfg.Bind.IsValid():
		return a.cfg.Bind
	case a.underlay.Addr.Is4():
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

func joinList(join []netip.AddrPort) (list []string) {
	for _, at := range join {
		list = append(list, at.String())
	}
	return list
}

func putPeers(db *store.DB, known []gossip.Peer) error {
	return db.Update(func(tx *store.Tx) error { return peers.Put(tx, peersKey, known) })
}

func (a *Agent) savePeers(known []gossip.Peer) {
	err := putPeers(a.db, known)
	if err != nil {
		a.log.Warn("remember the hosts of the cluster", "err", err)
	}
}

func (a *Agent) openIPAM() (err error) {
	a.alloc, err = ipam.New(ipam.Config{
		Self: a.self(), CIDRs: a.cidrs, Bits: a.cfg.PrefixLen, HostBits: a.cfg.HostSubnetLength,
		Sign:    func(b []byte) []byte { return cluster.Sign(a.id.Private(), b) },
		Present: a.present, Signed: cluster.Signed,
		Reach: a.reachNow, Halt: a.halt, Now: time.Now, Age: a.db.Age, Log: a.log.With("room", "ipam"),
	}, a.replica, a.gossip, ipam.StoreDisk{DB: a.db})
	if err != nil {
		return err
	}
	for method, handler := range a.alloc.Methods() {
		a.gossip.Handle(method, handler)
	}
	a.gossip.Handle(methodFarewell, a.hearFarewell)
	a.gossip.Handle(methodKeys, a.serveKeys)
	a.gossip.Handle(methodRecall, a.recall)
	a.gossip.Handle(methodForgotten, a.serveForgotten)
	return nil
}

func (a *Agent) self() cluster.NodeID { return cluster.NodeID(a.id.Node) }

// cidrs are the prefixes that networks are cut from. Where no setting says IPv6's, it
// is the cluster's own, which a host knows when it has found its cluster.
func (a *Agent) cidrs() []netip.Prefix {
	six := a.cfg.CIDR6
	if !six.IsValid() {
		six = identity.ULA(a.gossip.ClusterID())
	}
	if six.IsValid() {
		return []netip.Prefix{a.cfg.CIDR4, six}
	}
	return []netip.Prefix{a.cfg.CIDR4}
}
