// Package sandbox lets clients in that were added at this host. They come by one device of WireGuard, in a network
// namespace of its own (host/wireguard), and each goes on from there into the switch by an interface of its own, as a
// container does: the switch knows no difference.
package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/clients"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/portreserve"
	"github.com/grapevine-net/grapevine/host/wireguard"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// Source is where snapshots come from (package replica). The channel is closed at the change after the call; it is
// taken before the snapshot.
type Source interface {
	Snapshot() *cluster.Snapshot
	Watch() <-chan struct{}
}

// Switch has the interfaces of endpoints as its ports; *overlay.Overlay is one.
type Switch interface {
	Attach(ctx context.Context, endpointID, ifname string) error
}

// Links makes and deletes interfaces of endpoints (package overlay/plane).
type Links interface {
	Veth(host, peer string, mac net.HardwareAddr, mtu int, alias string) error
	SetMTU(host, sandbox string, mtu int) error
	Limit(host, sandbox string, limits link.Limits) error
	Delete(host string) error
	Exists(name string) bool
}

// Config is what a Keeper works with.
type Config struct {
	Self   cluster.NodeID
	Key    func() ([32]byte, error) // the private one for clients
	Port   uint16
	Run    string // the directory of sockets
	MTU    func(network string) int
	Source Source
	Switch Switch
	Links  Links
	Log    *slog.Logger
}

// Keeper lets clients in.
type Keeper struct {
	cfg Config
	box wireguard.Sandbox

	ensuring sync.Mutex
	attached map[string]fit // by the endpoint's ID: done by this agent
	ended    bool           // there is no client, and nothing left of any
	ear      wireguard.Ear

	mu     sync.Mutex // of what is told; nothing waits for the device with it
	room   string     // the sandbox's file
	kind   string
	peers  map[wireguard.Key]wireguard.Peer // that the device had last
	failed error
	let    map[string]error // by the endpoints' IDs: what was wrong with each client at the last try
	logged string
}

// New makes nothing yet.
func New(cfg Config) *Keeper {
	return &Keeper{cfg: cfg, box: wireguard.Sandbox{Run: cfg.Run}, attached: map[string]fit{}, peers: map[wireguard.Key]wireguard.Peer{}}
}

// Public is the key that this host has for clients.
func (k *Keeper) Public() ([32]byte, error) {
	key, err := k.cfg.Key()
	return wireguard.Key(key).Public(), err
}

// Lets reports whether whoever has a key might be let in at the last look, when it was heard last, and where.
func (k *Keeper) Lets(key []byte) (may bool, seen time.Time, at netip.AddrPort) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p, may := k.peers[wireguard.Key(key)]
	return may, p.Handshake, p.Endpoint
}

// Failed says why a client is not let in, nil if it is.
func (k *Keeper) Failed(endpointID string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err, tried := k.let[endpointID]; tried {
		return err
	}
	return cmp.Or(k.failed, errors.New("it is not let in yet"))
}

// Look notes what the device has, if it answers.
func (k *Keeper) Look() {
	r, err := k.box.Open()
	if err != nil {
		return
	}
	defer r.Close()
	if s, err := r.State(); err == nil {
		k.note(r, s)
	}
}

func (k *Keeper) note(r *wireguard.Room, s wireguard.State) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.room, k.kind = r.Path, r.Kind
	before := maps.Clone(k.peers)
	clear(k.peers)
	for _, p := range s.Peers {
		if p.Handshake.IsZero() { // the device was told to forget it (wireguard.Diff)
			p.Handshake = before[p.Key].Handshake
		}
		k.peers[p.Key] = p
	}
}

// Room is the file of the network namespace that a client of this host is in; "": it is none.
func (k *Keeper) Room(endpointID string) string {
	if e, there := cluster.Get[cluster.Endpoint](k.cfg.Source.Snapshot(), endpointID); !there || !e.IsClient() || e.Host != k.cfg.Self {
		return ""
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.room
}

// patience is how long the switch may take to have all clients' interfaces: whoever is to go waits for it.
const patience = 5 * time.Second

// Ensure returns when those clients are let in that there are now, and nobody else.
func (k *Keeper) Ensure(ctx context.Context) error {
	k.ensuring.Lock()
	defer k.ensuring.Unlock()
	let, err := k.ensure(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.let = let // at once: who asks meanwhile is told of the last try
	if err != nil && ctx.Err() == nil && err.Error() != k.logged {
		k.cfg.Log.Warn("clients are not let in as they should be, trying again", "err", err)
	}
	if k.logged = ""; err != nil {
		k.logged = err.Error()
	}
	k.failed = err
	return err
}

// ensure returns what is wrong with each client that it came to, by the endpoint's ID.
func (k *Keeper) ensure(ctx context.Context) (let map[string]error, err error) {
	list := clients.On(k.cfg.Source.Snapshot(), k.cfg.Self)
	if len(list) == 0 {
		if !k.ended {
			err := k.end()
			k.ended = err == nil
			return nil, err
		}
		return nil, nil
	}
	k.ended = false
	key, err := k.cfg.Key()
	if err != nil {
		return nil, err
	}
	r, err := k.box.Ensure(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	have, err := r.State()
	if err != nil {
		return nil, err
	}
	k.note(r, have)
	k.ear.Listen(&have, time.Now())
	change := wireguard.Diff(have, wireguard.State{Private: key, Port: k.cfg.Port, Peers: peers(list, have)}, nil)
	// First those go who are clients no more; whoever is one comes in when his way is there.
	if err := r.Set(wireguard.Change{Remove: change.Remove}); err != nil {
		return nil, err
	}
	errs := []error{k.drop(list)}
	let = map[string]error{}
	var ways []wireguard.Way
	switchPatience, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, c := range list {
		way, err := k.admit(switchPatience, r, c)
		if err != nil {
			err = fmt.Errorf("let client %s in: %w", c.Name, err)
		}
		// One that came in before goes on while the switch does not answer.
		if r.Has(way.Port) {
			ways = append(ways, way)
		}
		errs, let[c.ID] = append(errs, err), err
	}
	led := r.Lead(ways, pipeline.RouterMAC)
	change.Remove = nil
	set := r.Set(change)
	if have, err = r.State(); err == nil {
		k.note(r, have)
	}
	all := errors.Join(k.told(set), err)
	for _, c := range list {
		let[c.ID] = errors.Join(let[c.ID], led.Of(c.Addrs), all)
	}
	return let, errors.Join(append(errs, led.All(), all)...)
}

// told says of a port that is taken by whom, and what to do.
func (k *Keeper) told(err error) error {
	if !errors.Is(err, unix.EADDRINUSE) {
		return err
	}
	by := cmp.Or(portreserve.User("udp", k.cfg.Port), "somebody whose process cannot be seen")
	return fmt.Errorf("UDP port %d is taken, by %s: end that, or set GRAPEVINE_CLIENT_PORT to another port on this host, and tell it to the clients: %w", k.cfg.Port, by, err)
}

// peers are the device's: where they are it finds out by itself.
func peers(list []clients.Client, have wireguard.State) (out []wireguard.Peer) {
	at := map[wireguard.Key]netip.AddrPort{}
	for _, p := range have.Peers {
		at[p.Key] = p.Endpoint
	}
	for _, c := range list {
		p := wireguard.Peer{Key: c.Key, Endpoint: at[c.Key]}
		for i, a := range c.Addrs {
			whole := netip.PrefixFrom(a, a.BitLen())
			if i == 0 {
				p.Inside = whole
			} else {
				p.Also = whole
			}
		}
		out = append(out, p)
	}
	return out
}

// alias begins what `ip link` says of a client's interfaces.
const alias = "grapevine client "

// names are those of a client's interfaces: the switch's port, and its other end.
func names(id string) (host, peer string) {
	host = link.PortName(id)
	return host, link.Beside(link.PeerPrefix, host)
}

// fit is how a client's interfaces are.
type fit struct {
	mtu    int
	limits link.Limits
}

// limits are as an interface has them.
func limits(l cluster.Limits) link.Limits {
	return link.Limits{Egress: uint64(l.Egress), Ingress: uint64(l.Ingress), Lag: link.Lag{Delay: l.Delay.Duration(), Jitter: l.Jitter.Duration(), Loss: l.Loss.Share()}}
}

// admit gives a client its way into the switch.
func (k *Keeper) admit(ctx context.Context, r *wireguard.Room, c clients.Client) (wireguard.Way, error) {
	host, peer := names(c.ID)
	want := fit{k.cfg.MTU(c.Network), limits(c.Limits)}
	way := wireguard.Way{Port: peer, Addrs: c.Addrs}
	if !k.cfg.Links.Exists(host) || !r.Has(peer) {
		delete(k.attached, c.ID)
		if err := k.cfg.Links.Veth(host, peer, c.MAC, want.mtu, alias+c.Name); err != nil {
			return way, err
		}
		if err := r.Take(peer); err != nil {
			return way, err
		}
	}
	had, attached := k.attached[c.ID]
	if had.mtu != want.mtu {
		if err := k.cfg.Links.SetMTU(host, r.Path, want.mtu); err != nil {
			return way, err
		}
	}
	if !attached || had.limits != want.limits {
		if err := k.cfg.Links.Limit(host, r.Path, want.limits); err != nil {
			return way, err
		}
	}
	if !attached {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if err := k.cfg.Switch.Attach(ctx, c.ID, host); err != nil {
			return way, err
		}
	}
	k.attached[c.ID] = want
	return way, nil
}

// drop removes the interfaces of those that are clients no more.
func (k *Keeper) drop(list []clients.Client) error {
	keep := map[string]bool{}
	for _, c := range list {
		host, _ := names(c.ID)
		keep[host] = true
	}
	links, err := link.List(link.PortPrefix)
	errs := []error{err}
	outer, err := link.List(link.OuterPrefix)
	errs = append(errs, err)
	for _, l := range append(links, outer...) {
		if port := link.PortOf(l.Name); strings.HasPrefix(l.Alias, alias) && port != "" && !keep[port] {
			errs = append(errs, k.cfg.Links.Delete(port))
		}
	}
	for id := range k.attached {
		if host, _ := names(id); !keep[host] {
			delete(k.attached, id)
		}
	}
	return errors.Join(errs...)
}

// end lets nobody in: no process is left, and nobody listens.
func (k *Keeper) end() error {
	_, err := Purge(k.cfg.Run)
	if err == nil {
		k.mu.Lock()
		clear(k.peers)
		k.room, k.kind = "", ""
		k.mu.Unlock()
	}
	return errors.Join(err, k.drop(nil))
}

// The pauses between two looks: after the cluster has changed, and when nothing has been heard.
const (
	pause = 100 * time.Millisecond
	rest  = 5 * time.Second
	retry = time.Second
)

// Run lets clients in until ctx ends, and leaves those that are in.
func (k *Keeper) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		wait, now := rest, k.wanted()
		switch {
		case k.Ensure(ctx) != nil:
			wait = retry
		case now == "":
			wait = time.Hour // nothing to look after
		}
		k.await(ctx, now, wait)
	}
	return ctx.Err()
}

// wanted changes with what Ensure would do; "": there is nothing to do.
func (k *Keeper) wanted() string {
	var b strings.Builder
	for _, c := range clients.On(k.cfg.Source.Snapshot(), k.cfg.Self) {
		fmt.Fprintln(&b, c, k.cfg.MTU(c.Network))
	}
	return b.String()
}

// await returns when something else is wanted, or the time is over.
func (k *Keeper) await(ctx context.Context, was string, wait time.Duration) {
	end := time.After(wait)
	for {
		changed := k.cfg.Source.Watch()
		if k.wanted() != was {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-end:
			return
		case <-changed:
		}
		select { // others' records change all the time
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// Problems are for status.
func (k *Keeper) Problems(snap *cluster.Snapshot) (list []api.Problem) {
	k.mu.Lock()
	failed := k.failed
	k.mu.Unlock()
	if failed != nil {
		list = append(list, api.Problem{
			Code: api.ClientsFail, What: "clients that were added at this host are not let in as they should be: " + failed.Error(),
			Do: "mend that: the agent goes on trying",
		})
	}
	for _, e := range clients.All(snap) {
		if why := clients.Lost(snap, e); e.Host == k.cfg.Self && why != "" {
			list = append(list, api.Problem{
				Code: api.ClientLost, What: fmt.Sprintf("client %s is let in no more: %s", e.Name, why),
				Do: fmt.Sprintf("grapevine client remove %s, and add it to a network that there is", e.Name),
			})
		}
	}
	return list
}

// State is one line for people.
func (k *Keeper) State() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.peers) == 0 {
		return "none comes in by this host, which does not listen for any"
	}
	by := "the kernel's WireGuard"
	if k.kind == wireguard.Userspace {
		by = "wireguard-go, a process of its own"
	}
	return fmt.Sprintf("%s may come in by this host, by %s (UDP port %d)", words.Plural(len(k.peers), "client"), by, k.cfg.Port)
}

// Purge removes what an agent that is gone has left, and returns what that was. The interfaces of clients go with
// those of containers.
func Purge(run string) ([]string, error) { return wireguard.Sandbox{Run: run}.Remove() }
