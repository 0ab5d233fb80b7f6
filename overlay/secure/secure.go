// Package secure keeps the device that encrypts what the switch sends to other hosts (package host/wireguard) in step
// with the cluster. VXLAN goes between addresses inside WireGuard, one a host, so that flows, tunnel and fast path know
// nothing of it; that nothing goes another way, package overlay/guard sees to.
package secure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/encap"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/portreserve"
	"github.com/grapevine-net/grapevine/host/wireguard"
)

// Source is where snapshots come from (package replica). The channel is closed at the change after the call; it is
// taken before the snapshot.
type Source interface {
	Snapshot() *cluster.Snapshot
	Watch() <-chan struct{}
}

// Config is what a Keeper works with.
type Config struct {
	Self     cluster.NodeID
	Key      wireguard.Key
	Port     uint16
	Second   uint16        // the port of the device that stands in while keys change
	Keys     Keys          // changes the key
	Tell     func() error  // writes this host's record again, if it has changed
	All      bool          // all that goes to other hosts is encrypted; else what encrypted networks send, where there are any
	Underlay link.Underlay // what is encrypted goes by it
	Run      string        // the directory of sockets
	Log      *slog.Logger
}

// Keys are this host's keys on its disk (identity.WireGuardKeys).
type Keys interface {
	Renew() ([32]byte, error)
	Second() ([32]byte, error)
	HasSecond() bool
	Drop() error
}

// Keeper is the one who makes the device and tells it its peers.
type Keeper struct {
	cfg     Config
	device  wireguard.Device
	source  Source
	poke    chan struct{} // capacity 1: the device may have changed
	through *through      // nil: all is in VXLAN
	resume  sync.Once

	ensuring sync.Mutex
	said     [2]map[wireguard.Key]netip.AddrPort // where peers were said to be, by device
	ears     [2]wireguard.Ear
	now      held
	heard    [2]map[cluster.NodeID]bool
	looked   *cluster.Snapshot // whose keys these were heard by
	since2   time.Time         // since when all are where they are to be before something goes
	failed2  error             // why the second device is not as it is to be

	mu     sync.Mutex // of what is told; nothing waits for the device with it
	told   held       // what this host's record says
	order  bool       // keys are to change
	fresh  bool       // it has said no turn yet that counts among others'
	waits  string     // for what, while they do
	stall  stall
	kind   string
	whole  bool // its process takes TCP whole
	peers  int
	ways   string // what of it goes without VXLAN
	failed error
	since  time.Time // since when all is as it should be
	logged string
}

// Open reads this host's key and makes its Keeper, if it can encrypt: cannot is why it has no part in encrypted networks, and is no
// error unless all that goes to other hosts is to be encrypted.
func Open(cfg Config, cannot error, load func() ([32]byte, error)) (k *Keeper, why, err error) {
	if cannot != nil {
		return nil, cannot, nil
	}
	key, err := load()
	switch {
	case err != nil && cfg.All:
		return nil, nil, err
	case err != nil:
		return nil, err, nil
	}
	cfg.Key = key
	return New(cfg), nil, nil
}

// New makes nothing yet.
func New(cfg Config) *Keeper {
	u := cfg.Underlay
	return &Keeper{
		cfg: cfg, poke: make(chan struct{}, 1), failed: errors.New("it is not there yet"),
		device: wireguard.Device{Name: link.WireGuard, Metric: wireguard.First, Run: cfg.Run, MTU: u.MTU - encap.WireGuard.Overhead(u.Addr), Addr: cluster.SecureVTEP(cfg.Self), Range: cluster.SecureRange},
	}
}

// All reports whether all that goes to other hosts is encrypted.
func (k *Keeper) All() bool { return k != nil && k.cfg.All }

// Partly reports whether what encrypted networks send is encrypted, and nothing else, and there is such a network.
func (k *Keeper) Partly() bool { return k != nil && !k.cfg.All && k.Wanted() }

// Wanted reports whether there is anything to be encrypted.
func (k *Keeper) Wanted() bool { return k.cfg.All || k.source.Snapshot().Encrypted() }

// Wire is what the switch has for its underlay.
func (k *Keeper) Wire() link.Underlay {
	return link.Underlay{Interface: link.WireGuard, Addr: k.device.Addr, MTU: k.device.MTU}
}

// Record is what this host says of itself for the others to encrypt to it.
// The snapshot has what it said before.
func (k *Keeper) Record(snap *cluster.Snapshot) (public, proof []byte, at netip.AddrPort, turn cluster.KeyTurn) {
	k.begin(snap)
	was, _ := cluster.Get[cluster.Node](snap, string(k.cfg.Self))
	k.mu.Lock()
	k.fresh = k.fresh || was.Turn.At == 0
	told := k.told
	k.mu.Unlock()
	key, here := told.first.Public(), k.cfg.Underlay.Addr.Unmap()
	turn.At = told.turn
	if told.two {
		second := told.second.Public()
		turn.Second, turn.SecondAt = second[:], netip.AddrPortFrom(here, k.cfg.Second)
		turn.SecondProof = told.second.Prove(string(k.cfg.Self))
	}
	return key[:], told.first.Prove(string(k.cfg.Self)), netip.AddrPortFrom(here, k.cfg.Port), turn
}

// Follow says where the other hosts' records are. It comes before the other methods. A nil Keeper follows nobody.
func (k *Keeper) Follow(source Source) {
	if k != nil {
		k.source = source
	}
}

// Ensure has the device in place when it returns nil, with the peers that are known now.
func (k *Keeper) Ensure(ctx context.Context) error {
	k.ensuring.Lock()
	defer k.ensuring.Unlock()
	kind, err := k.ensure(ctx)
	if err == nil {
		err = k.through.say(k.source.Snapshot(), k.cfg.Self)
	}
	line := k.through.line(len(k.said[0]))
	whole := k.device.Whole(kind)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kind, k.whole, k.peers, k.ways = kind, whole, len(k.said[0]), line
	switch {
	case err == nil && k.failed != nil:
		k.since = time.Now()
	case err != nil && ctx.Err() == nil && err.Error() != k.logged:
		k.cfg.Log.Warn("encryption is not as it should be, trying again; nothing is sent in the clear", "err", err)
	}
	if k.logged = ""; err != nil {
		k.logged = err.Error()
	}
	k.failed = err
	return err
}

// taken says who has a port.
func taken(err error, port uint16, set string) error {
	by := cmp.Or(portreserve.User("udp", port), "somebody whose process cannot be seen")
	return fmt.Errorf("UDP port %d is taken, by %s: end that, or set %s: %w", port, by, set, err)
}

// Fits is why an underlay is too narrow for the device; nil: it is not.
func Fits(u link.Underlay) error {
	over := encap.WireGuard.Overhead(u.Addr)
	if u.MTU-over < wireguard.MinMTU {
		return fmt.Errorf("the underlay's MTU of %d bytes leaves %s %d, and it needs %d: GRAPEVINE_MTU of at least %d, and an underlay that carries it",
			u.MTU, link.WireGuard, u.MTU-over, wireguard.MinMTU, wireguard.MinMTU+over)
	}
	return nil
}

func (k *Keeper) ensure(ctx context.Context) (kind string, err error) {
	if err := Fits(k.cfg.Underlay); err != nil {
		return "", err
	}
	snap := k.source.Snapshot()
	k.begin(snap)
	want := wireguard.State{Private: k.now.first, Port: k.cfg.Port, Peers: Peers(snap, k.cfg.Self, k.now.first.Public())}
	switch self, _ := cluster.Get[cluster.Node](snap, string(k.cfg.Self)); {
	case k.now.step() == renewed:
		keepAlive(want.Peers, alive)
	case self.Bind.IsValid():
		keepAlive(want.Peers, behindNAT)
	}
	if kind, err = k.set(ctx, 0, k.device, want); errors.Is(err, unix.EADDRINUSE) {
		err = taken(err, k.cfg.Port, "GRAPEVINE_WIREGUARD_PORT to another port on this host")
	}
	if err != nil {
		return "", err
	}
	if err := k.ensureSecond(ctx, snap); err != nil && k.now.step() >= moved {
		return "", err
	}
	k.looked = snap
	return kind, nil
}

// set has one of the two devices as it is to be, and notes who was heard there.
func (k *Keeper) set(ctx context.Context, which int, d wireguard.Device, want wireguard.State) (kind string, err error) {
	if kind, err = d.Ensure(ctx); err != nil {
		return "", err
	}
	have, err := d.State(kind)
	if err != nil {
		return "", err
	}
	k.ears[which].Listen(&have, time.Now())
	if len(have.Peers) > 0 && k.through.behind() { // to take a peer away and give it back ends its session, and loses what it sends meanwhile
		k.heard[which] = heardOf(have, want)
		want.Peers = have.Peers
		return kind, d.Set(kind, wireguard.Diff(have, want, k.said[which]))
	}
	if k.through == nil || which != 0 {
		err = d.Set(kind, wireguard.Diff(have, want, k.said[which]))
	} else {
		k.lead(k.source.Snapshot(), want.Peers, d.Whole(kind))
		err = k.through.set(d, have, want, k.said[which], func(c wireguard.Change) error { return d.Set(kind, c) })
	}
	if err != nil {
		return "", err
	}
	k.said[which] = map[wireguard.Key]netip.AddrPort{}
	for _, p := range want.Peers {
		k.said[which][p.Key] = p.Endpoint
	}
	k.heard[which] = heardOf(have, want)
	return kind, nil
}

// The pauses between two looks at the device: after the cluster has changed, and when nothing has been heard.
const (
	pause = 100 * time.Millisecond
	rest  = 5 * time.Second
	retry = time.Second
)

// Run keeps the device, once it is wanted, until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	for changed := k.source.Watch(); !k.Wanted(); changed = k.source.Watch() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error { k.watch(ctx); return ctx.Err() })
	tasks.Go(func() error {
		var caughtUp <-chan struct{}
		if k.through.behind() {
			caughtUp = k.through.CaughtUp
		}
		for ctx.Err() == nil {
			changed, wait := k.source.Watch(), rest
			if k.Ensure(ctx) != nil {
				wait = retry
			} else if k.advance(ctx) {
				wait = pause
			}
			select {
			case <-ctx.Done():
			case <-k.poke:
			case <-caughtUp:
				caughtUp = nil
			case <-changed:
				sleep(ctx, pause)
			case <-time.After(wait):
			}
		}
		return ctx.Err()
	})
	return tasks.Wait()
}

// watch pokes when the device changes or goes, and when routes or addresses do.
func (k *Keeper) watch(ctx context.Context) {
	for ctx.Err() == nil {
		links, routes := make(chan netlink.LinkUpdate), make(chan netlink.RouteUpdate)
		some, stop := context.WithCancel(ctx)
		err := errors.Join(
			netlink.LinkSubscribeWithOptions(links, some.Done(), netlink.LinkSubscribeOptions{ErrorCallback: func(error) { stop() }}),
			netlink.RouteSubscribeWithOptions(routes, some.Done(), netlink.RouteSubscribeOptions{ErrorCallback: func(error) { stop() }}))
		for links != nil && routes != nil && err == nil {
			select {
			case u, open := <-links:
				if !open {
					links = nil
				} else if name := u.Attrs().Name; name == link.WireGuard || name == link.WireGuard2 {
					k.look()
				}
			case u, open := <-routes:
				if !open {
					routes = nil
				} else if u.Type == unix.RTM_DELROUTE && u.Dst != nil && u.Dst.String() == cluster.SecureRange.String() {
					k.look()
				}
			}
		}
		stop()
		go drain(links)
		go drain(routes)
		k.look()
		sleep(ctx, retry)
	}
}

// drain lets a subscription end.
func drain[T any](updates <-chan T) {
	if updates == nil {
		return
	}
	for range updates {
	}
}

func (k *Keeper) look() {
	select {
	case k.poke <- struct{}{}:
	default:
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Works reports whether the device is there, as it should be.
func (k *Keeper) Works() bool {
	if k == nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.failed == nil
}

// Problems are for status.
func (k *Keeper) Problems() []api.Problem {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.Wanted() {
		return nil
	}
	if k.failed == nil {
		return k.stall.problems(k.waits, time.Now())
	}
	what := "what goes to other hosts"
	if !k.cfg.All {
		what = "what encrypted networks send to other hosts"
	}
	return []api.Problem{{
		Code: api.EncryptionFails,
		What: what + " cannot be encrypted, and is not sent: " + k.failed.Error(),
		Do:   "mend that: the agent goes on trying; containers of this host reach each other meanwhile",
	}}
}

// How is by what one encrypted network is encrypted, for people.
func (k *Keeper) How() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failed != nil {
		return "by WireGuard, which does not work, so nothing of it is sent to other hosts (" + k.failed.Error() + ")"
	}
	by := "the kernel's WireGuard"
	if k.kind == wireguard.Userspace {
		by = "wireguard-go"
	}
	return fmt.Sprintf("by %s, since %s", by, k.since.UTC().Format(time.DateTime))
}

// Ways says, behind How, how much of it goes without VXLAN.
func (k *Keeper) Ways() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failed != nil {
		return ""
	}
	return k.ways
}

// State is one line for people.
func (k *Keeper) State() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	what, these := "all", ""
	if !k.cfg.All {
		what, these = "encrypted networks", "; these are "+theFirst(encrypted(k.source.Snapshot()))
	}
	if k.failed != nil {
		return what + ", and does not work: nothing of that is sent to other hosts"
	}
	by, pace := "the kernel's WireGuard", ""
	if k.kind == wireguard.Userspace {
		by, pace = "wireguard-go, a process of its own", "; each packet goes through it alone, which is slow, since it was begun on a kernel older than Linux 6.17 or by an older agent (`grapevine keys wireguard` begins it anew)"
	}
	if k.whole {
		pace = "; TCP goes through it in pieces of up to 64 kB"
	}
	changing := ""
	if k.waits != "" {
		changing = "; its keys are being changed, which waits for " + k.waits
	}
	return fmt.Sprintf("%s, by %s (%s, UDP port %d), with %s, since %s%s%s",
		what, by, link.WireGuard, k.cfg.Port, words.Plural(k.peers, "other host"), k.since.UTC().Format(time.DateTime), k.ways+pace, changing+these)
}

// Purge removes what an agent that is gone has left, and returns what that was.
func Purge(run string) ([]string, error) {
	second, err2 := wireguard.Device{Name: link.WireGuard2, Run: run}.Drop()
	gone, err := wireguard.Device{Name: link.WireGuard, Run: run, Range: cluster.SecureRange}.Remove()
	return append(gone, second...), errors.Join(err, err2)
}

// Refused is how much each device of WireGuard on this host has refused, that of clients too.
func Refused(run string) map[string]uint64 { return wireguard.Refused(run) }
