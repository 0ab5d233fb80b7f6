package ipam

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/reach"
	"github.com/grapevine-net/grapevine/replica"
)

// Replica is the agent's copy of the cluster's state. *replica.Replica is one.
type Replica interface {
	Snapshot() *cluster.Snapshot
	// Watch returns a channel that is closed at the next change.
	Watch() <-chan struct{}
	// Update writes records: atomic, durable on return.
	Update(func(*replica.Tx) error) (rev uint64, err error)
	// Merge takes records in from a peer: durable on return.
	Merge(msg []byte) (fresh []byte, err error)
}

// Peers calls other agents. *gossip.Gossip is one.
type Peers interface {
	Call(ctx context.Context, node, method string, body []byte) ([]byte, error)
	// Alive returns the IDs of the hosts that answer now, without this one.
	Alive() []string
}

// Disk keeps the allocator's own state. Save is atomic and durable on return.
type Disk interface {
	Load(each func(key string, value []byte) error) error
	Save(put map[string][]byte, del []string) error
}

// Reach knows what the hosts of the cluster reach by themselves, which no network of ours
// takes away from them. reach.Model is one.
type Reach interface {
	// Barred returns those of the subnets that this host cannot take, or anywhere some host
	// that is known, and why.
	Barred(subnets []netip.Prefix, anywhere bool) map[netip.Prefix]error
	// Avoid returns what hosts have in a range of the cluster.
	Avoid(cidr netip.Prefix) []reach.Taken
}

// nowhere is the Reach of hosts that reach nothing.
type nowhere struct{}

func (nowhere) Barred([]netip.Prefix, bool) map[netip.Prefix]error { return nil }
func (nowhere) Avoid(netip.Prefix) []reach.Taken                   { return nil }

// Config of an Allocator. All fields are needed but those that may be nil.
type Config struct {
	Self cluster.NodeID
	// CIDRs returns the cluster's number space, from which new networks get their
	// prefixes. IPv6's may come only when the host has found its cluster.
	CIDRs func() []netip.Prefix
	// Bits is the prefix length of a new IPv4 network that does not ask for one;
	// IPv6's is Bits6.
	Bits int
	// HostBits is the cluster's hostsubnetlength, 0 for shares of any size.
	HostBits int
	// Reach returns what is known now of what hosts reach; nil: they reach nothing.
	Reach func() Reach
	// Halt says why this host must hand out nothing at present, nil if it may; Halt
	// itself may be nil. It must not block.
	Halt func() error
	// Edge says that this host is to own nothing: it asks for nothing, and gives away what it has.
	Edge bool
	// Present asks a host that does not seem to answer to prove that it is there, and says
	// whether it did; nil: none does. It may block for seconds.
	Present func(ctx context.Context, id cluster.NodeID) bool
	// Sign signs with this host's key, Signed says whether a host has signed; nil: anybody's
	// word is taken.
	Sign   func(b []byte) []byte
	Signed func(by cluster.NodeID, b, signature []byte) bool
	// Former knows which containers had addresses before; nil: nobody does.
	Former Former
	Now    func() time.Time
	// Age is that of the state file (store.DB.Age): what rests for days does so by it.
	Age func() time.Duration
	Log *slog.Logger
}

// Former knows which containers had addresses before (package former). Given is what goes with blocks to the host that gets them, and
// Take notes it there, durably.
type Former interface {
	Given(blocks []netip.Prefix) ([]byte, error)
	Take([]byte) error
}

// Allocator hands out what this host owns and asks peers for more. It is safe
// for concurrent use. It is its rooms: each has a file, and names those that it uses. What all
// of them have is the core.
type Allocator struct {
	core      *core
	asker     *asker
	leases    *leases
	commons   *commons
	giver     *giver
	leaver    *leaver
	forgetter *forgetter
	homing    *homing
	collector *collector
	prefixes  *prefixes
	vnids     *vnids
}

// ErrNoSpace is wrapped by the errors that say that nothing was free here or
// could be had from a peer.
var ErrNoSpace = errors.New("nothing free")

// ErrNoSubnet is wrapped by the errors of asking for addresses of what is no subnet of the
// cluster.
var ErrNoSubnet = errors.New("this is no subnet of the cluster (any more)")

// ErrInUse is wrapped by the errors of asking for an exact number that is taken.
var ErrInUse = errors.New("in use")

// New returns an Allocator with the leases that disk has.
func New(cfg Config, r Replica, p Peers, d Disk) (*Allocator, error) {
	if cfg.Reach == nil {
		cfg.Reach = func() Reach { return nowhere{} }
	}
	if cfg.Present == nil {
		cfg.Present = func(context.Context, cluster.NodeID) bool { return false }
	}
	if cfg.Sign == nil || cfg.Signed == nil {
		cfg.Sign, cfg.Signed = func([]byte) []byte { return nil }, func(cluster.NodeID, []byte, []byte) bool { return true }
	}
	a := &core{cfg: cfg, replica: r, peers: p, disk: leaseLog{d, cfg.Log}, state: newState(), goes: map[cluster.NodeID]time.Time{}}
	if err := a.disk.Load(a.state.load); err != nil {
		return nil, fmt.Errorf("read the leases: %w", err)
	}
	a.state.found(cfg.Now())
	return rooms(a), nil
}

// rooms are an Allocator's, with that core.
func rooms(c *core) *Allocator {
	ask := &asker{core: c, lent: map[cluster.Version]bool{}}
	commons := &commons{core: c, asker: ask, modern: map[cluster.NodeID]bool{}}
	homing := &homing{core: c, commons: commons}
	forget := &forgetter{core: c, asker: ask, withdrawn: map[cluster.NodeID]uint64{}}
	for dead, heir := range c.state.promises {
		forget.promised.Store(dead, heir)
	}
	return &Allocator{
		core: c, asker: ask, leases: &leases{c, ask}, commons: commons, giver: &giver{c, commons}, leaver: &leaver{c, ask},
		forgetter: forget, homing: homing, collector: &collector{c, forget}, vnids: &vnids{core: c, asker: ask},
		prefixes: &prefixes{core: c, asker: ask, commons: commons, homing: homing, asked: map[netip.Prefix][]time.Time{}},
	}
}

// Seed makes the host self the owner of all numbers, as the first host of a new
// cluster. A cluster that has a ring already is left as it is.
func Seed(r Replica, self cluster.NodeID) error {
	_, err := r.Update(func(tx *replica.Tx) error {
		if tx.Snapshot().Ring().Len() > 0 {
			return nil
		}
		for _, all := range everything {
			_ = tx.Put(cluster.Claim{Block: all, Owner: self}) // Update reports it
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("seed the cluster: %w", err)
	}
	return nil
}
