package dns

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
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
//
// For a container on internal networks only it may take no more than any other server:
// it may have nobody to ask, and Engine 20.10 then does not reply at all.
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

// stayIn serves a sandbox until ctx is done. What fails is tried again: an agent of
// another version may still be in there, about to leave. A kernel that cannot redirect
// is not asked: it would look for a module each time, while the container starts.
func (s *Server) stayIn(ctx context.Context, key string, a *attachment) {
	if !s.cfg.Redirect {
		s.now(a, shutOut)
		<-ctx.Done()
		return
	}
	for pause := 250 * time.Millisecond; ; pause = min(2*pause, time.Minute) {
		err := s.serveSandbox(ctx, key, a)
		if ctx.Err() != nil {
			return
		}
		level := slog.LevelWarn
		if s.now(a, shutOut) == shutOut {
			level = slog.LevelDebug // said already
		}
		s.cfg.Log.Log(ctx, level, "the resolver cannot serve inside a container: it knows only what Docker and the gateway tell it",
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
		rule, err = newRedirect(insideTable(f.port(), f.tcpPort()))
		return err
	})
	if f != nil {
		defer f.close()
	}
	if err != nil {
		return fmt.Errorf("enter the sandbox: %w", err)
	}
	defer rule.Close()
	s.now(a, inside)
	f.identify = func(q *question, _, _ netip.AddrPort) {
		s.mu.Lock()
		q.who = names.Asker{Endpoints: a.endpoints}
		s.mu.Unlock()
		q.asker, q.inside = sandboxAsker+key, true
		q.route = func() route {
			r := route{servers: []netip.AddrPort{dockersResolver}, dial: dialIn(ns), budget: dockersBudget}
			if v, known := s.index.View(q.who); known && !v.External() {
				r.budget = budget
			}
			return r
		}
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
