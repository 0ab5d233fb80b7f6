package dns

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/dns/names"
)

// Docker's own resolver, as the container's resolv.conf names it (moby:
// libnetwork/sandbox_dns_unix.go, resolverIPSandbox).
var dockersResolver = netip.MustParseAddrPort("127.0.0.11:53")

// dockersBudget is how long Docker's resolver may take: it has servers of its own to
// wait for, 4 s each (resolver.go, extIOTimeout).
const dockersBudget = 10 * time.Second

// bypassMark is the mark (SO_MARK) of what this resolver itself sends inside a
// sandbox, so that it reaches Docker's resolver and not itself again. Only its
// own rule there looks at it.
const bypassMark = 0x67760035

// sandboxAsker begins the key of an asker inside a sandbox.
const sandboxAsker = "sandbox "

// lookForSandbox is how often a sandbox that is to come is looked for. Before
// Engine 28 it comes after Join, and the container's program starts some 50 ms later.
const lookForSandbox = 5 * time.Millisecond

// attachment is the resolver inside one sandbox.
type attachment struct {
	endpoints []string
	stop      context.CancelFunc // nil: not running
	ended     chan struct{}      // closed when it has left the sandbox
}

// Attach has the resolver answer inside a container's network namespace, at key (a
// file; libnetwork's sandbox key), in front of Docker's own resolver. What it does
// not know, Docker's resolver is asked, in the container's name. Then names are
// answered on internal networks, whatever the default gateway is, and whichever
// namespace the engine asks other servers from.
//
// Attach does not block, and waits in the background for a namespace that is not yet
// there. It may be called again, and before Run. Nothing of it outlives the
// process, not even a kill: the kernel takes the rule away with the socket
// that made it, and Docker's resolver is as it was.
func (s *Server) Attach(endpoint, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.sandboxes[key]
	if a == nil {
		a = &attachment{}
		s.sandboxes[key] = a
	}
	if !slices.Contains(a.endpoints, endpoint) {
		a.endpoints = append(slices.Clone(a.endpoints), endpoint)
	}
	s.start(key, a)
}

// Detach ends what Attach began for the endpoint; with a sandbox's last endpoint
// the resolver leaves it. Detaching what is not attached is no error.
func (s *Server) Detach(endpoint string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, a := range s.sandboxes {
		a.endpoints = slices.DeleteFunc(slices.Clone(a.endpoints), func(e string) bool { return e == endpoint })
		if len(a.endpoints) > 0 {
			continue
		}
		delete(s.sandboxes, key)
		if a.stop != nil {
			a.stop()
			s.leaving[key] = a.ended
		}
	}
}

// runSandboxes lets attachments run until ctx is done, then waits for their end.
func (s *Server) runSandboxes(ctx context.Context) {
	s.mu.Lock()
	s.run = ctx
	for key, a := range s.sandboxes {
		s.start(key, a)
	}
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	s.run = nil
	s.mu.Unlock()
	s.wait.Wait()
}

// start runs an attachment if it is not running yet, after the one before it in the
// same sandbox: two cannot have a table of one name. The caller has s.mu.
func (s *Server) start(key string, a *attachment) {
	if s.run == nil || a.stop != nil {
		return
	}
	before := s.leaving[key]
	var ctx context.Context
	ctx, a.stop = context.WithCancel(s.run)
	a.ended = make(chan struct{})
	s.wait.Go(func() {
		defer s.left(key, a)
		if before != nil {
			<-before
		}
		s.stayIn(ctx, key, a)
	})
}

func (s *Server) left(key string, a *attachment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.stop() // it may be the server that ends
	if s.leaving[key] == a.ended {
		delete(s.leaving, key)
	}
	close(a.ended)
}

// stayIn serves a sandbox until ctx is done. What fails is tried again: an agent of
// another version may still be in there, about to leave.
func (s *Server) stayIn(ctx context.Context, key string, a *attachment) {
	for pause := 250 * time.Millisecond; ; pause = min(2*pause, time.Minute) {
		err := s.serveSandbox(ctx, key, a)
		if ctx.Err() != nil {
			return
		}
		s.cfg.Log.Warn("the resolver cannot serve inside a container: it knows only what Docker and the gateway tell it",
			"sandbox", key, "error", err, "again in", pause)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (s *Server) serveSandbox(ctx context.Context, key string, a *attachment) error {
	ns, err := waitForNamespace(ctx, key)
	if err != nil {
		return err
	}
	defer ns.Close()
	var f *front
	var rule *redirect
	err = inNamespace(ns, func() (err error) {
		if f, err = openFront(ctx, net.ListenConfig{}, "4", "127.0.0.11:0"); err != nil {
			return err
		}
		rule, err = newRedirect(f.port(), f.tcpPort())
		return err
	})
	if f != nil {
		defer f.close()
	}
	if err != nil {
		return fmt.Errorf("enter the sandbox: %w", err)
	}
	defer rule.Close()
	r := route{servers: []netip.AddrPort{dockersResolver}, dial: dialIn(ns), budget: dockersBudget}
	f.identify = func(q *question, _, _ netip.AddrPort) {
		s.mu.Lock()
		q.who = names.Asker{Endpoints: a.endpoints}
		s.mu.Unlock()
		q.asker, q.inside = sandboxAsker+key, true
		q.route = func() route { return r }
	}
	return s.serve(ctx, f)
}

// waitForNamespace opens the file once it is a network namespace: Docker makes an
// empty file first and mounts the namespace on it.
func waitForNamespace(ctx context.Context, key string) (*os.File, error) {
	pause := lookForSandbox
	for tries := 0; ; tries++ {
		if tries == 2000 { // ten seconds: a container made and not started
			pause *= 40
		}
		var fs unix.Statfs_t
		if unix.Statfs(key, &fs) == nil && (fs.Type == unix.NSFS_MAGIC || strings.HasPrefix(key, "/proc/")) {
			return os.Open(key)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// dialIn dials from inside a namespace, with the mark that lets it pass the rule.
func dialIn(ns *os.File) func(context.Context, string, string) (net.Conn, error) {
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if e := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, bypassMark)
		}); e != nil {
			return e
		}
		return err
	}}
	return func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
		err = inNamespace(ns, func() (err error) { conn, err = d.DialContext(ctx, network, addr); return err })
		return conn, err
	}
}
