// Package hold has this host lead the ports that all hosts of the cluster have (package expose) to containers: it holds
// each port with a socket, and keeps the rules that put a container's address in the place of this host's. Who speaks to
// the port keeps its own address. The rules stay when the agent ends.
package hold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/nft"
	"github.com/grapevine-net/grapevine/host/portreserve"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/service"
	"github.com/grapevine-net/grapevine/service/expose"
)

// Source is the cluster as the agent knows it. Replica is one.
type Source interface {
	Snapshot() *cluster.Snapshot
	Watch() (changed <-chan struct{})
}

// Config of a Room.
type Config struct {
	Self    cluster.NodeID
	Gateway string // the interface by which this host reaches containers
	Source  Source
	// Stand says how a host stands; nil: all answer.
	Stand service.Hosts
	// Publishes names who has published a port on this host (-p), "" if nobody has.
	Publishes func(proto string, port uint16) string
	// Heed says which exposures this host answers.
	Heed expose.Heed
	// Reserved says what a port of this host is for, "" if it is for nothing: such a one is nobody's.
	Reserved func(expose.Port) string
	// State is where it is noted who had a port before it was exposed; nil: that is known until the agent ends.
	State store.File
	// Publishers lists the containers that are to have ports of this host. It may take its time.
	Publishers func(context.Context) ([]Publisher, error)
	// Off: this kernel cannot do it.
	Off bool
	Log *slog.Logger
}

// Note says why this host does not answer an exposed port.
type Note struct {
	expose.Port
	Name string // the exposure's
	By   string // who has the port
	Away bool   // and may begin again: nobody has it now
	Next string // the container that is to have it then, if that is not By
	Err  error
}

// Stray is an exposed port of this host that a rule of another program leads elsewhere.
type Stray struct {
	expose.Port
	Name string         // the exposure's
	To   netip.AddrPort // where a connection went

	seen time.Time
}

const (
	// beat is how often it is asked how hosts stand, while ports are exposed.
	beat = 100 * time.Millisecond
	// glance is how often this host's addresses and the rules are looked at, and ports that others had are tried.
	glance = 2 * time.Second
	// peek is how often it is looked whether connections went elsewhere than where the rules lead, or, if that costs much,
	// peekShare times what it costs; memory is for how long one that did is told of.
	peek      = 10 * time.Second
	peekShare = 50
	memory    = 10 * time.Minute
	// settling is for how long the rules of an earlier agent stay: this one first hears what it has missed.
	settling = 3 * time.Second
)

// Room leads exposed ports. Use New. Of its methods only Run works; the others may be called concurrently.
type Room struct {
	cfg   Config
	begun time.Time
	held  portreserve.Sockets

	mu     sync.Mutex
	notes  []Note
	holds  map[expose.Port]string // exposures' names, by the ports that are held here
	gone   []Stray
	wanted map[expose.Port]string // exposures' names, by the ports that this host is to lead
	leads  table                  // what is led for certain; it is not changed any more
	err    error

	// Of Run's goroutine.
	rev        uint64 // of list, if seen
	seen       bool
	list       []expose.Exposure
	answers    map[cluster.NodeID]bool
	glanced    time.Time
	here       []netip.Addr
	refused    map[expose.Port]*Note
	past       *past
	known      bool // the rules are those of has
	has        table
	generation uint32
}

// New returns a Room. Nothing is done before Run.
func New(cfg Config) *Room {
	return &Room{cfg: cfg, begun: time.Now(), holds: map[expose.Port]string{}, refused: map[expose.Port]*Note{}, past: newPast(cfg)}
}

// Notes are the exposed ports that this host does not answer, in order.
func (r *Room) Notes() []Note {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.notes)
}

// Strays are the exposed ports whose connections a rule of another program led elsewhere in the last minutes, in order.
func (r *Room) Strays() []Stray {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []Stray
	for _, s := range r.gone {
		if r.wanted[s.Port] == s.Name {
			list = append(list, s)
		}
	}
	return list
}

// Err is why the rules are not as they should be; nil: they are.
func (r *Room) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Holder names the exposure for which this host holds a port, "" if it does not.
func (r *Room) Holder(proto string, port uint16) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.holds[expose.Port{UDP: proto == "udp", Port: port}]
}

// Run leads until ctx is done. The rules stay when it returns; the ports are free then.
func (r *Room) Run(ctx context.Context) error {
	defer r.held.Close()
	var asks sync.WaitGroup
	asks.Go(func() { r.past.inquire(ctx) })
	asks.Go(func() { r.watchStrays(ctx) })
	defer asks.Wait()
	for {
		changed := r.cfg.Source.Watch()
		busy := r.round(time.Now())
		var again <-chan time.Time
		if busy {
			again = time.After(beat)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-changed:
			select { // changes come in crowds
			case <-ctx.Done():
				return nil
			case <-time.After(beat / 2):
			}
		}
	}
}

// round does what is to be done now, and reports whether there is something to look after.
func (r *Room) round(now time.Time) (busy bool) {
	snap := r.cfg.Source.Snapshot()
	if !r.seen || snap.Rev() != r.rev {
		r.list, r.rev, r.seen = slices.DeleteFunc(expose.All(snap), func(e expose.Exposure) bool { return !r.cfg.Heed.Heeds(e) }), snap.Rev(), true
		r.answers = map[cluster.NodeID]bool{}
		for n := range cluster.All[cluster.Node](snap) {
			r.answers[n.ID] = n.Exposes
		}
	}
	if len(r.list) == 0 && r.known && len(r.has.ports) == 0 && len(r.holders()) == 0 && len(r.past.who) == 0 && len(r.refused) == 0 {
		return false
	}
	look := now.Sub(r.glanced) >= glance
	if look {
		r.glanced = now
		r.lookHere()
	}
	want := table{here: r.here, ports: map[front]expose.Back{}}
	hosts := expose.Hosts{Self: r.cfg.Self, Stand: r.cfg.Stand, Answers: func(id cluster.NodeID) bool { return r.answers[id] }}
	wanted := map[expose.Port]string{}
	for _, e := range r.list {
		if e.Loses != "" || e.Closed {
			continue
		}
		wanted[e.Port] = e.Name()
		if !r.hold(e, versionOf(snap, e), look, now) {
			continue
		}
		for _, v6 := range []bool{false, true} {
			want.ports[front{e.Port, v6}] = e.Choose(hosts, v6)
		}
	}
	r.release(wanted)
	err := r.lead(want, look, now)
	if text := errorText(err); text != errorText(r.Err()) && err != nil {
		r.cfg.Log.Warn("exposed ports do not lead where they should", "error", text)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err, r.wanted, r.leads = err, wanted, table{}
	if err == nil && r.known {
		r.leads = r.has
	}
	return len(r.list) > 0 || err != nil || !r.known || len(r.has.ports) > 0
}

// watchStrays looks for connections that went elsewhere, until ctx is done. It takes as long as the kernel's table is large, so
// it is not for who leads.
func (r *Room) watchStrays(ctx context.Context) {
	for wait := peek; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		begin := time.Now()
		r.peek(begin)
		wait = max(peek, peekShare*time.Since(begin))
	}
}

// peek notes which ports' connections went elsewhere.
func (r *Room) peek(now time.Time) {
	r.mu.Lock()
	leads := r.leads
	r.mu.Unlock()
	found := map[expose.Port]netip.AddrPort{}
	if len(leads.ports) > 0 {
		snap := r.cfg.Source.Snapshot()
		found = strayed(leads, func(a netip.Addr) bool {
			for s := range cluster.All[cluster.Subnet](snap) {
				if s.Prefix.Contains(a) {
					return true
				}
			}
			return false
		})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	gone := slices.DeleteFunc(slices.Clone(r.gone), func(s Stray) bool {
		_, again := found[s.Port]
		return again || r.wanted[s.Port] == "" || now.Sub(s.seen) > memory
	})
	for p, to := range found {
		if name := r.wanted[p]; name != "" {
			gone = append(gone, Stray{Port: p, Name: name, To: to, seen: now})
		}
	}
	slices.SortFunc(gone, func(a, b Stray) int {
		return cmp.Or(cmp.Compare(a.Port.Port, b.Port.Port), strings.Compare(a.Proto(), b.Proto()))
	})
	r.gone = gone
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// lookHere looks which addresses this host has, at which it can be reached from elsewhere: also such on lo, to which routers lead.
func (r *Room) lookHere() {
	devices, err := net.Interfaces()
	if err != nil {
		return // those from before stay
	}
	var here []netip.Addr
	for _, d := range devices {
		if d.Name == r.cfg.Gateway {
			continue
		}
		addrs, err := d.Addrs()
		if err != nil {
			continue // it is gone
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() {
				here = append(here, p.Addr().Unmap())
			}
		}
	}
	slices.SortFunc(here, netip.Addr.Compare)
	r.here = slices.Compact(here)
}

// hold takes a port for this host, and reports whether it has it. Who has it otherwise is asked when look is set.
func (r *Room) hold(e expose.Exposure, v cluster.Version, look bool, now time.Time) bool {
	had := r.past.who[e.Text()] != nil
	if f := r.past.has(e, v, look, now, func() (string, bool) { return r.hasNow(e) }); f != nil {
		r.refuse(&Note{Port: e.Port, Name: e.Name(), By: f.By, Away: !f.away.IsZero(), Next: f.next, Err: fmt.Errorf("port %s is in use", e.Text())})
		return false
	} else if had {
		delete(r.refused, e.Port) // so that it is tried at once
	}
	note, tried := r.refused[e.Port]
	if tried && !look {
		return false
	}
	if r.Holder(e.Proto(), e.Port.Port) == e.Name() && !look {
		return true
	}
	err := r.take(e)
	if err == nil {
		delete(r.refused, e.Port)
	} else {
		r.let(e.Port)
		n := &Note{Port: e.Port, Name: e.Name(), Err: err}
		if who, ok := errors.AsType[*published](err); ok {
			n.By = who.by
			r.past.note(e, v, n.By, now)
		} else if taken, ok := errors.AsType[*portreserve.TakenError](err); ok {
			if n.By = taken.By(); tried {
				n.By = cmp.Or(n.By, note.By)
			}
			if _, is := r.hasNow(e); is { // else it is a connection from that port: nobody to wait for
				r.past.note(e, v, n.By, now)
			}
		}
		r.refused[e.Port] = n
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if delete(r.holds, e.Port); err == nil {
		r.holds[e.Port] = e.Name()
	}
	r.tellNotes()
	return err == nil
}

// refuse tells why a port is not held.
func (r *Room) refuse(n *Note) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused[n.Port] = n
	r.tellNotes()
}

// published is the error of a port that a container has here by -p.
type published struct{ by string }

func (p *published) Error() string { return "it is published by " + p.by }

func (r *Room) take(e expose.Exposure) error {
	if r.cfg.Reserved != nil {
		if why := r.cfg.Reserved(e.Port); why != "" {
			return fmt.Errorf("on this host it is %s", why)
		}
	}
	if r.cfg.Publishes != nil {
		if who := r.cfg.Publishes(e.Proto(), e.Port.Port); who != "" {
			return &published{who}
		}
	}
	for _, at := range places(e.Port) {
		if err := r.held.Hold(e.Proto(), at); err != nil {
			return err
		}
	}
	return nil
}

func (r *Room) let(p expose.Port) {
	for _, at := range places(p) {
		r.held.Release(p.Proto(), at)
	}
}

// places are where a port is held: at all addresses of both families, as far as this host has them.
func places(p expose.Port) []netip.AddrPort {
	at := []netip.AddrPort{netip.AddrPortFrom(netip.IPv4Unspecified(), p.Port)}
	if portreserve.IPv6() {
		at = append(at, netip.AddrPortFrom(netip.IPv6Unspecified(), p.Port))
	}
	return at
}

// release lets go of the ports that are exposed no more.
func (r *Room) release(wanted map[expose.Port]string) {
	for p := range r.holders() {
		if wanted[p] == "" {
			r.let(p)
		}
	}
	r.past.keep(wanted)
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.holds, func(p expose.Port, _ string) bool { return wanted[p] == "" })
	maps.DeleteFunc(r.refused, func(p expose.Port, _ *Note) bool { return wanted[p] == "" })
	r.tellNotes()
}

func (r *Room) holders() map[expose.Port]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.holds)
}

// tellNotes makes Notes of what is refused. r.mu is held.
func (r *Room) tellNotes() {
	r.notes = nil
	for _, n := range r.refused {
		r.notes = append(r.notes, *n)
	}
	slices.SortFunc(r.notes, func(a, b Note) int {
		return cmp.Or(cmp.Compare(a.Port.Port, b.Port.Port), strings.Compare(a.Proto(), b.Proto()))
	})
}

// lead makes the rules those of want.
func (r *Room) lead(want table, look bool, now time.Time) error {
	if r.cfg.Off {
		if len(want.ports) > 0 {
			return errors.New("this kernel has no nftables that lead to containers (Linux 5.2 with nf_tables)")
		}
		r.known = true
		return nil
	}
	same := r.known && r.has.equal(want)
	if same && (!look || len(want.ports) == 0) {
		return nil
	}
	conn, err := nft.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	ours := nft.Table{Name: tableName, Family: nft.Inet}
	has := func() int {
		list, err := conn.Handles(ours)
		if err != nil {
			return 0
		}
		return len(list)
	}
	ruled := func() bool { return has() == rules }
	if !r.known && now.Sub(r.begun) < settling && has() > 0 {
		return nil // what an earlier agent led goes on
	}
	generation, err := conn.Generation()
	if err != nil {
		return err
	}
	if same && (generation == r.generation || ruled() && full(conn, content(r.cfg.Gateway, want))) {
		r.generation = generation
		return nil
	}
	was := map[front]bool{}
	for p := range r.has.ports {
		was[p] = true
	}
	if !r.known {
		for _, f := range families {
			keys, err := conn.Elements(ours, f.ports)
			if err != nil {
				return err
			}
			portsOf(keys, f.v6, was)
		}
	}
	if len(was) > 0 || len(want.ports) > 0 || has() > 0 {
		if err := conn.Do(whole(r.cfg.Gateway, want)); err != nil {
			return fmt.Errorf("set the rules of table inet %s: %w", tableName, err)
		}
		if err := forget(was, want); err != nil {
			r.cfg.Log.Debug("datagrams to replicas that are gone may go there for two minutes more", "error", err)
		}
	}
	// Of a change that another made meanwhile the number is not this one: then they are looked at once more.
	r.known, r.has, r.generation = true, want, generation+1
	return nil
}

func (t table) equal(o table) bool {
	return slices.Equal(t.here, o.here) && maps.EqualFunc(t.ports, o.ports, expose.Back.Equal)
}

// Purge removes the rules of an agent that is gone, and names them.
func Purge() ([]string, error) {
	conn, err := nft.Dial()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if list, err := conn.Handles(nft.Table{Name: tableName, Family: nft.Inet}); err != nil || len(list) == 0 {
		return nil, nil //nolint:nilerr // without nf_tables there are none
	}
	if err := conn.Do(gone()); err != nil {
		return nil, fmt.Errorf("remove table inet %s: %w", tableName, err)
	}
	return []string{"table inet " + tableName}, nil
}
