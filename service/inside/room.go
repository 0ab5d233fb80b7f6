package inside

import (
	"context"
	"errors"
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
	// patience is how long others wait for the one that is being written: who may administer a container's network can load
	// so many rules there at once that the kernel lets nobody else in for half a minute.
	patience = time.Second
	// worry is after how long status names one.
	worry = 3 * time.Second
	// wary is for how long a sandbox that took longer than that waits for others of its kind only.
	wary = time.Minute
	// places are so many sandboxes that are written at a time; startPlaces are for those whose container waits for its rules, and slowPlaces
	// for those that took long.
	places, startPlaces, slowPlaces = 4, 16, 2
)

// Room keeps the rules in the sandboxes of this host's containers. Use New.
type Room struct {
	cfg    Config
	begun  time.Time
	settle time.Duration
	trust  time.Duration
	// patience is that of others with a sandbox that is slow, worry is after how long status names it.
	patience, worry time.Duration
	wake            chan struct{} // capacity 1
	wait            sync.WaitGroup
	// starting, quick and slow are where a sandbox waits for a place.
	starting, quick, slow chan struct{}

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
	seen      bool               // somebody sees to it
	again     bool               // ... and has to once more
	waits     time.Time          // since when the kernel has let nobody change its rules; zero: it does
	slow      time.Time          // until then it is one that took long

	work sync.Mutex // covers what follows, and the rules
	// known: the rules are what the book said at a mark for the endpoints of, with so many fronts, of such sizes.
	known  bool
	fronts int
	sizes  sizes
	at     service.Mark
	of     []string
	retry  time.Time
	// generation is that of the namespace's nf_tables when the rules were known, looked is when they were.
	generation uint32
	looked     time.Time
	owed       owed
	stays      service.Stays
	// rested is until when they are not made anew because somebody else changes the namespace's rules.
	rested time.Time
}

// New returns a Room. Nothing is done before Run.
func New(cfg Config) *Room {
	return &Room{
		cfg: cfg, begun: time.Now(), settle: settling, trust: trust, patience: patience, worry: worry, wake: make(chan struct{}, 1),
		starting: make(chan struct{}, startPlaces), quick: make(chan struct{}, places), slow: make(chan struct{}, slowPlaces), book: service.NewBook(), sandboxes: map[string]*sandbox{},
	}
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
			r.refresh(s, ns, true)
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
			switch takes := time.Since(s.waits); {
			case !s.waits.IsZero() && takes > r.worry:
				failed[e] = fmt.Sprintf("its network namespace lets nobody change rules for %s (somebody loads many rules there)", takes.Round(time.Second))
			case s.failed != "":
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
	ended := make(chan struct{})
	go func() { defer close(ended); r.wait.Wait() }()
	select {
	case <-ended:
	case <-time.After(r.patience): // what the kernel lets nobody into is left to itself
	}
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
		if !s.work.TryLock() { // it is being seen to
			return false
		}
		defer s.work.Unlock()
		switch {
		case unseen == 0:
			return !s.retry.IsZero()
		case !s.retry.IsZero():
			return time.Now().After(s.retry)
		case s.owed.due(time.Now()):
			return true
		}
		return s.fronts > 0 && time.Since(s.looked) > unseen
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
			r.see(s)
		}
	}
}

// see has somebody see to a sandbox, once more if somebody does so already. It waits for nobody: one sandbox does not
// keep the others from what they are to get.
func (r *Room) see(s *sandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.seen || r.run == nil || r.run.Err() != nil {
		s.again = s.seen
		return
	}
	s.seen = true
	r.wait.Go(func() {
		for on := true; on; {
			r.look(s)
			r.mu.Lock()
			on = s.again && r.run != nil && r.run.Err() == nil
			s.seen, s.again = on, false
			r.mu.Unlock()
		}
	})
}

// place waits until a sandbox may be written. The place is its own until leave is called, or for as long as others are patient:
// who takes longer waits among others of that kind the next time.
func (r *Room) place(s *sandbox, hurry bool) (leave func()) {
	r.mu.Lock()
	at := r.quick
	switch {
	case time.Now().Before(s.slow):
		at = r.slow
	case hurry:
		at = r.starting
	}
	r.mu.Unlock()
	at <- struct{}{}
	give := sync.OnceFunc(func() { <-at })
	late := time.AfterFunc(r.patience, func() {
		give()
		r.mu.Lock()
		defer r.mu.Unlock()
		s.slow = time.Now().Add(wary)
	})
	return func() {
		late.Stop()
		give()
	}
}

// look sees to a sandbox, if it is there.
func (r *Room) look(s *sandbox) {
	ns, err := netns.Open(s.key)
	if ns == nil || err != nil {
		return
	}
	defer ns.Close()
	r.refresh(s, ns, false)
}

// change is what has become other for a sandbox since its rules were known.
type change struct {
	of       []string // its endpoints
	from, to service.Table
	at       service.Mark
	known    bool // else all may be other
}

func (c change) none() bool { return c.known && len(c.from) == 0 && len(c.to) == 0 }

// refresh makes a sandbox's rules as they should be. hurry: its container waits for them.
func (r *Room) refresh(s *sandbox, ns *os.File, hurry bool) {
	s.work.Lock()
	defer s.work.Unlock()
	r.mu.Lock()
	r.book.Advance(r.cfg.Source.Snapshot())
	c := change{of: s.endpoints}
	if s.known && slices.Equal(s.of, c.of) {
		c.from, c.to, c.at, c.known = r.book.Since(s.at, c.of, s.stays)
	}
	r.mu.Unlock()
	if c.none() {
		s.at = c.at
		if s.fronts == 0 || time.Since(s.looked) < r.trust && !s.owed.due(time.Now()) {
			return
		}
	}
	if time.Now().Before(s.retry) {
		return
	}
	leave := r.place(s, hurry)
	err := netns.Do(ns, func() error { return r.change(s, c) })
	leave()
	if s.retry = (time.Time{}); errors.Is(err, errRests) {
		s.retry = s.rested
		r.poke() // Run is to look at retry
		return
	}
	if err != nil {
		s.known, s.retry = false, time.Now().Add(again)
		defer r.poke() // Run is to look at retry
		r.cfg.Log.Debug("connections to services are not led as they should be", "sandbox", s.key, "error", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.failed = ""; err != nil {
		s.failed = err.Error()
	}
}

// change makes the rules of the calling thread's namespace as they should be. s.work is held.
func (r *Room) change(s *sandbox, c change) error {
	conn, err := nft.DialInside(func(waits bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if s.waits = (time.Time{}); waits {
			s.waits = time.Now()
		}
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	if !s.known && time.Since(r.begun) < r.settle {
		if rules, err := conn.Handles(nft.Table{Name: tableName, Family: nft.Inet}); err == nil && len(rules) > 0 {
			return nil
		}
	}
	now, err := conn.Generation()
	if err != nil {
		return err
	}
	fronts := s.fronts
	for f := range c.from {
		if _, stays := c.to[f]; !stays {
			fronts--
		}
	}
	for f := range c.to {
		if _, was := c.from[f]; !was {
			fronts++
		}
	}
	switch intact := c.known && s.generation == now; {
	case intact && c.none():
		s.looked = time.Now()
		r.forget(s)
		return nil
	case intact && s.fronts > 0 && fronts > 0:
		batch, has := differences(c.from, c.to, s.sizes)
		if err := conn.Do(batch); err != nil {
			return fmt.Errorf("set the rules of table inet %s: %w", tableName, err)
		}
		s.sizes = has
		s.owed.add(c.from, c.to)
		r.forget(s)
	case c.known && time.Now().Before(s.rested):
		return errRests
	default: // none are ours yet, or somebody who may administer the namespace has been there
		if fronts, err = r.anew(conn, s, &c); err != nil {
			return err
		}
	}
	// Of a change that another made meanwhile the number is not this one: then they are written once more.
	s.known, s.fronts, s.at, s.of, s.generation, s.looked = true, fronts, c.at, c.of, now+1, time.Now()
	return nil
}

// errRests says that rules were made anew just now, and somebody has changed the namespace's again.
var errRests = errors.New("rules that somebody else keeps changing are made anew a moment later")

// anew makes all rules, and returns of how many fronts. It takes a share of a processor however often somebody else changes the
// namespace's rules.
func (r *Room) anew(conn *nft.Conn, s *sandbox, c *change) (fronts int, err error) {
	begin := time.Now()
	defer func() { s.rested = time.Now().Add(min(share*time.Since(begin), again)) }()
	if s.stays == nil {
		s.stays = stayed(conn)
	}
	r.mu.Lock()
	want, at := r.book.Table(c.of, s.stays)
	r.mu.Unlock()
	c.at = at
	if s.known && s.fronts+len(want) == 0 {
		return 0, nil
	}
	was, err := led(conn, nft.Table{Name: tableName, Family: nft.Inet})
	if err == nil || errors.Is(err, nft.ErrMuch) { // no agent had so many: they go with the rest
		batch, has := whole(want)
		err, s.sizes = conn.Do(batch), has
	}
	if err != nil {
		return 0, fmt.Errorf("set the rules of table inet %s: %w", tableName, err)
	}
	if !s.known || !c.known || loses(c.from, c.to) || len(s.owed.fronts) > 0 {
		r.forgetNow(s, of(append(was, want.Addrs()...)), want)
	}
	return len(want), nil
}

// forget has the kernel forget what is owed to a sandbox, if that is due.
func (r *Room) forget(s *sandbox) {
	if s.owed.due(time.Now()) {
		about, to := s.owed.all()
		r.forgetNow(s, about, to)
	}
}

func (r *Room) forgetNow(s *sandbox, about func(service.Front) bool, to service.Table) {
	begin := time.Now()
	if err := forget(about, to); err != nil {
		r.cfg.Log.Debug("what was led to replicas that are gone may go there for two minutes more", "sandbox", s.key, "error", err)
	}
	r.mu.Lock()
	many := len(r.sandboxes)
	r.mu.Unlock()
	s.owed = rest(time.Since(begin) * time.Duration(many))
}

// stayed is to which replica of each service pings are led by an earlier agent's rules: where services have affinity, all else is as well.
func stayed(conn *nft.Conn) service.Stays {
	stays := service.Stays{}
	for _, f := range families {
		list, err := conn.Pairs(nft.Table{Name: tableName, Family: nft.Inet}, f.replicas)
		if err != nil {
			continue // the container chooses anew
		}
		for key, to := range list {
			vip, is := netip.AddrFromSlice([]byte(key)[:min(4*int(f.words), len(key))])
			at, leads := netip.AddrFromSlice(to[:min(4*int(f.words), len(to))])
			if is && leads && len(key) > 4*int(f.words) && key[4*f.words] == f.icmp {
				stays[service.Front{Addr: vip, Proto: f.icmp}] = at
			}
		}
	}
	return stays
}

// led are the addresses that services had, and those that a table in the namespace leads: an earlier agent made it,
// and what it led is not known otherwise.
func led(conn *nft.Conn, table nft.Table) (addrs []netip.Addr, err error) {
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
