package dns

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/dns/names"
)

// DefaultPort is where the resolver listens on the gateway, UDP and TCP. Port 53
// may be another resolver's; a rule leads there (Rules).
const DefaultPort = 7953

// Source is the cluster as the agent knows it. Replica is one.
type Source interface {
	Snapshot() *cluster.Snapshot
	// Watch returns a channel that is closed at the next change.
	Watch() (changed <-chan struct{})
}

// Config of a Server.
type Config struct {
	Source Source
	// Hosts says how a host stands, and so what its names are worth. It is called for
	// every address that is about to be told. nil: all answer.
	Hosts names.Hosts
	// Device is the gateway port ("gv0"). The resolver hears only what comes in
	// there, and waits for it if it does not exist, or not any more.
	Device string
	// Port to listen on; 0: DefaultPort.
	Port uint16
	// Redirect has the server itself lead port 53 to that port, by rules that end with
	// the process: then questions are not lost while there is none. See CanRedirect.
	// Otherwise Rules has rules for that, and nothing is served inside sandboxes.
	Redirect bool
	// Services says that containers' connections to the addresses of services are led to their replicas here. Else
	// nobody is told these: a service's name is that of its replicas.
	Services bool
	// Spread, if set, is told whether containers of several hosts have a name in common, at first and after each change.
	Spread func(bool)
	// ResolvConf names the host's servers; empty: /etc/resolv.conf.
	ResolvConf string
	// Host, if set, has the host's own programs ask as well.
	Host *Host
	// Gate opens what containers may reach by name alone; nil: nobody does.
	Gate Gate
	// Log gets what cannot be told to anybody else. nil: slog.Default().
	Log *slog.Logger
}

// Server is the resolver of one host.
type Server struct {
	cfg     Config
	index   *names.Index
	host    resolvConf
	forward *forwarder
	counts  counts
	conns   *crowd // connections over TCP
	heard   heard
	waiting waiting
	own     hostFront
	look    chan struct{} // capacity 1: the gateway's device may be another one

	mu        sync.Mutex
	sandboxes map[string]*attachment   // by sandbox key
	leaving   map[string]chan struct{} // likewise, closed when the sandbox is left
	run       context.Context          // nil: Run was not called yet, or is over
	no6       sync.Once                // said that the gateway hears IPv4 only
	wait      sync.WaitGroup           // goroutines of sandboxes
}

// New returns a Server; nothing is heard before Run.
func New(cfg Config) *Server {
	cfg.Port = cmp.Or(cfg.Port, DefaultPort)
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	index := names.New()
	if !cfg.Services {
		index.Unserved()
	}
	return &Server{
		cfg: cfg, index: index, forward: newForwarder(), conns: newCrowd(maxTCP, maxTCPPerAsker), look: make(chan struct{}, 1), sandboxes: map[string]*attachment{}, leaving: map[string]chan struct{}{},
		host: resolvConf{path: cmp.Or(cfg.ResolvConf, "/etc/resolv.conf")},
	}
}

// Run follows the cluster, and answers at the gateway and in the sandboxes, until
// ctx is done; it returns when all of that has ended. Trouble with sockets is
// logged and tried again. Run may be called once.
func (s *Server) Run(ctx context.Context) error {
	s.advance()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { s.follow(ctx); return nil })
	g.Go(func() error { s.listen(ctx); return nil })
	g.Go(func() error { s.runSandboxes(ctx); return nil })
	if s.cfg.Host != nil {
		g.Go(func() error { s.listenHost(ctx); return nil })
	}
	return g.Wait()
}

// advance brings the index of a server up to now.
func (s *Server) advance() {
	s.index.Advance(s.cfg.Source.Snapshot())
	s.waiting.again(s.index, s.cfg.Hosts, &s.counts.answered, s.waiting.list()...)
	if s.cfg.Spread != nil {
		s.cfg.Spread(s.index.Spread())
	}
}

// breath is how long the index waits after a change for others to come with it.
const breath = 20 * time.Millisecond

func (s *Server) follow(ctx context.Context) {
	for ctx.Err() == nil {
		changed := s.cfg.Source.Watch()
		s.advance()
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		// The first change counts at once; of a storm every one within a breath.
		s.advance()
		select {
		case <-ctx.Done():
		case <-time.After(breath):
		}
	}
}

// question is a query on its way through the server.
type question struct {
	wire    []byte
	network string // "udp" or "tcp"
	who     names.Asker
	asker   string       // who, as a key
	inside  bool         // taken inside a sandbox
	route   func() route // where it goes if it is not ours
}

// local answers a question without waiting for anybody; forward says that it cannot.
func (s *Server) local(q *question) ([]byte, verdict) {
	s.counts.queries.Add(1)
	wire, v := respond(q, s.index, s.cfg.Hosts)
	switch v {
	case answered:
		s.counts.answered.Add(1)
	case refused:
		s.counts.refused.Add(1)
	case dropped:
		s.counts.dropped.Add(1)
	}
	return wire, v
}

// remote has another server answer. It waits for that. Before anything is done for a question there
// must be room for it.
func (s *Server) remote(ctx context.Context, q *question) []byte {
	if !s.forward.enter(q.asker) {
		return s.overload(q)
	}
	defer s.forward.leave(q.asker)
	return s.remoteEntered(ctx, q)
}

// overload refuses a question for which there is no room.
func (s *Server) overload(q *question) []byte {
	s.counts.failed.Add(1)
	return refuse(q.wire, rcodeServFail)
}

func (s *Server) remoteEntered(ctx context.Context, q *question) []byte {
	g := s.gated(q)
	r := s.hostRoute()
	if len(g.endpoints) == 0 {
		r = q.route()
	}
	if r.denied != nil {
		s.counts.refused.Add(1)
		return refuse(q.wire, dns.RcodeRefused)
	}
	wire, err := s.forward.entered(ctx, r, q.network, q.wire)
	if err != nil {
		s.counts.failed.Add(1)
		s.cfg.Log.Debug("no server answered", "asker", q.asker, "error", err)
		return refuse(q.wire, rcodeServFail)
	}
	if len(g.endpoints) > 0 {
		if err := s.open(ctx, g, wire); err != nil {
			s.counts.failed.Add(1)
			s.cfg.Log.Debug("a name is not answered, since what it has cannot be opened", "asker", q.asker, "name", g.name, "error", err)
			return refuse(q.wire, rcodeServFail)
		}
	}
	s.counts.forwarded.Add(1)
	return wire
}

// toOriginal is the route of a question that a rule led here: to the server that it
// was meant for. One that was meant for this host, or of which the kernel does not
// know, goes to the host's servers.
func (s *Server) toOriginal(network string, client, local netip.AddrPort) route {
	dst, err := originalDst(network, client, local)
	if err == nil && dst.Addr() != local.Addr() && !s.ours(dst.Addr()) {
		return s.toServer(client.Addr(), dst)
	}
	return s.hostRoute()
}

// hostServers are the host's servers, without those that would be ourselves.
func (s *Server) hostServers() (servers []netip.AddrPort) {
	for _, a := range s.host.get(time.Now()) {
		if !s.ours(a.Addr()) && !s.cfg.Host.asks(a.Addr()) {
			servers = append(servers, a)
		}
	}
	return servers
}

// ours reports whether an address is a gateway's: on every host it is the agent.
func (s *Server) ours(a netip.Addr) bool { return s.index.Gateway(a) }
