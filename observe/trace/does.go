package trace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"
	"golang.org/x/net/bpf"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/encap"
	"github.com/grapevine-net/grapevine/gossip"
	"github.com/grapevine-net/grapevine/host/packets"
	"github.com/grapevine-net/grapevine/observe/frames"
	"github.com/grapevine-net/grapevine/overlay/walk"
)

// Methods of calls about a real packet. A host is told to watch, one to send, and both what they saw.
const (
	methodWatch = "trace.watch"
	methodSend  = "trace.send"
	methodSeen  = "trace.seen"
)

const (
	tries    = 2                // a packet that is lost once is sent again, as TCP does
	patience = time.Second      // and so long it is waited for an answer
	longest  = 20 * time.Second // that a host watches, whatever happens
	mostRuns = 4                // packets at once, on one host
)

// Tap reads packets.
type Tap interface {
	Read() (packets.Packet, error)
	Close() error
}

// Wires is what a real packet needs of this host.
type Wires struct {
	// Container reads at the container's end of an endpoint, and Underlay where what goes to other hosts leaves and enters this one;
	// name is the interface's.
	Container func(endpoint string, filter []bpf.RawInstruction) (Tap, string, error)
	Underlay  func(filter []bpf.RawInstruction) (tap Tap, name string, err error)
	Encap     encap.Kind
	VXLANPort uint16 // of UDP; 0: it has none
	// Send sends a packet from within an endpoint's container.
	Send func(endpoint string, p frames.Probe) error
	// Routed fails if an endpoint's container has no route from its own address to another one.
	Routed func(endpoint string, from, to netip.Addr) error
	// Closed says that other hosts get nothing of this one's containers' packets.
	Closed bool
	Log    *slog.Logger
}

// probes are the packets that begin nothing, by protocol.
var probes = map[uint8]string{walk.TCP: "TCP SYN", walk.UDP: "empty UDP datagram", walk.ICMP: "ICMP echo request", walk.ICMPv6: "ICMP echo request"}

// order is a real packet as one host tells another.
type order struct {
	ID     uint64       `cbor:"1,keyasint"`
	Probe  frames.Probe `cbor:"2,keyasint"`
	Points []string     `cbor:"3,keyasint"` // endpoints whose containers are watched; empty: the underlay
	From   string       `cbor:"4,keyasint,omitempty"`
}

// watched says of each point of an order which interface it is, or why it is not watched.
type watched struct {
	Names   []string `cbor:"1,keyasint"`
	Lacking []string `cbor:"2,keyasint"`
	// NoWay says why the container that is sent to has no route for the answer.
	NoWay string `cbor:"3,keyasint,omitempty"`
}

// sighting is a packet that was seen.
type sighting struct {
	Point  int           `cbor:"1,keyasint"`
	Back   bool          `cbor:"2,keyasint,omitempty"`
	Answer frames.Answer `cbor:"3,keyasint,omitempty"`
	// To is where the packet itself goes, if that is not where it was sent.
	To     netip.Addr `cbor:"4,keyasint,omitempty"`
	ToPort uint16     `cbor:"5,keyasint,omitempty"`
}

type seen struct {
	Sightings []sighting    `cbor:"1,keyasint"`
	Took      time.Duration `cbor:"2,keyasint,omitempty"` // until the answer, at the sender
}

// run is a packet that this host watches for.
type run struct {
	order
	answered chan struct{} // closed when an answer has come to the first point

	mu    sync.Mutex
	taps  []Tap
	list  []sighting
	sent  bool // its one packet
	ended bool // no tap is opened any more
}

// seat is a run of a host, by the number that it has there.
type seat struct {
	node string
	id   uint64
}

// runs are those of this host.
type runs struct {
	wires Wires
	snap  func() *cluster.Snapshot
	self  cluster.NodeID

	mu  sync.Mutex
	all map[seat]*run
}

// watch begins to look for a packet.
func (r *runs) watch(at seat, o order) (w watched, err error) {
	snap := r.snap()
	if len(o.Points) == 0 || len(o.Points) > 3 {
		return w, fmt.Errorf("%d places to watch at: at most 3", len(o.Points))
	}
	for _, id := range append(slices.Clone(o.Points), o.From) {
		if e, _ := cluster.Get[cluster.Endpoint](snap, id); id != "" && e.Host != r.self {
			return w, fmt.Errorf("endpoint %.12s is not on this host any more", id)
		}
	}
	if from, _ := cluster.Get[cluster.Endpoint](snap, o.From); o.From != "" && !slices.Contains(from.Addrs, o.Probe.Src) {
		return w, fmt.Errorf("%s is no address of endpoint %.12s", o.Probe.Src, o.From)
	}
	if probes[o.Probe.Proto] == "" {
		return w, fmt.Errorf("of protocol %d no packet begins nothing", o.Probe.Proto)
	}
	run := &run{order: o, answered: make(chan struct{})}
	r.mu.Lock()
	if len(r.all) >= mostRuns || r.all[at] != nil {
		r.mu.Unlock()
		return w, fmt.Errorf("%d packets are traced on its host already: try again", mostRuns)
	}
	r.all[at] = run
	r.mu.Unlock()
	time.AfterFunc(longest, func() { r.end(at) })
	if at.node != string(r.self) {
		r.wires.Log.Info("a packet of containers here is traced", "asked by", snap.HostName(cluster.NodeID(at.node)), "from", o.Probe.Src, "to", o.Probe.Dst)
	}
	for i, endpoint := range o.Points {
		tap, name, err := r.open(endpoint, o.Probe)
		w.Names, w.Lacking = append(w.Names, name), append(w.Lacking, "")
		if err != nil {
			w.Lacking[i] = err.Error()
			continue
		}
		run.mu.Lock()
		ended := run.ended // who asked did not wait for the answer
		if !ended {
			run.taps = append(run.taps, tap)
		}
		run.mu.Unlock()
		if ended {
			_ = tap.Close()
			return w, errors.New("the trace is over")
		}
		go run.look(i, endpoint == "", tap)
		if endpoint != "" && endpoint != o.From && r.wires.Routed != nil {
			if err := r.wires.Routed(endpoint, o.Probe.Dst, o.Probe.Src); err != nil && stuck(err) {
				w.NoWay = err.Error()
			}
		}
	}
	return w, nil
}

func (r *runs) open(endpoint string, p frames.Probe) (Tap, string, error) {
	if endpoint == "" {
		filter, err := p.Tunnelled(r.wires.Encap, r.wires.VXLANPort)
		if err != nil {
			return nil, "", err
		}
		return r.wires.Underlay(filter)
	}
	filter, err := p.Program()
	if err != nil {
		return nil, "", err
	}
	return r.wires.Container(endpoint, filter)
}

// look notes what passes, until the tap is closed.
func (r *run) look(point int, inside bool, tap Tap) {
	for {
		p, err := tap.Read()
		if err != nil {
			return
		}
		data := p.Data
		if inside {
			data = frames.Inner(data)
		}
		mine, answer := r.Probe.Sight(data)
		if !mine {
			continue
		}
		s := sighting{Point: point, Back: answer != frames.None, Answer: answer}
		if f := frames.Read(data); !s.Back && f.To != r.Probe.Dst {
			s.To, s.ToPort = f.To, f.ToPort
		}
		r.mu.Lock()
		first := !slices.Contains(r.list, s)
		if first {
			r.list = append(r.list, s)
		}
		if first && s.Back && point == 0 && r.From != "" {
			select {
			case <-r.answered:
			default:
				close(r.answered)
			}
		}
		r.mu.Unlock()
	}
}

// send sends the packet of a run, and waits for the answer.
func (r *runs) send(ctx context.Context, at seat) (seen, error) {
	r.mu.Lock()
	run := r.all[at]
	r.mu.Unlock()
	if run == nil || run.From == "" {
		return seen{}, errors.New("there is no such packet to send")
	}
	run.mu.Lock()
	sent := run.sent
	run.sent = true
	run.mu.Unlock()
	if sent {
		return seen{}, errors.New("the packet was sent already: one is, of each trace")
	}
	for range tries {
		began := time.Now()
		if err := r.wires.Send(run.From, run.Probe); err != nil {
			return seen{}, err
		}
		select {
		case <-run.answered:
			return seen{Took: time.Since(began)}, nil
		case <-time.After(patience):
		case <-ctx.Done():
			return seen{}, ctx.Err()
		}
	}
	return seen{}, nil
}

// end ends a run and says what was seen.
func (r *runs) end(at seat) (s seen) {
	r.mu.Lock()
	run := r.all[at]
	delete(r.all, at)
	r.mu.Unlock()
	if run == nil {
		return s
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	run.ended = true
	for _, t := range run.taps {
		_ = t.Close()
	}
	return seen{Sightings: run.list}
}

// methods answer other hosts.
func (r *runs) methods() map[string]func(ctx context.Context, from string, body []byte) ([]byte, error) {
	serve := func(f func(context.Context, seat, order) (any, error)) func(context.Context, string, []byte) ([]byte, error) {
		return func(ctx context.Context, from string, body []byte) ([]byte, error) {
			var o order
			if err := cbor.Unmarshal(body, &o); err != nil {
				return nil, fmt.Errorf("read the question: %w", err)
			}
			if r.wires.Closed && from != string(r.self) {
				return nil, errors.New("its containers' packets are for root there alone (GRAPEVINE_CAPTURE=off): run this there")
			}
			answer, err := f(ctx, seat{from, o.ID}, o)
			if err != nil {
				return nil, err
			}
			return cbor.Marshal(answer)
		}
	}
	return map[string]func(context.Context, string, []byte) ([]byte, error){
		methodWatch: serve(func(_ context.Context, at seat, o order) (any, error) { return r.watch(at, o) }),
		methodSend:  serve(func(ctx context.Context, at seat, _ order) (any, error) { return r.send(ctx, at) }),
		methodSeen:  serve(func(_ context.Context, at seat, _ order) (any, error) { return r.end(at), nil }),
	}
}

// stuck reports whether a container's kernel has no way for a packet: no route, one that refuses or swallows it, no device, no room in
// a queue; and held whether a rule inside of the container holds it back. Of another host's there are words alone.
func stuck(err error) bool {
	return endsIn(err, unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ENETDOWN, unix.EADDRNOTAVAIL, unix.ENODEV, unix.EACCES, unix.EINVAL, unix.ENOBUFS)
}

func held(err error) bool { return endsIn(err, unix.EPERM) }

func endsIn(err error, list ...unix.Errno) bool {
	return slices.ContainsFunc(list, func(e unix.Errno) bool { return strings.HasSuffix(err.Error(), e.Error()) })
}

// does sends a real packet and says how far it came. c has an endpoint that sends it.
func (d *Desk) does(ctx context.Context, snap *cluster.Snapshot, c connection) *api.TracePacket {
	p := frames.Probe{Src: c.packet.Src, Dst: c.packet.Dst, Proto: c.packet.Proto, From: c.source, To: c.packet.To}
	out := &api.TracePacket{What: probes[p.Proto]}
	switch {
	case out.What == "":
		out.Error = "of this protocol no packet begins nothing: none was sent"
		return out
	case c.from.ID == "":
		out.Error = "only containers are sent from"
		return out
	}
	id := rand.Uint64()
	orders := []*errand{{host: c.from.Host, order: order{ID: id, Probe: p, Points: []string{c.from.ID}, From: c.from.ID}}}
	switch {
	case c.to.ID == "":
	case c.to.Host == c.from.Host:
		orders[0].Points = append(orders[0].Points, c.to.ID)
	case encrypted(snap, c.from) || encrypted(snap, c.to): // nobody sees it between the hosts
		orders = append([]*errand{{host: c.to.Host, order: order{ID: id, Probe: p, Points: []string{c.to.ID}}}}, orders...)
	default:
		orders[0].Points = append(orders[0].Points, "")
		orders = append([]*errand{{host: c.to.Host, order: order{ID: id, Probe: p, Points: []string{"", c.to.ID}}}}, orders...)
	}
	for _, e := range orders {
		if err := d.tell(ctx, e, methodWatch, &e.watched); err != nil {
			e.failed = err
			out.Notes = append(out.Notes, fmt.Sprintf("not watched: host %s: %v", snap.HostName(e.host), err))
		}
		out.NoWay = cmp.Or(out.NoWay, e.watched.NoWay)
	}
	sender := orders[len(orders)-1]
	if err := sender.failed; err != nil {
		out.Error, out.Failed = err.Error(), true
	} else if err := d.tell(ctx, sender, methodSend, &sender.sent); err != nil {
		out.Error, out.Failed, out.Stuck, out.Held = err.Error(), true, stuck(err), held(err)
	}
	for _, e := range orders {
		if e.failed == nil {
			if err := d.tell(ctx, e, methodSeen, &e.seen); err != nil {
				e.failed = err
				out.Notes = append(out.Notes, fmt.Sprintf("host %s: %v", snap.HostName(e.host), err))
			}
		}
	}
	if out.Error != "" {
		return out
	}
	slices.Reverse(orders) // the sender first
	out.Points, out.Answer = points(snap, orders)
	out.To = ledTo(sender.seen.Sightings)
	if out.Answer != "" {
		out.Milliseconds = max(0.001, float64(sender.sent.Took.Microseconds())/1000)
	}
	return out
}

// encrypted says that what the endpoint's network sends is encrypted between hosts.
func encrypted(snap *cluster.Snapshot, e cluster.Endpoint) bool {
	n, _ := cluster.Get[cluster.Network](snap, e.Network)
	return n.Encrypted()
}

// errand is what a host does for a packet.
type errand struct {
	order
	host    cluster.NodeID
	watched watched
	sent    seen
	seen    seen
	failed  error
}

// tell has a host do a part of it.
func (d *Desk) tell(ctx context.Context, e *errand, method string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, callPatience+tries*patience)
	defer cancel()
	body, err := cbor.Marshal(e.order)
	if err != nil {
		return err
	}
	var said []byte
	if e.host == d.cfg.Self {
		said, err = d.runs.methods()[method](ctx, string(d.cfg.Self), body)
	} else {
		said, err = d.cfg.Call(ctx, string(e.host), method, body)
	}
	var remote *gossip.RemoteError
	switch {
	case errors.As(err, &remote) && strings.HasPrefix(remote.Text, "unknown method"):
		return errors.New("its agent is of an older version")
	case remote != nil:
		return errors.New(remote.Text)
	case err != nil:
		return err
	}
	return cbor.Unmarshal(said, answer)
}

// ledTo is where a packet went when it left its container, if it was sent elsewhere.
func ledTo(list []sighting) netip.AddrPort {
	for _, s := range list {
		if s.Point == 0 && s.To.IsValid() {
			return netip.AddrPortFrom(s.To, s.ToPort)
		}
	}
	return netip.AddrPort{}
}

// answers in words.
var answers = map[frames.Answer]string{frames.Accepted: "open", frames.Refused: "refused", frames.Echoed: "echo", frames.Replied: "datagram", frames.Unreachable: "unreachable"}

// points are the places in the order in which the packet, and then the answer, pass them; those that are watched.
func points(snap *cluster.Snapshot, orders []*errand) (list []api.TracePoint, answer string) {
	for _, e := range orders {
		if e.failed != nil {
			continue
		}
		for i, endpoint := range e.Points {
			if i >= len(e.watched.Names) || e.watched.Lacking[i] != "" {
				continue
			}
			at := api.TracePoint{Host: snap.HostName(e.host), Place: e.watched.Names[i], Container: ""}
			if endpoint != "" {
				at.Container = containerName(snap, endpoint)
			} else if n, ok := cluster.Get[cluster.Node](snap, string(e.host)); ok {
				at.Encap = n.Encap
			}
			at.Seen = slices.ContainsFunc(e.seen.Sightings, func(s sighting) bool { return s.Point == i && !s.Back })
			list = append(list, at)
		}
	}
	back := slices.Clone(list)
	slices.Reverse(back)
	for i := range back {
		back[i].Back, back[i].Seen = true, false
	}
	for _, e := range orders {
		for _, s := range e.seen.Sightings {
			for i := range back {
				if s.Back && back[i].Host == snap.HostName(e.host) && back[i].Place == e.watched.Names[s.Point] && (back[i].Container == "") == (e.Points[s.Point] == "") {
					if e.Points[s.Point] == "" || back[i].Container == containerName(snap, e.Points[s.Point]) {
						back[i].Seen = true
					}
				}
			}
			if s.Back && s.Point == 0 && e.From != "" {
				answer = cmp.Or(answer, answers[s.Answer])
			}
		}
	}
	list = append(list, back...)
	for i := len(list) - 1; i > 0; i-- { // what was seen further on has been here
		list[i-1].Seen = list[i-1].Seen || list[i].Seen
	}
	return list, answer
}
