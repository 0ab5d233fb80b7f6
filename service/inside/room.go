package inside

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/netns"
	"github.com/grapevine-net/grapevine/host/nft"
	"github.com/grapevine-net/grapevine/service"
)

// Source is the cluster as the agent knows it. Replica is one.
type Source interface {
	Snapshot() *cluster.Snapshot
	// Watch returns a channel that is closed at the next change.
	Watch() (changed <-chan struct{})
}

// Next gets the same calls, in the same order for each endpoint: an endpoint is attached there when its container has
// its rules. *dns.Server is one: nobody is told an address that leads nowhere yet. No call may block.
type Next interface {
	Attach(endpoint, key string)
	Detach(endpoint string)
}

// Config of a Room.
type Config struct {
	Source Source
	// Hosts says how a host stands; nil: all answer.
	Hosts service.Hosts
	Next  Next
	// Off: this kernel cannot do it (Can).
	Off bool
	Log *slog.Logger
}

const (
	// beat is how often it is asked how hosts stand, while there are services.
	beat = 100 * time.Millisecond
	// breath is how long a change waits for others to come with it.
	breath = 50 * time.Millisecond
	// settling is for how long the rules of an earlier agent stay: this one first hears what it has missed.
	settling = 3 * time.Second
	// again is how long what failed is left alone.
	again = 5 * time.Second
	// trust is for how long rules are taken for what they were: who may administer a container's network can change
	// them. They are looked at when some were not for twice as long, and then all that were not for as long.
	trust = 4 * time.Second
)

// Room keeps the rules in the sandboxes of this host's containers. Use New.
type Room struct {
	cfg    Config
	begun  time.Time
	settle time.Duration
	trust  time.Duration
	wake   chan struct{} // capacity 1
	wait   sync.WaitGroup

	mu        sync.Mutex
	run       context.Context // nil: Run was not called yet, or is over
	book      *service.Book
	sandboxes map[string]*sandbox // by key
}

// sandbox is a container's network namespace.
type sandbox struct {
	key string
	// What the room's mutex covers.
	endpoints []string
	pending   []string           // of which Next has not been told yet
	failed    string             // why its rules are not as they should be
	live      context.Context    // until its last endpoint is gone; nil before Run
	end       context.CancelFunc // of live

	work sync.Mutex // covers what follows, and the rules
	// known: the rules are those of has, which is what the book said at rev for the endpoints of.
	known bool
	has   service.Table
	rev   uint64
	of    []string
	retry time.Time
	// generation is that of the namespace's nf_tables when the rules were known, looked is when they were.
	generation uint32
	looked     time.Time
}

// New returns a Room. Nothing is done before Run.
func New(cfg Config) *Room {
	return &Room{cfg: cfg, begun: time.Now(), settle: settling, trust: trust, wake: make(chan struct{}, 1), book: service.NewBook(), sandboxes: map[string]*sandbox{}}
}

// Attach has a container's connections led where they should go. key is the file of its network namespace, which may
// come later than the call. It does not block, and may be called again, and before Run.
func (r *Room) Attach(endpoint, key string) {
	if r.cfg.Off {
		r.cfg.Next.Attach(endpoint, key)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[key]
	if s == nil {
		s = &sandbox{key: key}
		r.sandboxes[key] = s
	}
	if !slices.Contains(s.endpoints, endpoint) {
		s.endpoints = append(slices.Clone(s.endpoints), endpoint)
	}
	s.pending = append(s.pending, endpoint)
	r.bring(s)
}

// bring tells Next of a sandbox's endpoints, as soon as it has its rules. r.mu is held.
func (r *Room) bring(s *sandbox) {
	if r.run == nil || r.run.Err() != nil {
		return
	}
	r.book.Advance(r.cfg.Source.Snapshot())
	if r.book.Services() == 0 { // the way of nearly all
		r.passOn(s)
		r.poke()
		return
	}
	if s.live == nil {
		s.live, s.end = context.WithCancel(r.run)
	}
	live := s.live
	r.wait.Go(func() {
		ns, err := netns.Wait(live, s.key)
		if err == nil {
			r.refresh(s, ns)
			_ = ns.Close()
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.passOn(s)
	})
}

// passOn tells Next. r.mu is held, so that an end does not overtake it.
func (r *Room) passOn(s *sandbox) {
	for _, endpoint := range s.pending {
		r.cfg.Next.Attach(endpoint, s.key)
	}
	s.pending = nil
}

// Detach ends what Attach began. Detaching what is not attached is no error.
func (r *Room) Detach(endpoint string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, s := range r.sandboxes {
		if !slices.Contains(s.endpoints, endpoint) {
			continue
		}
		not := func(e string) bool { return e == endpoint }
		s.endpoints, s.pending = slices.DeleteFunc(slices.Clone(s.endpoints), not), slices.DeleteFunc(s.pending, not)
		if len(s.endpoints) == 0 && s.end != nil {
			s.end()
			s.live, s.end = nil, nil
		}
		if r.run == nil || r.run.Err() != nil {
			r.drop(key)
			continue
		}
		r.wait.Go(func() {
			r.look(s) // it may live on, on other networks
			r.mu.Lock()
			defer r.mu.Unlock()
			r.drop(key)
		})
	}
	r.cfg.Next.Detach(endpoint)
}

// drop forgets a sandbox that has no endpoints. r.mu is held.
func (r *Room) drop(key string) {
	if s := r.sandboxes[key]; s != nil && len(s.endpoints) == 0 {
		delete(r.sandboxes, key)
	}
}

// Failed says of the sandboxes whose rules are not as they should be why, by the endpoints that are in them.
func (r *Room) Failed() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	failed := map[string]string{}
	for _, s := range r.sandboxes {
		for _, e := range s.endpoints {
			if s.failed != "" {
				failed[e] = s.failed
			}
		}
	}
	return failed
}

func (r *Room) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run keeps the rules as they should be until ctx is done. They stay when it returns: the next agent takes them over.
func (r *Room) Run(ctx context.Context) error {
	if r.cfg.Off {
		return nil
	}
	r.mu.Lock()
	r.run = ctx
	for _, s := range r.sandboxes {
		r.bring(s)
	}
	r.mu.Unlock()
	settled := time.AfterFunc(r.settle, r.poke)
	defer settled.Stop()
	for ctx.Err() == nil {
		changed := r.cfg.Source.Watch()
		r.pass(ctx)
		r.pause(ctx, changed)
	}
	r.mu.Lock()
	r.run = nil
	r.mu.Unlock()
	r.wait.Wait()
	return nil
}

// pause returns when there is something to look at.
func (r *Room) pause(ctx context.Context, changed <-chan struct{}) {
	for {
		var ask <-chan time.Time
		r.mu.Lock()
		services := r.book.Services()
		r.mu.Unlock()
		if services > 0 || r.owes(0) {
			ask = time.After(beat)
		}
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
			return
		case <-changed:
			sleep(ctx, breath)
			return
		case <-ask:
			r.mu.Lock()
			differs := r.book.Look(r.cfg.Hosts)
			r.mu.Unlock()
			if differs || r.owes(2*r.trust) {
				return
			}
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// owes reports whether something that failed is to be tried again, or rules were not looked at for that long; 0: whether
// it failed at all.
func (r *Room) owes(unseen time.Duration) bool {
	return slices.ContainsFunc(r.all(), func(s *sandbox) bool {
		s.work.Lock()
		defer s.work.Unlock()
		switch {
		case unseen == 0:
			return !s.retry.IsZero()
		case !s.retry.IsZero():
			return time.Now().After(s.retry)
		}
		return len(s.has) > 0 && time.Since(s.looked) > unseen
	})
}

func (r *Room) all() (list []*sandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sandboxes {
		list = append(list, s)
	}
	return list
}

func (r *Room) pass(ctx context.Context) {
	r.mu.Lock()
	r.book.Advance(r.cfg.Source.Snapshot())
	r.book.Look(r.cfg.Hosts)
	r.mu.Unlock()
	for _, s := range r.all() {
		if ctx.Err() == nil {
			r.look(s)
		}
	}
}

// look sees to a sandbox, if it is there.
func (r *Room) look(s *sandbox) {
	ns, err := netns.Open(s.key)
	if ns == nil || err != nil {
		return
	}
	defer ns.Close()
	r.refresh(s, ns)
}

// refresh makes a sandbox's rules as they should be.
func (r *Room) refresh(s *sandbox, ns *os.File) {
	s.work.Lock()
	defer s.work.Unlock()
	r.mu.Lock()
	r.book.Advance(r.cfg.Source.Snapshot())
	of := s.endpoints
	want, rev := r.book.Table(of)
	r.mu.Unlock()
	same := s.known && s.rev == rev && slices.Equal(s.of, of)
	if same && (len(s.has) == 0 || time.Since(s.looked) < r.trust) || time.Now().Before(s.retry) {
		return
	}
	err := netns.Do(ns, func() error { return r.change(s, want) })
	s.retry = time.Time{}
	if err != nil {
		s.known, s.retry = false, time.Now().Add(again)
		r.cfg.Log.Debug("connections to services are not led as they should be", "sandbox", s.key, "error", err)
	} else if s.known {
		s.rev, s.of = rev, of
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.failed = ""; err != nil {
		s.failed = err.Error()
	}
}

// change makes the rules of the calling thread's namespace those of a table. s.work is held.
func (r *Room) change(s *sandbox, want service.Table) error {
	conn, err := nft.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	if !s.known && time.Since(r.begun) < r.settle {
		if rules, err := conn.Handles(nft.Table{Name: tableName, Family: nft.Inet}); err == nil && len(rules) > 0 {
			return nil
		}
	}
	if s.known && len(s.has) == 0 && len(want) == 0 {
		return nil
	}
	now, err := conn.Generation()
	if err != nil {
		return err
	}
	was, table, intact := s.has.Addrs(), nft.Table{Name: tableName, Family: nft.Inet}, s.known && s.generation == now
	switch {
	case intact && len(service.Changes(s.has, want)) == 0:
		s.looked = time.Now()
		return nil
	case intact && len(s.has) > 0 && len(want) > 0:
		err = conn.Do(differences(s.has, want))
	default: // none are ours yet, or somebody who may administer the namespace has been there
		if was, err = led(conn, table, was); err == nil {
			err = conn.Do(whole(want))
		}
	}
	if err != nil {
		return fmt.Errorf("set the rules of table inet %s: %w", tableName, err)
	}
	if !s.known || loses(s.has, want) {
		if err := forget(was, want); err != nil {
			r.cfg.Log.Debug("what was led to replicas that are gone may go there for two minutes more", "sandbox", s.key, "error", err)
		}
	}
	// Of a change that another made meanwhile the number is not this one: then they are written once more.
	s.known, s.has, s.generation, s.looked = true, want, now+1, time.Now()
	return nil
}

// led are the addresses that services had, and those that a table in the namespace leads: an earlier agent made it,
// and what it led is not known otherwise.
func led(conn *nft.Conn, table nft.Table, addrs []netip.Addr) ([]netip.Addr, error) {
	for _, f := range families {
		keys, err := conn.Elements(table, f.addresses)
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			if a, ok := netip.AddrFromSlice(key); ok {
				addrs = append(addrs, a)
			}
		}
	}
	return addrs, nil
}
