// Package traffic says who talks to whom: it makes connections of what package counter counts on this host, and
// of what other hosts say that they have counted.
package traffic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/observe/ask"
	"github.com/grapevine-net/grapevine/overlay/counter"
)

// Counter is *counter.Counter.
type Counter interface {
	Start() error
	Follow() error
	Runs() bool
	Compiled() bool
	Read() (map[counter.Key]counter.Count, counter.Lost, error)
	Take(counter.Key) (counter.Count, error)
	Stop() error
	Close() error
}

// Config of a Desk.
type Config struct {
	Self     cluster.NodeID
	Snapshot func() *cluster.Snapshot
	// Alive are the other hosts that answer, by ID; Call asks one (gossip.Gossip).
	Alive func() []string
	Call  func(ctx context.Context, node, method string, body []byte) ([]byte, error)
	// Counter counts; Mode is auto (from the first question on, until nobody has asked for a while), on or off.
	Counter Counter
	Mode    string
	// Export, if set, hears at each look what is counted, and what has ended since. It must be quick.
	Export func(live map[counter.Half]*Record, ended []*Record, now time.Time)
	Log    *slog.Logger
}

const (
	watched   = time.Second     // how often is counted while somebody asks
	unwatched = 5 * time.Second // and while nobody does
	interest  = 10 * time.Second
	patience  = time.Hour // how long is counted, in mode auto, after the last question
	warmUp    = 1500 * time.Millisecond
)

// Desk is where people and other hosts ask who talks to whom.
type Desk struct {
	cfg Config

	mu    sync.Mutex
	on    bool
	since time.Time
	seen  time.Time // the last look at what the kernel has counted
	asked time.Time
	lost  counter.Lost
	first counter.Lost // of before since
	err   error        // why nothing is counted
	table table
	total Totals
	named struct {
		of    *cluster.Snapshot
		who   map[netip.Addr]Who
		ports map[netip.Addr]string
	}
	wake chan struct{}
}

// New makes a Desk.
func New(cfg Config) *Desk { return &Desk{cfg: cfg, wake: make(chan struct{}, 1)} }

// Run counts, when it is to, until ctx ends. The kernel goes on then, for the next agent.
func (d *Desk) Run(ctx context.Context) error {
	switch {
	case d.cfg.Mode == "off":
		if d.cfg.Counter.Runs() {
			_ = d.cfg.Counter.Stop()
		}
	case d.cfg.Mode == "on", d.cfg.Counter.Runs():
		d.begin()
	}
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		_ = d.cfg.Counter.Close()
		d.on = false
	}()
	for ctx.Err() == nil {
		if !d.isOn() {
			select {
			case <-ctx.Done():
			case <-d.wake:
			}
			continue
		}
		d.count(ctx)
	}
	return nil
}

func (d *Desk) isOn() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.on
}

// begin begins to count, if that is not done yet.
func (d *Desk) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = time.Now()
	if d.on {
		return
	}
	d.err = d.cfg.Counter.Start()
	if d.err == nil && d.cfg.Mode == "auto" && !d.cfg.Counter.Compiled() {
		d.err = errors.Join(errors.New("this kernel has no JIT compiler for BPF, or it is off (sysctl net.core.bpf_jit_enable=1 turns it on); GRAPEVINE_TRAFFIC=on counts all the same"), d.cfg.Counter.Stop())
	}
	if d.err != nil {
		d.cfg.Log.Warn("who talks to whom is not counted", "err", d.err)
		return
	}
	d.on, d.since, d.table = true, time.Now(), table{}
	_, d.first, _ = d.cfg.Counter.Read()
	d.lost = d.first
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// count looks again and again until nobody wants to know, and follows the interfaces that come.
func (d *Desk) count(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if w, err := link.OpenWatch(link.LinkChange); err == nil {
		defer w.Close()
		go func() {
			_ = w.Run(ctx, func(c link.Change) {
				if !c.Gone {
					d.follow()
				}
			})
		}()
	}
	for {
		d.look()
		d.mu.Lock()
		silent := time.Since(d.asked)
		d.mu.Unlock()
		pause := unwatched
		switch {
		case silent < interest:
			pause = watched
		case d.cfg.Mode == "auto" && silent > patience:
			d.stop()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
		case <-time.After(pause):
		}
	}
}

func (d *Desk) follow() {
	if err := d.cfg.Counter.Follow(); err != nil {
		d.cfg.Log.Debug("count at a new interface", "err", err) // it may have gone; the next look tries again
	}
}

func (d *Desk) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.cfg.Counter.Stop(); err != nil {
		d.cfg.Log.Warn("end counting who talks to whom", "err", err)
	}
	d.on, d.table = false, table{}
}

// look reads what the kernel has counted, and removes there what has ended.
func (d *Desk) look() {
	d.follow()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.on {
		return
	}
	now := time.Now()
	counts, lost, err := d.cfg.Counter.Read()
	if d.err = err; err != nil {
		return
	}
	if lost.Packets > d.lost.Packets {
		d.total.Lost += lost.Packets - d.lost.Packets
	}
	d.lost = lost
	d.seen = now
	var ended []*Record
	for _, k := range d.table.update(counts, d.who(), d.owns, now) {
		c, err := d.cfg.Counter.Take(k)
		if err != nil {
			d.err = err
			break
		}
		if r, was := d.table.end(k, c); was {
			ended = append(ended, r)
		}
	}
	d.total.add(ended, d.table.live, now)
	if d.cfg.Export != nil {
		d.cfg.Export(d.table.live, ended, now)
	}
}

// who finds names of addresses. The caller has d.mu.
func (d *Desk) who() func(netip.Addr) Who {
	snap := d.cfg.Snapshot()
	if d.named.of != snap {
		d.named.of, d.named.who, d.named.ports = snap, whoIn(snap), portsIn(snap, d.cfg.Self, d.named.ports)
	}
	return func(a netip.Addr) Who { return d.named.who[a] }
}

// owns reports whether a port of the switch is that of the container which has an address. What comes by the gateway the
// host's own stack has let by. The caller has d.mu, and has asked for who.
func (d *Desk) owns(port string, a netip.Addr) bool {
	return port == link.Gateway || port != "" && port == d.named.ports[a]
}

// portsIn is pure: by which port of the switch each address of this host's containers is, and was before: of containers
// that have gone there is something to count still.
func portsIn(snap *cluster.Snapshot, self cluster.NodeID, before map[netip.Addr]string) map[netip.Addr]string {
	ports := map[netip.Addr]string{}
	if len(before) < counter.Room {
		maps.Copy(ports, before)
	}
	for e := range cluster.All[cluster.Endpoint](snap) {
		for _, a := range e.Addrs {
			if e.Host == self {
				ports[a] = link.PortName(e.ID)
			}
		}
	}
	return ports
}

// whoIn is pure: who has which address.
func whoIn(snap *cluster.Snapshot) map[netip.Addr]Who {
	who := map[netip.Addr]Who{}
	for s := range cluster.All[cluster.Subnet](snap) {
		if s.Gateway.IsValid() {
			who[s.Gateway] = Who{Name: "gateway", Network: s.Network}
		}
	}
	hosts := map[cluster.NodeID]string{}
	for n := range cluster.All[cluster.Node](snap) {
		hosts[n.ID] = n.Name
		who[n.Address().Unmap()] = Who{Name: n.Name}
	}
	for e := range cluster.All[cluster.Endpoint](snap) {
		for _, a := range e.Addrs {
			who[a] = Who{cmp.Or(e.Name, fmt.Sprintf("%.12s", cmp.Or(e.Container, e.ID))), e.Network, cmp.Or(hosts[e.Host], string(e.Host))}
		}
	}
	return who
}

// here is what this host has counted.
func (d *Desk) here(ctx context.Context) (a answer, err error) {
	if d.cfg.Mode == "off" {
		return a, errors.New("it is off: set GRAPEVINE_TRAFFIC=auto")
	}
	fresh := !d.isOn()
	d.begin()
	if fresh && d.isOn() {
		select {
		case <-time.After(warmUp):
		case <-ctx.Done():
			return a, ctx.Err()
		}
	}
	d.look()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return a, d.err
	}
	return answer{Since: d.since, At: d.seen, Lost: d.lost.Packets - d.first.Packets, Records: d.table.records()}, nil
}

// Traffic is who talks to whom on this host, or on all: of many hosts the newest of each, as much as somebody may look at.
func (d *Desk) Traffic(ctx context.Context, of api.TrafficOf) (api.Traffic, error) {
	return d.traffic(ctx, of, shareOf)
}

// Begun is Traffic of this host.
func (d *Desk) Begun(ctx context.Context) (api.Traffic, error) {
	a, err := d.here(ctx)
	if err != nil {
		return api.Traffic{}, fmt.Errorf("count who talks to whom: %w", err)
	}
	return api.Traffic{
		Hosts:       []api.TrafficHost{{Name: d.cfg.Snapshot().HostName(d.cfg.Self), Since: a.Since, At: a.At, Lost: a.Lost}},
		Connections: Join(a.Records, false, time.Now()),
	}, nil
}

// Whole is Traffic with all that each host tells: what is learned of it is to lack nothing.
func (d *Desk) Whole(ctx context.Context, all bool) (api.Traffic, error) {
	return d.traffic(ctx, api.TrafficOf{All: all}, func(int) int { return maxRecords })
}

func (d *Desk) traffic(ctx context.Context, of api.TrafficOf, share func(hosts int) int) (api.Traffic, error) {
	snap := d.cfg.Snapshot()
	ids := []string{string(d.cfg.Self)}
	can := func(string) bool { return of.All }
	if of.All {
		if alive := d.cfg.Alive(); len(alive) > many {
			if hosts := canKnow(snap, of.Ends); hosts != nil {
				can = func(id string) bool { return hosts[cluster.NodeID(id)] }
			}
			ids = append(ids, slices.DeleteFunc(slices.Clone(alive), func(id string) bool { return !can(id) })...)
		} else {
			ids = append(ids, alive...)
		}
	}
	answers := make([]answer, len(ids))
	most := share(len(ids))
	ask.Each(len(ids), func(i int) {
		var err error
		if i == 0 {
			answers[i], err = d.here(ctx)
			answers[i].only(of)
		} else {
			answers[i], err = d.there(ctx, ids[i], of, most)
		}
		if err != nil {
			answers[i].Error = err.Error()
		}
	})
	if !of.All && answers[0].Error != "" {
		return api.Traffic{}, errors.New("count who talks to whom: " + answers[0].Error)
	}
	t := api.Traffic{}
	var records []*Record
	whole := of.All
	for i, a := range answers {
		name := ids[i]
		if n, ok := cluster.Get[cluster.Node](snap, ids[i]); ok {
			name = n.Name
		}
		t.Hosts = append(t.Hosts, api.TrafficHost{Name: name, Since: a.Since, At: a.At, Lost: a.Lost, Left: a.Left, Error: a.Error})
		if records == nil {
			records = a.Records
		} else {
			records = append(records, a.Records...)
		}
		whole = whole && a.Error == "" && a.Left == 0
	}
	for n := range cluster.All[cluster.Node](snap) {
		if can(string(n.ID)) && !slices.Contains(ids, string(n.ID)) {
			t.Hosts, whole = append(t.Hosts, api.TrafficHost{Name: n.Name, Error: "it does not answer"}), false
		}
	}
	t.Connections = Join(records, whole, time.Now())
	return t, nil
}
