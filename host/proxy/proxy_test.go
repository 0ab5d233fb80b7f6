package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/grapevine-net/grapevine/host/link/linktest"
	"github.com/grapevine-net/grapevine/host/portreserve"
)

// world is a host with a container (IPv4), and a machine beyond, which has IPv6 alone.
type world struct {
	t                     *testing.T
	container, host, away *linktest.NS
	held                  *portreserve.Sockets
	server                *Server
	refused               atomic.Pointer[netip.Addr]
	shut                  atomic.Int64 // an interface's index
}

const (
	containerAddr = "10.128.0.2"
	hostAddr      = "fd00:db8::1"
	second        = "fd00:db8::7"
	awayAddr      = "fd00:db8::2"
	// asOther is what rules give who is not the host, as packages filter and nat do.
	asOther, asOther6 = "248.0.0.5", "fd67:7261:7065:2::5"
)

func newWorld(t *testing.T) *world { return newCrowdedWorld(t, Most) }

// newCrowdedWorld has so many clients, and so many connections, at most.
func newCrowdedWorld(t *testing.T, most int) *world {
	w := &world{t: t, container: linktest.New(t), host: linktest.New(t), away: linktest.New(t), held: &portreserve.Sockets{}}
	linktest.Wire(t, "c", w.host, w.container, []string{"10.128.0.1/22"}, []string{containerAddr + "/22"})
	linktest.Wire(t, "eth0", w.host, w.away, []string{hostAddr + "/64", second + "/64", "fe80::1/64"}, []string{awayAddr + "/64", "fe80::2/64"})
	w.host.Do(func() {
		// Answers to loopback addresses are taken, as package gateway has it.
		for _, args := range []string{
			"sysctl -qw net.ipv4.conf.c.route_localnet=1", "iptables -t nat -A POSTROUTING -s 127.0.0.0/8 -o c -j SNAT --to-source " + asOther,
			"ip -6 route add local ::1 dev c table 103; ip -6 rule add priority 0 iif c lookup 103", "ip6tables -t nat -A POSTROUTING -s ::1 -o c -j SNAT --to-source " + asOther6,
		} {
			if out, err := exec.Command("sh", "-c", args).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", args, err, out)
			}
		}
	})
	w.container.Do(func() { ip(t, "route", "add", "248.0.0.0/16", "via", "10.128.0.1") })
	var err error
	w.server, err = New(w.held, func(a netip.Addr, index int) bool {
		r := w.refused.Load()
		return r != nil && *r == a || index == int(w.shut.Load())
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w.server.dial = func(ctx context.Context, network string, to netip.AddrPort, host bool) (conn net.Conn, err error) {
		w.host.Do(func() { conn, err = dial(ctx, network, to, host) })
		return conn, err
	}
	w.server.streams, w.server.clients = newStreams(most), newClients(most)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		w.held.Close()
	})
	return w
}

// publish holds and serves a run of ports of both protocols, from 8080 on.
func (w *world) publish(to string, more uint16) {
	w.t.Helper()
	var all []Forward
	for _, network := range []string{"tcp", "udp"} {
		f := Forward{network, netip.MustParseAddrPort("[::]:8080"), netip.MustParseAddrPort(to), more}
		w.hold(f)
		all = append(all, f)
	}
	w.server.Set(all)
}

func (w *world) hold(f Forward) {
	w.t.Helper()
	for p := range f.each() {
		w.host.Do(func() {
			if err := w.held.Hold(p.network, p.at); err != nil {
				w.t.Fatal(err)
			}
		})
	}
}

// serve answers in a namespace: TCP when the client has said all, UDP at once, with what was said
// and who said it.
func (w *world) serve(ns *linktest.NS, at string) {
	w.t.Helper()
	ns.Do(func() {
		l, err := net.Listen("tcp", at)
		if err != nil {
			w.t.Fatal(err)
		}
		p, err := net.ListenPacket("udp", at)
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { l.Close(); p.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					b, _ := io.ReadAll(c)
					_, _ = c.Write(append(b, " from "+host(c.RemoteAddr())...))
					_ = c.Close()
				}()
			}
		}()
		go func() {
			b := make([]byte, 65535)
			for {
				n, from, err := p.ReadFrom(b)
				if err != nil {
					return
				}
				_, _ = p.WriteTo([]byte(string(b[:n])+" from "+host(from)), from)
			}
		}()
	})
}

func host(a net.Addr) string {
	h, _, _ := net.SplitHostPort(a.String())
	return h
}

// ask says something, and returns the answer.
func ask(ns *linktest.NS, network, addr, say string, patience time.Duration) (said string, err error) {
	ns.Do(func() {
		var c net.Conn
		if c, err = net.DialTimeout(network, addr, patience); err != nil {
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		if _, err = c.Write([]byte(say)); err != nil {
			return
		}
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.CloseWrite()
			var b []byte
			b, err = io.ReadAll(c)
			said = string(b)
			return
		}
		b := make([]byte, 65535)
		var n int
		n, err = c.Read(b)
		said = string(b[:n])
	})
	return said, err
}

func (w *world) wants(ns *linktest.NS, network, addr, want string) {
	w.t.Helper()
	patience := 5 * time.Second
	if want == "" {
		patience = 300 * time.Millisecond
	}
	if got, err := ask(ns, network, addr, "hello", patience); got != want {
		w.t.Errorf("%s %s: %q, %v; want %q", network, addr, got, err, want)
	}
}

// linkLocal is the host's address on the wire, for away. Go remembers interfaces' names whatever
// the namespace.
func (w *world) linkLocal() string { return fmt.Sprintf("[fe80::1%%%d]:8080", w.eth0(w.away)) }

// eth0 is the index of it there.
func (w *world) eth0(ns *linktest.NS) (index int) {
	ns.Do(func() {
		i, err := netlink.LinkByName("eth0")
		if err != nil {
			w.t.Fatal(err)
		}
		index = i.Attrs().Index
	})
	return index
}

const (
	answered = "hello from " + asOther
	itsHost  = "hello from 10.128.0.1"
)

// A container without IPv6 is reached at all of the host's IPv6 addresses, the loopback's and
// link-local ones too, and answers from the address that was asked: a client of UDP would take
// nothing else.
func TestServes(t *testing.T) {
	w := newWorld(t)
	w.serve(w.container, ":80")
	w.publish(containerAddr+":80", 0)
	for _, network := range []string{"tcp", "udp"} {
		w.wants(w.away, network, "["+hostAddr+"]:8080", answered)
		w.wants(w.away, network, "["+second+"]:8080", answered)
		w.wants(w.away, network, w.linkLocal(), answered)
		w.wants(w.away, network, "["+hostAddr+"]:8081", "")
	}
	// The container sees nobody else as its host; whom a datagram is of nobody can tell.
	for _, c := range []struct {
		from        *linktest.NS
		network, at string
		want        string
	}{
		{w.host, "tcp", "[" + hostAddr + "]:8080", itsHost}, {w.host, "tcp", "[" + second + "]:8080", itsHost}, {w.host, "tcp", "[::1]:8080", itsHost}, {w.host, "udp", "[::1]:8080", answered},
	} {
		w.wants(c.from, c.network, c.at, c.want)
	}
	// Much, both ways, and each end by itself.
	long := strings.Repeat("grapevine ", 300000)
	if got, err := ask(w.away, "tcp", "["+hostAddr+"]:8080", long, 10*time.Second); got != long+" from "+asOther {
		t.Errorf("%d bytes of %d came back: %v", len(got), len(long), err)
	}
	if got, err := ask(w.away, "udp", "["+hostAddr+"]:8080", long[:60000], 5*time.Second); got != long[:60000]+" from "+asOther {
		t.Errorf("of a datagram %d bytes came back: %v", len(got), err)
	}
	// Not by who comes by an interface that is shut, at whichever address.
	w.shut.Store(int64(w.eth0(w.host)))
	for network, answered := range map[string]string{"tcp": itsHost, "udp": answered} {
		w.wants(w.away, network, "["+hostAddr+"]:8080", "")
		w.wants(w.away, network, "["+second+"]:8080", "")
		w.wants(w.away, network, w.linkLocal(), "")
		w.wants(w.host, network, "[::1]:8080", answered)
	}
	w.shut.Store(0)
	// Not by who may not.
	away := netip.MustParseAddr(awayAddr)
	w.refused.Store(&away)
	for network, answered := range map[string]string{"tcp": itsHost, "udp": answered} {
		w.wants(w.away, network, "["+hostAddr+"]:8080", "")
		w.wants(w.host, network, "[::1]:8080", answered)
	}
}

// Ports come and go; one whose socket somebody else had is served when he is gone.
func TestSet(t *testing.T) {
	w := newWorld(t)
	w.serve(w.container, ":80")
	w.serve(w.container, ":81")
	w.publish(containerAddr+":80", 1)
	for _, network := range []string{"tcp", "udp"} {
		w.wants(w.away, network, "["+hostAddr+"]:8081", answered)
	}
	w.publish(containerAddr+":81", 0)
	for _, network := range []string{"tcp", "udp"} {
		w.wants(w.away, network, "["+hostAddr+"]:8080", answered)
		w.wants(w.away, network, "["+hostAddr+"]:8081", "")
	}
	w.server.Set(nil)
	for _, network := range []string{"tcp", "udp"} {
		w.wants(w.away, network, "["+hostAddr+"]:8080", "")
	}
	// At once for whoever has it next, whatever is left of connections.
	for range 2 {
		w.held.Close()
		w.publish(containerAddr+":80", 0)
		for _, network := range []string{"tcp", "udp"} {
			w.wants(w.away, network, "["+hostAddr+"]:8080", answered)
		}
		w.server.Set(nil)
	}
	late := Forward{"tcp", netip.MustParseAddrPort("[::]:9090"), netip.MustParseAddrPort(containerAddr + ":80"), 0}
	w.server.Set([]Forward{late})
	w.wants(w.away, "tcp", "["+hostAddr+"]:9090", "")
	w.hold(late)
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if got, _ := ask(w.away, "tcp", "["+hostAddr+"]:9090", "hello", time.Second); got == answered {
			return
		}
	}
	t.Error("a port that is held later is never served")
}

// A container that does not answer, or refuses, is a connection that is refused or reset, and no
// port of others suffers. Clients of UDP are bounded.
func TestBounds(t *testing.T) {
	w := newWorld(t)
	w.serve(w.container, ":80")
	w.publish(containerAddr+":80", 1) // 81 is nobody's
	if got, err := ask(w.away, "tcp", "["+hostAddr+"]:8081", "hello", time.Second); err == nil && got != "" {
		t.Errorf("a port that is nobody's: %q, %v", got, err)
	}
	w.away.Do(func() {
		for range 3 {
			c, err := net.Dial("udp", "["+hostAddr+"]:8080")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
			if _, err := c.Read(make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
		}
	})
	count := func() int {
		w.server.clients.mu.Lock()
		defer w.server.clients.mu.Unlock()
		return len(w.server.clients.by)
	}
	if n := count(); n != 3 {
		t.Errorf("%d clients, want 3", n)
	}
	w.server.clients.expire(time.Now().Add(idle + time.Second))
	if n := count(); n != 0 {
		t.Errorf("%d clients after all were silent", n)
	}
}

// Who opens connections and sends from ports without end keeps out nobody but himself: another client, of his own network,
// keeps what it has and gets more.
func TestFlood(t *testing.T) {
	const most = 64
	w := newCrowdedWorld(t, most)
	w.away.Do(func() { ip(t, "addr", "add", "fd00:db8::3/64", "dev", "eth0", "nodad") })
	w.serve(w.container, ":80")
	w.publish(containerAddr+":80", 0)
	dials := func(network, ip string) (c net.Conn, err error) {
		w.away.Do(func() {
			d := net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
			if network == "udp" {
				d.LocalAddr = &net.UDPAddr{IP: net.ParseIP(ip)}
			}
			if c, err = d.Dial(network, "["+hostAddr+"]:8080"); err == nil {
				t.Cleanup(func() { c.Close() })
			}
		})
		return c, err
	}
	from := func(network, ip string) net.Conn {
		t.Helper()
		c, err := dials(network, ip)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	says := func(c net.Conn, end bool) string {
		t.Helper()
		_, err := c.Write([]byte("hello"))
		if tcp, ok := c.(*net.TCPConn); ok && end {
			err = errors.Join(err, tcp.CloseWrite())
		}
		b := make([]byte, 100)
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		n, rerr := c.Read(b)
		if err = errors.Join(err, rerr); err != nil {
			return err.Error()
		}
		return string(b[:n])
	}
	within := func(what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	streams := func(ip string) int {
		w.server.streams.mu.Lock()
		defer w.server.streams.mu.Unlock()
		return w.server.streams.all.addresses[netip.MustParseAddr(ip)]
	}
	stream, session := from("tcp", "fd00:db8::3"), from("udp", "fd00:db8::3")
	within("the client is not served", func() bool { return streams("fd00:db8::3") == 1 })
	if got := says(session, false); got != answered {
		t.Fatalf("before the flood a client of UDP hears %q", got)
	}
	for range 3 * most {
		_, _ = dials("tcp", awayAddr) // or it is refused
		_, _ = from("udp", awayAddr).Write([]byte("x"))
	}
	within("there was no flood", func() bool { return streams(awayAddr) == most-1 })
	if got := says(from("tcp", "fd00:db8::3"), true); got != answered {
		t.Errorf("a new client of TCP hears %q", got)
	}
	if got := says(stream, true); got != answered {
		t.Errorf("who had a connection before hears %q", got)
	}
	w.server.clients.mu.Lock()
	_, kept := w.server.clients.by[client{port{"udp", netip.MustParseAddrPort("[::]:8080")},
		netip.MustParseAddrPort(session.LocalAddr().String()), 0, netip.MustParseAddr(hostAddr)}]
	n := len(w.server.clients.by)
	w.server.clients.mu.Unlock()
	if got := says(session, false); got != answered || !kept || n != most {
		t.Errorf("of %d clients of UDP, of whom one was before the flood (%t), that one hears %q", n, kept, got)
	}
}

// Whose network, and in it whose address, has most goes; who has left is counted no more.
func TestCrowd(t *testing.T) {
	c := newCrowd[string]()
	enter := func(from string, names ...string) {
		for _, n := range names {
			c.enter(n, netip.MustParseAddr(from))
		}
	}
	first := func(a, b string) bool { return a < b }
	enter("2001:db8::1", "a", "b", "c")
	enter("2001:db8::2", "d")
	enter("2001:db8:0:1::1", "e", "f", "g")
	enter("fe80::1%2", "h")
	if got := c.goes(first); got != "a" {
		t.Errorf("%s goes, of the network with most", got)
	}
	c.leave("a")
	c.leave("a")
	c.leave("d")
	if got := c.goes(first); got != "e" {
		t.Errorf("%s goes, when the other network has two", got)
	}
	for _, n := range []string{"b", "c", "e", "f", "g", "h"} {
		c.leave(n)
	}
	if len(c.at)+len(c.networks)+len(c.addresses) != 0 {
		t.Errorf("all have left, and there are %v", c)
	}
}

// BenchmarkFlood is what a datagram costs from a port that was not seen before, when there are as many clients as may be.
func BenchmarkFlood(b *testing.B) {
	l := newClients(Most)
	there := &Server{clients: l, dial: func(ctx context.Context, network string, _ netip.AddrPort, host bool) (net.Conn, error) {
		return dial(ctx, network, netip.MustParseAddrPort("127.0.0.1:9"), host)
	}}
	defer l.close()
	c := client{port: port{"udp", netip.MustParseAddrPort("[::]:8080")}}
	n := 0
	next := func() {
		n++
		c.from = netip.AddrPortFrom(netip.AddrFrom16([16]byte{0xfd, 8: byte(n >> 16), 9: byte(n >> 8), 10: byte(n)}), uint16(n))
		there.find(c, c.at)
	}
	for range Most {
		next()
	}
	for b.Loop() {
		next()
	}
}

// A container with IPv6 is asked by it: for clients with link-local addresses, which no rule
// can lead there.
func TestLinkLocal(t *testing.T) {
	w := newWorld(t)
	w.host.Do(func() { ip(t, "addr", "add", "fd00:128::1/64", "dev", "c", "nodad") })
	w.container.Do(func() {
		ip(t, "addr", "add", "fd00:128::2/64", "dev", "c", "nodad")
		ip(t, "route", "add", "fd67:7261:7065:2::/112", "via", "fd00:128::1")
	})
	w.serve(w.container, ":80")
	w.publish("[fd00:128::2]:80", 0)
	for _, network := range []string{"tcp", "udp"} {
		w.wants(w.away, network, w.linkLocal(), "hello from "+asOther6)
	}
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %v: %v: %s", args, err, out)
	}
}
