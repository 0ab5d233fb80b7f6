// Package capture gives people the packets of a container: taken inside its sandbox, since the host's end
// of its veth does not see what the fast path hands over, on whichever host of the cluster it is.
package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/bpf"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/view"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/packets"
	"github.com/grapevine-net/grapevine/observe/frames"
	"github.com/grapevine-net/grapevine/observe/pcapng"
)

// Config of a Desk.
type Config struct {
	Self     cluster.NodeID
	Version  string
	Snapshot func() *cluster.Snapshot
	// Call asks another host (gossip.Gossip.Call).
	Call func(ctx context.Context, node, method string, body []byte) ([]byte, error)
	// Open reads the packets of an endpoint of this host, at the container's end.
	Open func(endpoint string, filter []bpf.RawInstruction) (Tap, Place, error)
	// Consent is what other hosts get: headers, full or off.
	Consent string
	Log     *slog.Logger
}

// Place is an interface inside a container.
type Place struct {
	Name string
	MAC  net.HardwareAddr
}

// Desk is where captures are asked for, by people here and by other hosts.
type Desk struct {
	cfg Config

	mu      sync.Mutex
	life    context.Context // nil: Run has not begun
	running map[string]int  // by the host that asks; "": people here
	others  map[seat]*session
}

// seat is a session of another host, by the number that it has there.
type seat struct {
	node string
	id   uint64
}

// New makes a Desk.
func New(cfg Config) *Desk {
	return &Desk{cfg: cfg, others: map[seat]*session{}, running: map[string]int{}}
}

// Run lets captures go on until ctx ends.
func (d *Desk) Run(ctx context.Context) error {
	d.mu.Lock()
	d.life = ctx
	d.mu.Unlock()
	<-ctx.Done()
	return nil
}

// order is a capture as one host tells another.
type order struct {
	Endpoints []string      `cbor:"1,keyasint"`
	Peers     []netip.Addr  `cbor:"2,keyasint,omitempty"`
	Proto     string        `cbor:"3,keyasint,omitempty"`
	Port      uint16        `cbor:"4,keyasint,omitempty"`
	Packets   uint64        `cbor:"5,keyasint,omitempty"`
	Bytes     uint64        `cbor:"6,keyasint,omitempty"`
	Time      time.Duration `cbor:"7,keyasint,omitempty"`
}

func (o order) filter() frames.Filter {
	return frames.Filter{Peers: o.Peers, Proto: o.Proto, Port: o.Port}
}

func wrong(format string, args ...any) error {
	return api.Errorf(http.StatusBadRequest, format, args...)
}

// Capture writes what is asked for to w, until it ends or ctx does.
func (d *Desk) Capture(ctx context.Context, r api.CaptureRequest, w io.Writer) (api.CaptureEnd, error) {
	snap := d.cfg.Snapshot()
	o, host, err := orderOf(snap, r)
	if err != nil {
		return api.CaptureEnd{}, wrong("capture the packets of %s: %v", r.Container, err)
	}
	var from source
	if host == d.cfg.Self {
		s, err := d.begin(o, "", false)
		if err != nil {
			return api.CaptureEnd{}, fmt.Errorf("capture the packets of %s: %w", r.Container, err)
		}
		from = local{s}
	} else {
		if from, err = d.beginThere(ctx, host, o); err != nil {
			return api.CaptureEnd{}, fmt.Errorf("capture the packets of %s on host %s: %w", r.Container, snap.HostName(host), err)
		}
	}
	defer from.close()
	return pump(ctx, from, w)
}

// source is where the bytes of a capture come from.
type source interface {
	// next waits until ctx ends for more of them; done says that there are no more.
	next(ctx context.Context) (b []byte, done bool, end api.CaptureEnd, err error)
	close()
}

// pump writes all that comes. That the reader went away is no error of the capture.
func pump(ctx context.Context, from source, w io.Writer) (api.CaptureEnd, error) {
	for {
		b, done, end, err := from.next(ctx)
		if err != nil || ctx.Err() != nil {
			return end, err
		}
		if len(b) > 0 {
			if _, err := w.Write(b); err != nil {
				return end, err
			}
		}
		if done {
			return end, nil
		}
	}
}

// local is a session of this host.
type local struct{ *session }

func (l local) next(ctx context.Context) ([]byte, bool, api.CaptureEnd, error) {
	const most = 1 << 20
	l.mu.Lock()
	from := l.before
	l.mu.Unlock()
	b, done, end := l.take(ctx, from, most)
	l.take(ctx, from+uint64(len(b)), 0)
	return b, done, end, nil
}

func (l local) close() { l.release() }

// orderOf finds out what a request is about, and on which host that is.
func orderOf(snap *cluster.Snapshot, r api.CaptureRequest) (o order, host cluster.NodeID, err error) {
	o = order{Proto: r.Proto, Port: r.Port, Packets: r.Packets, Bytes: r.Bytes, Time: time.Duration(r.Seconds * float64(time.Second))}
	list, err := view.EndpointsOf(snap, r.Container)
	if err != nil {
		return o, "", err
	}
	for _, e := range list {
		if e.Host != list[0].Host || e.Container != list[0].Container {
			return o, "", fmt.Errorf("several containers are called so, %s and %s: name one by its ID (`grapevine ps` lists them)", whose(snap, list[0]), whose(snap, e))
		}
		o.Endpoints = append(o.Endpoints, e.ID)
	}
	if r.Peer != "" {
		if o.Peers, err = addressesOf(snap, r.Peer); err != nil {
			return o, "", fmt.Errorf("its peer: %w", err)
		}
	}
	if r.Seconds < 0 || o.Time < 0 {
		return o, "", fmt.Errorf("for %g seconds is no time", r.Seconds)
	}
	return o, list[0].Host, o.filter().Check()
}

// addressesOf are all addresses of a container, or the one that the text is.
func addressesOf(snap *cluster.Snapshot, text string) (list []netip.Addr, err error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return []netip.Addr{a.Unmap().WithZone("")}, nil
	}
	endpoints, err := view.EndpointsOf(snap, text)
	for _, e := range endpoints {
		list = append(list, e.Addrs...)
	}
	return list, err
}

func whose(snap *cluster.Snapshot, e cluster.Endpoint) string {
	return fmt.Sprintf("%.12s on host %s", cmp.Or(e.Container, e.ID), snap.HostName(e.Host))
}

const (
	maxSessions  = 8  // on one host at once
	maxOthers    = 6  // of these, those of other hosts: people here always have some
	maxOfHost    = 3  // and those of one other host
	maxEndpoints = 32 // of a container
)

// begin begins a capture on this host, for another host or (empty) for people here.
func (d *Desk) begin(o order, host string, cut bool) (*session, error) {
	snap, asker := d.cfg.Snapshot(), "this host"
	if host != "" {
		asker = "host " + snap.HostName(cluster.NodeID(host))
	}
	filter, err := o.filter().Program()
	if err != nil {
		return nil, err
	}
	if len(o.Endpoints) == 0 || len(o.Endpoints) > maxEndpoints {
		return nil, fmt.Errorf("%d networks of a container: at most %d", len(o.Endpoints), maxEndpoints)
	}
	life, err := d.enter(host)
	if err != nil {
		return nil, err
	}
	var taps []Tap
	undo := func(err error) (*session, error) {
		for _, t := range taps {
			_ = t.Close()
		}
		d.leave(host)
		return nil, err
	}
	var places []pcapng.Interface
	var endpoints []cluster.Endpoint
	for _, id := range o.Endpoints {
		e, ok := cluster.Get[cluster.Endpoint](snap, id)
		if !ok || e.Host != d.cfg.Self {
			return undo(fmt.Errorf("endpoint %.12s is not on this host any more", id))
		}
		tap, place, err := d.cfg.Open(id, filter)
		if err != nil {
			return undo(err)
		}
		taps, endpoints = append(taps, tap), append(endpoints, e)
		places = append(places, d.place(snap, e, place, len(o.Endpoints) > 1))
	}
	name := cmp.Or(endpoints[0].Name, endpoints[0].ID[:12])
	log := d.cfg.Log.With("container", name, "asked by", asker)
	log.Info("packets of a container are captured", "headers only", cut)
	s := begin(life, bounds{o.Packets, o.Bytes, o.Time}, cut, taps, head(snap, d.cfg, name, endpoints, places))
	s.release = sync.OnceFunc(func() {
		s.end("")
		close(s.released)
		d.leave(host)
		s.mu.Lock()
		defer s.mu.Unlock()
		log.Info("packets of a container are captured no longer", "packets", s.Packets, "why", cmp.Or(s.Why, "the asker has gone"))
	})
	return s, nil
}

// enter takes one of the places for captures, for another host or (empty) for people here.
func (d *Desk) enter(host string) (context.Context, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.life == nil || d.life.Err() != nil {
		return nil, errors.New("its agent is starting, or stops: try again")
	}
	all := 0
	for _, n := range d.running {
		all += n
	}
	switch others := all - d.running[""]; {
	case all >= maxSessions:
		return nil, fmt.Errorf("%d captures run on its host already: end one of them first", all)
	case host != "" && d.running[host] >= maxOfHost:
		return nil, fmt.Errorf("%d captures run there that were begun on this host, at most %d can: end one of them first, or run this there", d.running[host], maxOfHost)
	case host != "" && others >= maxOthers:
		return nil, fmt.Errorf("%d captures run there that other hosts began, at most %d can: end one of them first, or run this there", others, maxOthers)
	}
	d.running[host]++
	return d.life, nil
}

func (d *Desk) leave(host string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running[host]--; d.running[host] == 0 {
		delete(d.running, host)
	}
}

// place is an interface as the capture has it.
func (d *Desk) place(snap *cluster.Snapshot, e cluster.Endpoint, p Place, several bool) pcapng.Interface {
	i := pcapng.Interface{Name: cmp.Or(e.Name, e.ID[:12]) + "@" + snap.HostName(e.Host), MAC: p.MAC, Snap: packets.Snap}
	if several {
		i.Name += "/" + e.Network
	}
	var addrs []string
	for _, a := range e.Addrs {
		addrs = append(addrs, a.String())
	}
	n, _ := cluster.Get[cluster.Network](snap, e.Network)
	i.Description = fmt.Sprintf("%s in container %.12s, network %s (VNID %d), %s", p.Name, e.Container, e.Network, n.VNID, strings.Join(addrs, ", "))
	return i
}

// head is what stands before the first packet.
func head(snap *cluster.Snapshot, cfg Config, name string, endpoints []cluster.Endpoint, places []pcapng.Interface) []byte {
	b := pcapng.Section{
		Application: "grapevine " + cfg.Version, OS: runtime.GOOS,
		Comment: fmt.Sprintf("packets of container %s on host %s, inside its sandbox", name, snap.HostName(cfg.Self)),
	}.Append(nil)
	for _, p := range places {
		b = p.Append(b)
	}
	return namesFor(snap, endpoints).Append(b)
}

// maxNames bounds the names that a capture has with it.
const maxNames = 4096

// namesFor are what addresses are called: those of the endpoints' own networks first, the others with the network.
func namesFor(snap *cluster.Snapshot, endpoints []cluster.Endpoint) pcapng.Names {
	names := pcapng.Names{}
	own := func(network string) bool {
		return slices.ContainsFunc(endpoints, func(e cluster.Endpoint) bool { return e.Network == network })
	}
	for s := range cluster.All[cluster.Subnet](snap) {
		if own(s.Network) && s.Gateway.IsValid() {
			names[s.Gateway] = "gateway"
		}
	}
	for n := range cluster.All[cluster.Node](snap) {
		if a := n.Address(); a.IsValid() && len(names) < maxNames {
			names[a.Unmap()] = n.Name
		}
	}
	for _, here := range []bool{true, false} {
		for e := range cluster.All[cluster.Endpoint](snap) {
			if own(e.Network) != here || e.Name == "" {
				continue
			}
			for _, a := range e.Addrs {
				if names[a] == "" && len(names) < maxNames {
					names[a] = e.Name
					if !here {
						names[a] += "." + e.Network
					}
				}
			}
		}
	}
	return names
}
