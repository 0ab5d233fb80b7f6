package dns

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/dns/names"
	"github.com/grapevine-net/grapevine/host/conntrack"
	"github.com/grapevine-net/grapevine/host/netns"
	"github.com/grapevine-net/grapevine/host/nft"
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
	ns, err := netns.Wait(ctx, key)
	if err != nil {
		return err
	}
	defer ns.Close()
	var f *front
	var rule *redirect
	err = netns.Do(ns, func() (err error) {
		if f, err = openFront(ctx, net.ListenConfig{}, "4", "127.0.0.11:0"); err != nil {
			return err
		}
		rule, err = newRedirect(func() (*nft.Conn, error) { return nft.DialInside(func(bool) {}) }, insideTable(f.port(), f.tcpPort()))
		return err
	})
	if f != nil {
		defer f.close()
	}
	if err != nil {
		return fmt.Errorf("enter the sandbox: %w", err)
	}
	defer func() {
		rule.Close()
		if s.goesOn() { // the next agent does so as it enters
			s.forgetQuestions(ns, key)
		}
	}()
	s.forgetQuestions(ns, key)
	s.now(a, inside)
	f.identify = func(q *question, _, _ netip.AddrPort) {
		s.mu.Lock()
		q.who = names.Asker{Endpoints: a.endpoints}
		s.mu.Unlock()
		q.asker, q.inside = sandboxAsker+key, true
		q.route = func() route {
			r := route{servers: []netip.AddrPort{dockersResolver}, dial: dialIn(ns), budget: dockersBudget, from: key}
			if v, known := s.index.View(q.who); known && !v.External() {
				r.budget = budget
			}
			return r
		}
	}
	return s.serve(ctx, f)
}

// forgetQuestions makes the kernel forget where questions from a sandbox were led until now. A program
// that keeps its socket, as proxies do, would otherwise go on asking the same server until it is silent
// for two minutes: Docker, which does not know other hosts, or an agent that has gone.
func (s *Server) forgetQuestions(ns *os.File, key string) {
	err := netns.Do(ns, func() error {
		if n, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count"); err == nil && string(n) == "0\n" {
			return nil // as in every new one: all tables of the host would be gone through
		}
		return conntrack.Forget(unix.AF_INET, askingDocker{})
	})
	if err != nil {
		s.cfg.Log.Debug("what has asked Docker before may do so for two minutes more", "sandbox", key, "error", err)
	}
}

// askingDocker matches the kernel's entries of datagrams to Docker's resolver.
type askingDocker struct{}

func (askingDocker) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	to, _ := netip.AddrFromSlice(f.Forward.DstIP.To4())
	return f.Forward.Protocol == unix.IPPROTO_UDP && netip.AddrPortFrom(to, f.Forward.DstPort) == dockersResolver
}

// insideAddr is the source of questions to Docker's resolver. Programs ask from 127.0.0.1, and where
// the kernel has led a datagram it leads the next one of the same addresses and ports, for 30 s
// and more, whatever its mark: ports come again, so the address has to be another one.
var insideAddr = net.IPv4(127, 0, 0, 12)

// dialIn dials from inside a namespace, with the mark that lets it pass the rule.
func dialIn(ns *os.File) func(context.Context, string, string) (net.Conn, error) {
	mark := func(_, _ string, c syscall.RawConn) error {
		var err error
		if e := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, bypassMark)
		}); e != nil {
			return e
		}
		return err
	}
	from := map[string]net.Addr{"udp": &net.UDPAddr{IP: insideAddr}, "tcp": &net.TCPAddr{IP: insideAddr}}
	return func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
		err = netns.Do(ns, func() (err error) {
			d := net.Dialer{Control: mark, LocalAddr: from[network]}
			conn, err = d.DialContext(ctx, network, addr)
			return err
		})
		return conn, err
	}
}
