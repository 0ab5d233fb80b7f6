package wireguard

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// The test's own program is the process of WireGuard, where the kernel has none.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Verb && os.Getenv(longAgo) != "" {
		os.Args, longAgoArgs = []string{os.Args[0], "-test.run=^TestServeLongAgo$"}, os.Args[2:]
	}
	for verb, serve := range map[string]func(context.Context, []string) error{Verb: Serve, SandboxVerb: ServeSandbox} {
		if len(os.Args) > 1 && os.Args[1] == verb {
			if err := serve(context.Background(), os.Args[2:]); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

// end is one of two hosts.
type end struct {
	*linktest.NS
	t      *testing.T
	device Device
	key    Key
	port   uint16
	said   map[Key]netip.AddrPort
	ear    Ear
	later  time.Duration // how far this end's monotonic clock is ahead
}

func newEnd(t *testing.T, n byte) *end {
	e := &end{NS: linktest.New(t), t: t, port: 7948, key: Key{0: 8 * n, 5: 77, 31: 64}, device: Device{
		Name: link.WireGuard, Metric: First, Run: t.TempDir(), MTU: 1400, Addr: netip.MustParseAddr(fmt.Sprintf("fd67:1::%d", n)), Range: netip.MustParsePrefix("fd67:1::/64"),
	}}
	t.Cleanup(func() { e.Do(func() { _, _ = e.device.Remove() }) })
	return e
}

// ensure has the device in place, with these peers, and returns what had to be changed.
func (e *end) ensure(peers ...*end) (kind string, c Change) {
	e.t.Helper()
	want := State{Private: e.key, Port: e.port}
	for _, p := range peers {
		at := netip.MustParseAddrPort(fmt.Sprintf("192.0.2.%d:%d", p.device.Addr.As16()[15], p.port))
		want.Peers = append(want.Peers, Peer{Key: p.key.Public(), Endpoint: at, Inside: netip.PrefixFrom(p.device.Addr, 128)})
	}
	e.Do(func() {
		var err error
		if kind, err = e.device.Ensure(context.Background()); err != nil {
			e.t.Fatal(err)
		}
		have, err := e.device.State(kind)
		if err != nil {
			e.t.Fatal(err)
		}
		e.ear.Listen(&have, time.Now().Add(e.later))
		c = Diff(have, want, e.said)
		if err := e.device.Set(kind, c); err != nil {
			e.t.Fatal(err)
		}
	})
	return kind, c
}

func (e *end) run(args ...string) string {
	e.t.Helper()
	var out []byte
	e.Do(func() {
		var err error
		if out, err = exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			e.t.Fatalf("%v: %v: %s", args, err, out)
		}
	})
	return string(out)
}

// says sends datagrams until the other end has heard one, or for long enough.
func (e *end) says(to *end) bool { return e.tries(to, 150) }

// silent sends for a while, and reports whether the other end has heard none.
func (e *end) silent(to *end) bool { return !e.tries(to, 10) }

func (e *end) tries(to *end, times int) bool {
	var heard net.PacketConn
	var said net.Conn
	var err error
	to.Do(func() { heard, err = net.ListenPacket("udp", "[::]:4789") })
	if err != nil {
		e.t.Fatal(err)
	}
	defer heard.Close()
	e.Do(func() {
		said, err = net.Dial("udp", netip.AddrPortFrom(to.device.Addr, 4789).String())
	})
	if err != nil {
		return false // no way
	}
	defer said.Close()
	for range times {
		_, _ = said.Write([]byte("hello"))
		_ = heard.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if _, from, err := heard.ReadFrom(make([]byte, 9)); err == nil {
			return from.(*net.UDPAddr).AddrPort().Addr() == e.device.Addr
		}
	}
	return false
}

func TestDevice(t *testing.T) {
	a, b, stranger := newEnd(t, 1), newEnd(t, 2), newEnd(t, 3)
	linktest.Wire(t, "eth0", a.NS, b.NS, []string{"192.0.2.1/24", "fd00:9::1/64"}, []string{"192.0.2.2/24", "fd00:9::2/64"})
	kind, _ := a.ensure(b)
	t.Log("the device is that of the", kind)
	b.ensure(a)
	if !a.says(b) || !b.says(a) {
		t.Fatal("the two ends do not hear each other")
	}
	if _, c := a.ensure(b); !c.Empty() {
		t.Errorf("what is there is set again: %+v", c)
	}
	for _, mtu := range []int{1400, 1300} {
		a.device.MTU = mtu
		a.ensure(b)
		if got := a.run("ip", "link", "show", "gvwg"); !strings.Contains(got, fmt.Sprintf("mtu %d ", mtu)) {
			t.Errorf("the MTU is to be %d: %s", mtu, got)
		}
	}

	// The address of a host that was forgotten and joins again.
	a.run("ip", "addr", "add", "fd67:1::9/128", "dev", "gvwg")
	a.ensure(b)
	if got := a.run("ip", "addr", "show", "gvwg"); strings.Contains(got, "fd67:1::9/") || !strings.Contains(got, "fd67:1::1/") {
		t.Errorf("the addresses: %s", got)
	}

	a.run("ip", "link", "set", "gvwg", "down")
	a.ensure(b)
	if !a.says(b) {
		t.Error("not heard after the device was set down")
	}

	if kind == Userspace {
		// A process that hangs is replaced, though it has the port.
		a.run("pkill", "--signal", "STOP", "-x", "-f", ".* "+Verb+" "+a.device.socket()+" .*")
		a.ensure(b)
		if !a.says(b) {
			t.Error("not heard after the process hung")
		}
	}

	// Without the device there is no way, though a default route leads to the other end, which would take it.
	a.run("ip", "-6", "route", "add", "default", "via", "fd00:9::2")
	b.run("ip", "-6", "route", "add", "fd67:1::1/128", "via", "fd00:9::1")
	a.run("ip", "link", "del", "gvwg")
	if got := a.run("ip", "-6", "route", "show", "fd67:1::/64"); !strings.Contains(got, "unreachable") {
		t.Errorf("the route that leads nowhere is gone: %s", got)
	}
	if !a.silent(b) {
		t.Error("what is to be encrypted takes another way")
	}
	if _, c := a.ensure(b); len(c.Set) != 1 {
		t.Errorf("a new device gets %+v", c)
	}
	b.run("ip", "-6", "route", "del", "fd67:1::1/128")
	if !a.says(b) {
		t.Error("not heard after the device was made again")
	}

	// Who is a peer no more is not heard, nor is who never was.
	b.ensure(stranger)
	if !a.silent(b) {
		t.Error("a forgotten peer is heard")
	}

	a.Do(func() {
		for _, want := range []bool{true, false} {
			gone, err := a.device.Remove()
			if err != nil || (len(gone) > 0) != want {
				t.Errorf("removed %q, %v", gone, err)
			}
		}
		if _, err := link.Get(link.WireGuard); err == nil {
			t.Error("the device is still there")
		}
	})
	if got := a.run("ip", "-6", "route", "show", "fd67:1::/64"); got != "" {
		t.Errorf("still there: %s", got)
	}
}
