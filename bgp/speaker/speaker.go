// Package speaker tells routers by BGP (RFC 4271) which addresses this host has. It calls them, and nobody calls it; it hears
// what they say about the session, and takes no route from them. When the agent ends, however it ends, it says nothing: the
// host goes on carrying packets, and routers keep its routes for a while (graceful restart, RFC 4724).
package speaker

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/bgp"
	"github.com/grapevine-net/grapevine/config"
)

// Config is what a Speaker works with.
type Config struct {
	Routers []config.Router
	ID      netip.Addr // names this host among those that a router hears (IPv4)
	Log     *slog.Logger
}

// Speaker has a session with each of some routers. Its methods may be called concurrently.
type Speaker struct {
	cfg   Config
	peers []*peer
	ended chan struct{} // closed by End
	end   sync.Once

	mu      sync.Mutex
	want    map[netip.Prefix]bgp.Route
	changed chan struct{} // closed when want is another one
}

// New returns a Speaker that says nothing before Run.
func New(cfg Config) *Speaker {
	s := &Speaker{cfg: cfg, ended: make(chan struct{}), changed: make(chan struct{})}
	now := time.Now()
	for _, r := range cfg.Routers {
		s.peers = append(s.peers, &peer{of: s, router: r, over: make(chan struct{}), log: cfg.Log.With("router", r.String()), now: Session{Router: r, Since: now}, gone: now})
	}
	return s
}

// Run keeps the sessions until ctx is done. Set comes first: when a session begins, routers forget what they are not told again.
func (s *Speaker) Run(ctx context.Context) error {
	var all errgroup.Group
	for _, p := range s.peers {
		all.Go(func() error { p.run(ctx); return nil })
	}
	return all.Wait()
}

// Set declares the routes that routers are to know, and does not wait for them.
func (s *Speaker) Set(routes []bgp.Route) {
	want := map[netip.Prefix]bgp.Route{}
	for _, r := range routes {
		want[r.Prefix] = r
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	same := len(want) == len(s.want)
	for p, r := range want {
		had, there := s.want[p]
		same = same && there && had == r
	}
	if same {
		return
	}
	s.want = want
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Speaker) wanted() (want map[netip.Prefix]bgp.Route, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.want, s.changed
}

// End ends all sessions with a word, so that routers drop the routes at once, and begins no more. It waits for Run's sessions, or ctx.
func (s *Speaker) End(ctx context.Context) {
	s.end.Do(func() { close(s.ended) })
	for _, p := range s.peers {
		select {
		case <-p.over:
		case <-ctx.Done():
			return
		}
	}
}

// Session is how it stands with a router.
type Session struct {
	Router config.Router
	Up     bool
	Since  time.Time // it is up, or down: since one that lasted
	Err    string    // why it is down; "": it has not been tried yet
	Keeps  bool      // the router keeps the routes while the agent is gone
	Told   int       // routes
	Unsaid []string  // why routes of a family are not told
	// Local is this host's address in a session that is up.
	Local netip.Addr
}

// Sessions are those with all routers, in the order of the settings.
func (s *Speaker) Sessions() (list []Session) {
	for _, p := range s.peers {
		p.mu.Lock()
		one := p.now
		one.Unsaid = slices.Clone(one.Unsaid)
		p.mu.Unlock()
		list = append(list, one)
	}
	return list
}
