// Package membership is a host's life in its cluster. The host begins a cluster or joins one,
// keeps its keys, and leaves. It forgets other hosts and takes over from them. If it was
// forgotten itself it finds out, and joins anew. It hands out nothing while it may be another
// host than it takes itself for (a restored backup, a copy).
//
// Identify says who the host is, Open makes what that rests on (the state file, the replica,
// gossip, the allocator), and Tasks are what runs then.
package membership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/view"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/gossip"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/ipam"
	"github.com/grapevine-net/grapevine/membership/backup"
	"github.com/grapevine-net/grapevine/membership/identity"
	"github.com/grapevine-net/grapevine/replica"
)

const stateFile = backup.StateFile

// Config is what membership is told at once.
type Config struct {
	config.Config // Name is set
	Version       string
	Log           *slog.Logger
	Started       time.Time
	Own           func() ([]netip.Addr, error) // this host's addresses
	// Carry reads what a host that was forgotten and is a new one takes along of its old
	// state file, and returns what writes that into the new one.
	Carry func(old *store.DB) (save func(fresh *store.DB) error, err error)
}

// Host is what membership is told when this host knows how it reaches the others.
type Host struct {
	Addr     netip.Addr                           // on the underlay
	Gossip   func(*gossip.Config)                 // how gossip listens, beyond the settings
	Describe func(*cluster.Snapshot) cluster.Node // this host's record; its ID, name and address are filled in
	Reach    func() ipam.Reach                    // what this host reaches by itself
	Own      func() []netip.Addr                  // all its own addresses, sorted, as many as it may tell; nil: not known
	// Beside opens what else is written with the replica, in its state file; nil: nothing is.
	Beside func(*store.DB) ([]replica.Option, error)
	Former ipam.Former // who had addresses before; nil: nobody knows
}

// host is what all parts of membership work with.
type host struct {
	cfg     Config
	log     *slog.Logger
	id      identity.Identity
	role    identity.Role
	to      Host
	db      *store.DB
	replica *replica.Replica
	gossip  *gossip.Gossip
	alloc   *ipam.Allocator
	leaving atomic.Bool // by its own will: that its records go is no reason to join anew
}

// Member is this host as a part of its cluster. What it does there its parts do, each with a state of its own.
type Member struct {
	*host
	Keys       *Keys
	Joiner     *Joiner
	Leaver     *Leaver
	Forgetter  *Forgetter
	Quarantine *Quarantine
	Rejoiner   *Rejoiner
	Disk       *Disk

	release func() // lets go of the state directory
	keyKept bool   // the gossip key of the settings is in the key file, too
}

func newMember(cfg Config) *Member {
	h := &host{cfg: cfg, log: cfg.Log}
	q := &Quarantine{host: h}
	return &Member{
		host: h, Keys: &Keys{host: h}, Joiner: &Joiner{host: h, quarantine: q}, Leaver: &Leaver{host: h},
		Forgetter: &Forgetter{host: h, quarantine: q}, Quarantine: q, Rejoiner: &Rejoiner{host: h}, Disk: &Disk{host: h},
	}
}

// Identify takes the state directory, and finds out who this host is and what it is to do
// about the cluster. Close lets go of it, after an error as well.
func Identify(cfg Config) (*Member, error) {
	m := newMember(cfg)
	return m, m.identify()
}

func (m *Member) identify() (err error) {
	if m.release, err = store.Lock(m.cfg.State, store.LockWait); err != nil {
		return err
	}
	if err := m.startAnew(); err != nil {
		return err
	}
	if err := whole(m.cfg.State); err != nil {
		return err
	}
	if m.id, err = identity.Load(m.cfg.State); err != nil {
		return err
	}
	own, err := m.cfg.Own()
	if err != nil {
		return err
	}
	m.Quarantine.unproven.Store(m.id.Restored)
	// Behind NAT this host knows itself by the address outside, as the others do.
	m.role = identity.Decide(m.id, append(own, m.cfg.Advertise.Addr()), m.cfg.Join)
	if m.role == identity.Seed && m.cfg.Edge() {
		return errors.New("this host has no Docker (GRAPEVINE_DOCKER=none), and so begins no cluster: let GRAPEVINE_JOIN begin with the address of a host that has it")
	}
	keys, err := identity.Keys(m.role, m.cfg.Keys, m.cfg.KeyFile, config.ParseKeys)
	if err != nil {
		return err
	}
	from := m.cfg.KeyFile
	if len(m.cfg.Keys) > 0 {
		from = "GRAPEVINE_KEY"
	}
	if len(m.cfg.Keys) > 0 && m.cfg.KeyFile == filepath.Join(m.cfg.State, "key") {
		if m.keyKept, err = identity.KeepKeys(m.cfg.Keys, m.cfg.KeyFile, config.ParseKeys); err != nil {
			m.log.Warn("the gossip key stays in the settings alone", "error", err)
		}
	}
	if err := m.id.KnowKeys(m.cfg.State, keys, from); err != nil {
		return err
	}
	if m.Keys.Keyring, err = identity.LoadKeyring(m.cfg.State, keys); err != nil {
		return err
	}
	m.log.Info("this host", "node", m.id.Node, "name", m.cfg.Name, "role", m.role, "cluster", m.id.Cluster)
	return nil
}

// Open makes the parts, from the disk up. A host that is told to be alone begins its cluster.
func (m *Member) Open(to Host) (err error) {
	m.to = to
	if m.db, err = store.Open(filepath.Join(m.cfg.State, stateFile)); err != nil {
		return err
	}
	var options []replica.Option
	if to.Beside != nil {
		if options, err = to.Beside(m.db); err != nil {
			return err
		}
	}
	options = append(options, replica.Signed(m.id.Private()), replica.Judged(m.Forgetter.mayForget, m.Forgetter.promisedAway), replica.Gated(m.Quarantine.gate), replica.GoingBy(policyKeys(m.cfg.Config)))
	if m.replica, err = replica.Open(m.db, m.Self(), options...); err != nil {
		return err
	}
	for _, step := range []func() error{m.behind, m.Joiner.resumeSeed, m.Joiner.seedAlone, m.openGossip, m.openIPAM} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func policyKeys(c config.Config) (keys []cluster.PublicKey) {
	for _, k := range c.PolicyKeys {
		keys = append(keys, k)
	}
	return keys
}

// Close lets go of what Identify and Open took, in the reverse order.
func (m *Member) Close() error {
	if m == nil {
		return nil
	}
	var errs []error
	if m.gossip != nil {
		errs = append(errs, m.gossip.Close())
	}
	if m.db != nil {
		errs = append(errs, m.db.Close())
	}
	if m.release != nil {
		m.release()
	}
	return errors.Join(errs...)
}

// Tasks are what membership does while the agent runs, by name. All but what ends a host's
// identity end with their context.
func (m *Member) Tasks() map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"gossip":     m.gossip.Run,
		"replica":    m.replica.Run,
		"broadcast":  m.broadcast,
		"keys":       m.Keys.catchUpKeys,
		"restored":   m.Quarantine.proveRestored,
		"moved":      m.Quarantine.proveMoved,
		"forgotten":  m.Rejoiner.watchForgotten,
		"reap":       m.Forgetter.reap,
		"membership": m.Joiner.join,
		"disk":       m.Disk.watch,
		"ipam":       m.alloc.Run,
		"autoforget": m.Forgetter.autoForget,
	}
}

// broadcast hands this host's writes to gossip.
func (m *Member) broadcast(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case message := <-m.replica.Outbox():
			m.gossip.Broadcast(message)
		}
	}
}

// The parts, which Open makes.

func (m *Member) DB() *store.DB              { return m.db }
func (m *Member) Replica() *replica.Replica  { return m.replica }
func (m *Member) Gossip() *gossip.Gossip     { return m.gossip }
func (m *Member) Allocator() *ipam.Allocator { return m.alloc }

// KeyKept says that the gossip key of the settings is in the key file, too.
func (m *Member) KeyKept() bool { return m.keyKept }

// Renewed says that this host was another one before, which the cluster has forgotten.
func (m *Member) Renewed() bool { return m.id.Was != "" }

// Self is this host's ID.
func (m *host) Self() cluster.NodeID { return cluster.NodeID(m.id.Node) }

// Nodes are all hosts of the cluster, as gossip has them.
func (m *host) Nodes(snap *cluster.Snapshot) []api.Node {
	return view.Nodes(snap, m.Self(), func(id cluster.NodeID) (alive, doubtful bool) {
		member, _ := m.gossip.Member(string(id))
		return member.State == gossip.Alive, member.Doubtful
	})
}

// Answers reports whether another host is alive, as far as gossip knows.
func (m *host) Answers(id cluster.NodeID) bool {
	member, _ := m.gossip.Member(string(id))
	return member.State == gossip.Alive
}

// CIDRs are the prefixes that networks are cut from. Where no setting says IPv6's, it
// is the cluster's own, which a host knows when it has found its cluster.
func (m *host) CIDRs() []netip.Prefix {
	six := m.cfg.CIDR6
	if !six.IsValid() {
		six = identity.ULA(m.gossip.ClusterID())
	}
	if six.IsValid() {
		return []netip.Prefix{m.cfg.CIDR4, six}
	}
	return []netip.Prefix{m.cfg.CIDR4}
}

// present asks a host to prove that it is there.
func (m *host) present(ctx context.Context, id cluster.NodeID) bool {
	return m.gossip.Present(ctx, string(id), m.placeOf(id))
}

// placeOf is where a host says by its signed record that it is, invalid if it is not known.
func (m *host) placeOf(id cluster.NodeID) netip.AddrPort {
	n, _ := cluster.Get[cluster.Node](m.replica.Snapshot(), string(id))
	return n.Gossip
}

// hadPeers reports whether there is, or was, another host in the cluster.
func (m *host) hadPeers() bool {
	for r := range m.replica.Snapshot().Records() {
		if r.Version.Node != m.Self() && r.Version.Node != ipam.Commons {
			return true
		}
	}
	return false
}

// behind treats a state file that may lack the last thing that was written as one from a
// backup: the other hosts know what this one has said. A host that never had others asks
// for some seconds all the same.
func (m *Member) behind() error {
	if !m.db.Behind() || m.id.Cluster == "" {
		return nil
	}
	next := m.id
	next.Restored, next.Alone = true, !m.hadPeers()
	m.log.Warn("a page of the state file is damaged, and the last thing that was written may be missing: this host hands out nothing until the others say that it is not", "file", m.db.Path())
	if err := next.Save(m.cfg.State); err != nil { // before the next Update repairs the page
		return err
	}
	m.id = next
	m.Quarantine.unproven.Store(true)
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

var runs = store.NewBucket[uint32]("agent/run")

const runKey = "last"

// nextRun numbers this run of the agent: the clock's seconds, or one more than the last, if the clock
// was set back since. A number that was not kept, as on a full disk, will do unless it is set back, too.
func nextRun(db *store.DB, now time.Time) (run uint32, err error) {
	err = db.Update(func(tx *store.Tx) error {
		last, _, err := runs.Get(tx, runKey)
		if err != nil {
			return err
		}
		run = max(last+1, uint32(now.Unix()))
		return runs.Put(tx, runKey, run)
	})
	return run, err
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

func putPeers(db *store.DB, known []gossip.Peer) error {
	return db.Update(func(tx *store.Tx) error { return peers.Put(tx, peersKey, known) })
}

func (m *Member) savePeers(known []gossip.Peer) {
	err := putPeers(m.db, known)
	if err != nil {
		m.log.Warn("remember the hosts of the cluster", "err", err)
	}
}

func (m *Member) openGossip() (err error) {
	known, err := knownPeers(m.db)
	if err != nil {
		return err
	}
	run, err := nextRun(m.db, time.Now())
	if err != nil {
		m.log.Warn("number this run of the agent", "err", err)
	}
	cfg := gossip.Config{
		Run:  run,
		Node: m.id.Node, Name: m.cfg.Name, ClusterID: m.id.Cluster, Keys: m.Keys.Keyring.Keys,
		Bind:      netip.AddrPortFrom(m.bindAddr(), m.cfg.Port),
		Advertise: netip.AddrPortFrom(m.to.Addr, cmp.Or(m.cfg.Advertise.Port(), m.cfg.Port)),
		Join:      joinList(m.cfg.Join), Known: known, SaveKnown: m.savePeers,
		Sign:   func(b []byte) []byte { return cluster.Sign(m.id.Private(), b) },
		Signed: func(node string, b, sig []byte) bool { return cluster.Signed(cluster.NodeID(node), b, sig) },
		Left:   func(node string) bool { return m.replica.Snapshot().Left(cluster.NodeID(node)) },
		Log:    m.log.With("room", "gossip"),
	}
	if m.to.Gossip != nil {
		m.to.Gossip(&cfg)
	}
	if m.gossip, err = gossip.New(cfg, m.replica); err != nil {
		return err
	}
	was, described := cluster.Get[cluster.Node](m.replica.Snapshot(), m.id.Node)
	m.Quarantine.elsewhere.Store(described && was.Gossip != m.gossip.Addr())
	for method, handler := range map[string]gossip.Handler{
		methodFarewell: m.Leaver.hearFarewell, methodKeys: m.Keys.serveKeys, methodRecall: m.Quarantine.recall, methodForgotten: m.Rejoiner.serveForgotten,
	} {
		m.gossip.Handle(method, handler)
	}
	return nil
}

// bindAddr is where gossip listens: all addresses of the underlay's family if
// nothing is configured.
func (m *Member) bindAddr() netip.Addr {
	switch {
	case m.cfg.Bind.IsValid():
		return m.cfg.Bind
	case m.to.Addr.Is4():
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

func (m *Member) openIPAM() (err error) {
	m.alloc, err = ipam.New(ipam.Config{
		Self: m.Self(), CIDRs: m.CIDRs, Bits: m.cfg.PrefixLen, HostBits: m.cfg.HostSubnetLength,
		Sign:    func(b []byte) []byte { return cluster.Sign(m.id.Private(), b) },
		Present: m.present, Signed: cluster.Signed,
		Reach: m.to.Reach, Halt: m.Quarantine.Quarantined, Edge: m.cfg.Edge(), Former: m.to.Former, Now: time.Now, Age: m.db.Age, Log: m.log.With("room", "ipam"),
	}, m.replica, m.gossip, ipam.StoreDisk{DB: m.db})
	if err != nil {
		return err
	}
	for method, handler := range m.alloc.Methods() {
		m.gossip.Handle(method, handler)
	}
	return nil
}
