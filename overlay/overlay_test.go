package overlay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
	"github.com/grapevine-net/grapevine/overlay/gateway"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

func TestMain(m *testing.M) { ovstest.Main(m) }

// vethTunnel is a tunnel whose far end is the test.
type vethTunnel struct {
	mu    sync.Mutex
	vteps map[uint32]netip.Addr
	fails error
}

func (v *vethTunnel) Ensure(context.Context) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.fails != nil {
		return "", v.fails
	}
	if _, err := net.InterfaceByName(TunnelPort); err == nil {
		return TunnelPort, nil
	}
	for _, line := range []string{"link add gvtun type veth peer name gvtunx", "link set gvtun up", "link set gvtunx up"} {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("ip %s: %w: %s", line, err, out)
		}
	}
	return TunnelPort, nil
}

func (v *vethTunnel) SetVTEPs(_ context.Context, vteps map[uint32]netip.Addr) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.vteps = vteps
	return nil
}

func (v *vethTunnel) Foreign(context.Context) (uint64, error) { return 0, nil }

// host is this host with an overlay on a real switch.
type host struct {
	*world
	t      *testing.T
	ovs    *ovs.Embedded
	bridge *ovs.Bridge
	tunnel *vethTunnel
	fast   FastPath
	// liberal is Config.Liberal of the next start.
	liberal func(context.Context) error
	epochs  Epochs // of the next start, too
	// caughtUp is Config.CaughtUp of the next start.
	caughtUp chan struct{}
	// settled and inPlace are Config's of the next start.
	settled func() bool
	inPlace func(context.Context) error
	told    Told
	near    func(netip.Addr) string
	reach   Reach
	way     Gateway
	room    func() int
	settle  func(context.Context) error // in place of the bridge's, of the next start
	*Overlay
	stop func()
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{world: newWorld(t), t: t, tunnel: &vethTunnel{}}
	h.ovs, h.bridge = ovstest.Start(t)
	h.hosts()
	h.put(network("blue", 5), network("red", 6), network("global", 0),
		subnet("10.128.0.0/22", "blue", "10.128.0.1"), subnet("10.129.0.0/22", "red", "10.129.0.1"),
		subnet("10.130.0.0/22", "global", "10.130.0.1"))
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", "gvtun").Run() })
	h.start()
	t.Cleanup(func() { h.stop() })
	return h
}

// gatewayPort is the gateway's port: way, if the test has its own.
func (h *host) gatewayPort() Gateway {
	if h.way != nil {
		return h.way
	}
	return gateway.New(string(me))
}

// start runs an agent's overlay; stop ends it and leaves the switch alone.
func (h *host) start() {
	h.t.Helper()
	o, err := New(Config{
		Log:  slog.New(slog.NewTextHandler(h.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
		Self: me, Bridge: h.bridge, Tunnel: h.tunnel, Mode: pipeline.HeaderBits, VXLANPort: 4789,
		Gateway: h.gatewayPort(), MTU: 1500, Fast: h.fast, CaughtUp: h.caughtUp,
		Settled: h.settled, InPlace: h.inPlace, Told: h.told, Near: h.near, Reach: h.reach, Liberal: h.liberal, Epochs: h.epochs, Room: h.room,
	}, h.world)
	if err != nil {
		h.t.Fatal(err)
	}
	h.Overlay = o
	if h.settle != nil {
		o.narrow.settle = h.settle
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- o.Run(ctx) }()
	h.stop = func() {
		cancel()
		if err := <-done; err != nil {
			h.t.Error(err)
		}
		h.stop = func() {}
	}
}

// container makes a container with an attached endpoint; its name is the letter.
func (h *host) container(letter byte, network, address, gateway string) cluster.Endpoint {
	h.t.Helper()
	e := endpoint(me, letter, network, address)
	ovstest.Container(h.t, string(letter), link.PortName(e.ID), macOf(letter), address+"/22", gateway)
	h.put(e)
	ctx, cancel := context.WithTimeout(h.t.Context(), 10*time.Second)
	defer cancel()
	began := time.Now()
	if err := h.Attach(ctx, e.ID, link.PortName(e.ID)); err != nil {
		h.t.Fatal(err)
	}
	h.t.Logf("attached %c in %v", letter, time.Since(began))
	return e
}

// ping from a container ("": the host) once or, as others' load may be in the way,
// a few times.
func ping(from string, args ...string) error {
	args = append([]string{"busybox", "ping", "-c1", "-W1"}, args...)
	if from != "" {
		args = append([]string{"ip", "netns", "exec", from}, args...)
	}
	var err error
	for range 5 {
		var out []byte
		if out, err = exec.Command(args[0], args[1:]...).CombinedOutput(); err == nil {
			return nil
		}
		err = fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return err
}

func (h *host) reaches(from, to string) {
	h.t.Helper()
	if err := ping(from, to); err != nil {
		h.t.Error(err)
	}
}

// dropped says that f makes the counter of the flows with the description grow.
func (h *host) dropped(object string, f func()) {
	h.t.Helper()
	count := func() (n uint64) {
		flows, err := h.Flows(h.t.Context())
		if err != nil {
			h.t.Fatal(err)
		}
		for _, fl := range flows {
			if fl.Actions == "drop" && fl.Stage+": "+fl.Object == object {
				n += fl.Packets
			}
		}
		return n
	}
	before := count()
	f()
	ovstest.Eventually(h.t, 3*time.Second, func() error { // counters are behind by up to a second
		if n := count(); n == before {
			return fmt.Errorf("%q counts %d packets, as before", object, n)
		}
		return nil
	})
}

func (h *host) unreached(from string, args ...string) func() {
	return func() {
		h.t.Helper()
		cmd := append([]string{"netns", "exec", from, "busybox", "ping", "-c2", "-W1"}, args...)
		if err := exec.Command("ip", cmd...).Run(); err == nil {
			h.t.Errorf("%s reaches %v", from, args)
		}
	}
}

func TestContainersOnOneHost(t *testing.T) {
	h := newHost(t)
	a := h.container('a', "blue", "10.128.0.7", "10.128.0.1")
	h.container('b', "blue", "10.128.0.8", "10.128.0.1")
	h.container('c', "red", "10.129.0.7", "10.129.0.1")
	h.container('g', "global", "10.130.0.7", "10.130.0.1")

	t.Run("reach", func(t *testing.T) {
		h.t = t
		h.reaches("a", "10.128.0.8")
		h.reaches("a", "10.128.0.1") // the gateway
		h.reaches("a", "10.130.0.7") // VNID 0, both ways
		h.reaches("g", "10.129.0.7")
		h.reaches("", "10.128.0.7") // from the host
	})
	t.Run("other network", func(t *testing.T) {
		h.t = t
		h.dropped("vnid-check: drop: source and destination are on different networks", h.unreached("a", "10.129.0.7"))
	})
	t.Run("nobody's address", func(t *testing.T) {
		h.t = t
		h.dropped("forwarding: range 10.128.0.0/22", h.unreached("a", "10.128.0.99"))
	})
	t.Run("spoofed address", func(t *testing.T) {
		h.t = t
		ovstest.Run(t, "ip", "-n", "a", "addr", "add", "10.128.0.9/32", "dev", "eth0")
		h.dropped("spoof-guard: endpoint "+a.ID, h.unreached("a", "-I", "10.128.0.9", "10.128.0.8"))
		ovstest.Run(t, "ip", "-n", "a", "addr", "del", "10.128.0.9/32", "dev", "eth0")
	})
	t.Run("spoofed MAC", func(t *testing.T) {
		h.t = t
		ovstest.Run(t, "ip", "-n", "a", "link", "set", "eth0", "address", macOf('b').String())
		h.dropped("spoof-guard: endpoint "+a.ID, h.unreached("a", "10.128.0.8"))
		ovstest.Run(t, "ip", "-n", "a", "link", "set", "eth0", "address", macOf('a').String())
		h.reaches("a", "10.128.0.8")
	})
	t.Run("ARP", func(t *testing.T) {
		h.t = t
		arping := func(args ...string) (string, error) {
			out, err := exec.Command("ip", append([]string{"netns", "exec", "a", "busybox", "arping", "-c2", "-w2", "-I", "eth0"}, args...)...).CombinedOutput()
			return string(out), err
		}
		if out, err := arping("10.128.2.9"); err != nil || !strings.Contains(out, pipeline.RouterMAC.String()) {
			t.Errorf("for an address of another host: %v: %s", err, out)
		}
		if out, err := arping("-D", "10.128.0.7"); err != nil {
			t.Errorf("a probe of the own address is answered: %v: %s", err, out)
		}
		h.dropped("arp-responder: drop: ARP that is no request for a known prefix", func() {
			if out, err := arping("10.129.0.7"); err == nil {
				t.Errorf("for an address of another network: %s", out)
			}
		})
	})
	t.Run("detach", func(t *testing.T) {
		h.t = t
		if err := h.Detach(t.Context(), a.ID); err != nil {
			t.Fatal(err)
		}
		h.unreached("b", "10.128.0.7")()
		if err := h.Attach(t.Context(), a.ID, link.PortName(a.ID)); err != nil {
			t.Fatal(err)
		}
		h.reaches("b", "10.128.0.7")
	})
	t.Run("down", func(t *testing.T) {
		h.t = t
		ovstest.Run(t, "ip", "link", "set", link.PortName(a.ID), "down")
		h.stop()
		h.start() // a pass that looks at all devices
		h.reaches("b", "10.128.0.7")
	})
	t.Run("not up yet", func(t *testing.T) {
		h.t = t
		e := endpoint(me, 'f', "blue", "10.128.0.15")
		ovstest.Run(t, "ip", "link", "add", link.PortName(e.ID), "type", "veth", "peer", "name", "f-peer")
		t.Cleanup(func() { ovstest.Run(t, "ip", "link", "del", link.PortName(e.ID)) })
		h.put(e)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := h.Pass(ctx) // somebody else's
		if s, stateErr := h.bridge.State(ctx); err != nil || stateErr != nil || s.Ports[link.PortName(e.ID)].Name != "" {
			t.Errorf("an interface that is not up is a port: %v %v %v", s.Ports[link.PortName(e.ID)], err, stateErr)
		}
		if err := h.Attach(ctx, e.ID, link.PortName(e.ID)); err == nil || !strings.Contains(err.Error(), "is down") {
			t.Errorf("attach an interface that is down: %v", err)
		}
		ovstest.Run(t, "ip", "link", "set", link.PortName(e.ID), "up")
		if err := h.Attach(ctx, e.ID, link.PortName(e.ID)); err != nil {
			t.Error(err)
		}
		if err := h.Detach(ctx, e.ID); err != nil {
			t.Error(err)
		}
		del(t, h.world, e)
	})
	t.Run("record gone", func(t *testing.T) {
		h.t = t
		del(t, h.world, a)
		if err := h.Wait(t.Context(), h.Snapshot().Rev()); err != nil {
			t.Fatal(err)
		}
		if s, err := h.bridge.State(t.Context()); err != nil || s.Ports[link.PortName(a.ID)].Name != "" {
			t.Errorf("the port is still there: %v %v", s.Ports, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := h.Attach(ctx, a.ID, link.PortName(a.ID)); err == nil || !strings.Contains(err.Error(), "no record") {
			t.Errorf("attach without a record: %v", err)
		}
	})
}

// TestTunnel is the other host: what leaves for it, and what of its packets is let in.
func TestTunnel(t *testing.T) {
	h := newHost(t)
	h.container('a', "blue", "10.128.0.7", "10.128.0.1")
	local, remote := addr("10.128.0.7"), addr("10.128.2.9")
	const vtep, unknown = 0xc0000202, 0xc0000299
	w := openWire(t, "gvtunx")
	wantSrc, wantDst := headerBits(5, vtep)

	send := exec.Command("ip", "netns", "exec", "a", "busybox", "ping", "-c3", "-W1", remote.String())
	if err := send.Start(); err != nil {
		t.Fatal(err)
	}
	f := w.receive(local, remote, 0, 3*time.Second)
	_ = send.Wait() // nobody answered
	if f == nil {
		t.Fatal("nothing left for the other host")
	}
	if !bytes.Equal(f[:6], wantDst) || !bytes.Equal(f[6:12], wantSrc) {
		t.Errorf("it left with MACs %x, want %x%x", f[:12], wantDst, wantSrc)
	}

	for i, c := range []struct {
		name       string
		vnid, vtep uint32
		src, dst   string
		drop       string // "": let in, and answered
	}{
		{"good", 5, vtep, "10.128.2.9", "10.128.0.7", ""},
		{"unknown VTEP", 5, unknown, "10.128.2.9", "10.128.0.7", "tunnel-source: drop: tunnel packet from an unknown VTEP"},
		{"wrong VNID", 6, vtep, "10.128.2.9", "10.128.0.7", "spoof-guard: range 10.128.2.0/24"},
		{"claims to be privileged", 0, vtep, "10.128.2.9", "10.128.0.7", "spoof-guard: range 10.128.2.0/24"},
		{"another host's address", 5, vtep, "10.128.3.9", "10.128.0.7", "spoof-guard: range 10.128.3.0/24"},
		{"our own address", 5, vtep, "10.128.0.8", "10.128.0.7", "spoof-guard: range 10.128.0.0/22"},
		{"an outside address", 5, vtep, "198.51.100.1", "10.128.0.7", "spoof-guard: drop: tunnel packet whose source is in no known range"},
		{"back into the tunnel", 5, vtep, "10.128.2.9", "10.128.3.9", "forwarding: drop: tunnel packet for no endpoint of this host"},
		{"to the gateway", 5, vtep, "10.128.2.9", "10.128.0.1", "forwarding: drop: tunnel packet for no endpoint of this host"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.t, w.t = t, t
			ethSrc, ethDst := headerBits(c.vnid, c.vtep)
			id := uint16(0x6700 + i)
			request := echo(ethSrc, ethDst, addr(c.src), addr(c.dst), id)
			answer := func() []byte {
				for range 5 {
					w.send(request)
					if f := w.receive(addr(c.dst), addr(c.src), id, 200*time.Millisecond); f != nil || c.drop != "" {
						return f
					}
				}
				return nil
			}
			if c.drop == "" {
				if f := answer(); f == nil || !bytes.Equal(f[:6], wantDst) {
					t.Errorf("answer %x", f)
				}
				return
			}
			h.dropped(c.drop, func() {
				if f := answer(); f != nil {
					t.Errorf("let in and answered: %x", f)
				}
			})
		})
	}
	t.Run("VTEPs", func(t *testing.T) {
		h.tunnel.mu.Lock()
		defer h.tunnel.mu.Unlock()
		want := map[uint32]netip.Addr{vtep: addr("192.0.2.2"), vtep + 1: addr("192.0.2.3")}
		if d := cmp.Diff(want, h.tunnel.vteps, equalNet); d != "" {
			t.Error(d)
		}
	})
}

// TestRepair: whatever is done to the switch, it is whole within two seconds.
// TestTunnelTrouble: what is wrong with the tunnel keeps no flow from its place,
// is said for as long as it lasts, and no longer.
func TestTunnelTrouble(t *testing.T) {
	h := newHost(t)
	fail := func(err error) {
		h.tunnel.mu.Lock()
		defer h.tunnel.mu.Unlock()
		h.tunnel.fails = err
	}
	says := func() error { return errors.Join(h.Problems()...) }
	h.stop()
	fail(errors.New("port 4789 is taken"))
	h.start()
	rev := h.put(node("cccccccccccccccc", addr("192.0.2.99")), network("late", 9))
	ovstest.Eventually(t, 5*time.Second, func() error {
		if err := says(); err == nil || !strings.Contains(err.Error(), "port 4789 is taken") {
			return fmt.Errorf("problems: %w", err)
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := h.Wait(ctx, rev); err != nil {
		t.Error("flows while the tunnel fails:", err)
	}
	fail(nil)
	ovstest.Eventually(t, 10*time.Second, says)
}

func TestRepair(t *testing.T) {
	h := newHost(t)
	a := h.container('a', "blue", "10.128.0.7", "10.128.0.1")
	h.container('b', "blue", "10.128.0.8", "10.128.0.1")
	want, err := h.Flows(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mgmt := "unix:" + filepath.Join(h.bridge.RunDir, "gvbr0.mgmt")
	kill := func(daemon string) func() {
		return func() {
			text, err := os.ReadFile(filepath.Join(h.ovs.RunDir, daemon+".pid"))
			if err != nil {
				t.Fatal(err)
			}
			pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	run := func(name string, args ...string) func() {
		return func() { ovstest.Run(t, name, args...) }
	}
	vsctl := func(args ...string) func() {
		return run("ovs-vsctl", append([]string{"--db=unix:" + h.bridge.DB}, args...)...)
	}
	for _, c := range []struct {
		name string
		do   func()
	}{
		{"del-flows", run("ovs-ofctl", "del-flows", mgmt)},
		{"a foreign flow", run("ovs-ofctl", "add-flow", mgmt, "table=0,priority=60000,actions=drop")},
		{"a changed flow", run("ovs-ofctl", "-O", "OpenFlow14", "mod-flows", mgmt, "table=70,actions=drop")},
		{"del-port", vsctl("del-port", link.PortName(a.ID))},
		{"del-br", vsctl("del-br", "gvbr0")},
		{"kill vswitchd", kill("ovs-vswitchd")},
		{"kill ovsdb-server", kill("ovsdb-server")},
		{"kill both", func() { kill("ovs-vswitchd")(); kill("ovsdb-server")() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.do()
			began := time.Now()
			// Of flows that mention a port only their number can be the same.
			whole := func() error {
				have, err := h.Flows(t.Context())
				if err == nil && len(have) != len(want) {
					err = fmt.Errorf("%d flows, want %d", len(have), len(want))
				}
				return errors.Join(err, h.bridge.Ping(t.Context()), once("a", "10.128.0.8"), once("", "10.128.0.7"))
			}
			ovstest.Eventually(t, 5*time.Second, whole)
			t.Logf("whole after %v", time.Since(began))
		})
	}
}

func once(from, to string) error {
	args := []string{"ping", "-c1", "-W0.1", to}
	if from != "" {
		args = append([]string{"ip", "netns", "exec", from}, args...)
	}
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("ping %s: %w: %s", to, err, out)
	}
	return nil
}

// TestRestart: an agent that restarts changes nothing, so that no packet is lost.
func TestRestart(t *testing.T) {
	h := newHost(t)
	a := h.container('a', "blue", "10.128.0.7", "10.128.0.1")
	h.container('b', "blue", "10.128.0.8", "10.128.0.1")
	h.reaches("a", "10.128.0.8")
	ctx, cancel := context.WithCancel(t.Context())
	var events syncCount
	watched := make(chan error, 1)
	go func() { watched <- h.bridge.Watch(ctx, events.add) }()
	time.Sleep(500 * time.Millisecond) // the watches stand

	pings := exec.Command("ip", "netns", "exec", "a", "ping", "-i0.01", "-c200", "-q", "10.128.0.8")
	var out bytes.Buffer
	pings.Stdout = &out
	if err := pings.Start(); err != nil {
		t.Fatal(err)
	}
	before := events.value()
	h.stop()
	time.Sleep(200 * time.Millisecond)
	h.start()
	if err := h.Attach(t.Context(), a.ID, link.PortName(a.ID)); err != nil {
		t.Error(err)
	}
	if err := pings.Wait(); err != nil || !strings.Contains(out.String(), " 200 received") {
		t.Errorf("pings during the restart: %v: %s", err, out.String())
	}
	if n := events.value() - before; n != 0 {
		t.Errorf("the restart made %d changes to the switch", n)
	}
	cancel()
	<-watched
}

// TestRestartBehind: an agent that knows less than the one before it, as after a kill, changes
// no flow until it is told that it knows as much; what it adds, it adds.
func TestRestartBehind(t *testing.T) {
	h := newHost(t)
	a := h.container('a', "blue", "10.128.0.7", "10.128.0.1")
	h.stop()
	before := h.flows()
	behind := newWorld(t)
	behind.put(cluster.Claim{Block: prefix("0.0.0.0/0"), Owner: me}, node(me, netip.MustParseAddr("192.0.2.1")))
	behind.put(network("blue", 5), subnet("10.128.0.0/22", "blue", "10.128.0.1"), a)

	h.world, h.caughtUp = behind, make(chan struct{})
	h.start()
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := h.Pass(short); !errors.Is(err, errBehind) {
		t.Errorf("a pass that would take flows away: %v", err)
	}
	if after := h.flows(); !slices.Equal(before, after) {
		t.Errorf("flows before\n%s\nafter\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	close(h.caughtUp)
	if err := h.Pass(t.Context()); err != nil || len(h.flows()) >= len(before) {
		t.Errorf("after it was told: %v, and %d flows of %d", err, len(h.flows()), len(before))
	}
	h.stop()

	before = h.flows()
	if err := h.bridge.ApplyBundle(t.Context(), []string{"delete table=70"}); err != nil {
		t.Fatal(err)
	}
	h.caughtUp = make(chan struct{})
	h.start()
	if err := h.Pass(t.Context()); err != nil || !slices.Equal(before, h.flows()) {
		t.Errorf("a pass that only adds: %v", err)
	}
}

// flows are those of the switch, without counters, sorted.
func (h *host) flows() (lines []string) {
	h.t.Helper()
	list, err := h.bridge.DumpFlows(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	for _, f := range list {
		lines = append(lines, fmt.Sprint(f.Table, f.Priority, f.Cookie, f.Match, f.Actions))
	}
	slices.Sort(lines)
	return lines
}

// TestEchoes: what the switch tells of a container's start is known to be our own doing;
// what others do is not.
func TestEchoes(t *testing.T) {
	h := newHost(t)
	h.container('a', "blue", "10.128.0.7", "10.128.0.1")
	ctx, cancel := context.WithCancel(t.Context())
	ear := &Overlay{event: make(chan struct{}, 1)}
	watched := make(chan error, 1)
	go func() { watched <- h.bridge.Watch(ctx, ear.hear) }()
	defer func() {
		cancel()
		<-watched
	}()
	time.Sleep(500 * time.Millisecond) // the watches stand
	ear.events.take()
	inPlace := func() (r reconciler) {
		t.Helper()
		flows, err := h.bridge.DumpFlows(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range flows {
			r.flows = append(r.flows, pipelineFlow(f))
		}
		return r
	}
	hears := func(r reconciler, want reason) {
		t.Helper()
		time.Sleep(300 * time.Millisecond) // all of it
		changes := ear.events.take()
		if got := r.judge(changes); got != want || len(changes) == 0 {
			t.Errorf("%d words of the switch are reason %d, want %d: %+v", len(changes), got, want, changes)
		}
	}
	b := h.container('b', "blue", "10.128.0.8", "10.128.0.1")
	hears(inPlace(), ports)
	del(t, h.world, b)
	if err := h.Wait(t.Context(), h.Snapshot().Rev()); err != nil {
		t.Fatal(err)
	}
	hears(inPlace(), ports)
	r := inPlace()
	h.stop() // or it would undo it
	ovstest.Run(t, "ovs-ofctl", "-O", "OpenFlow14", "del-flows", "unix:"+h.bridge.RunDir+"/gvbr0.mgmt", "table=70")
	hears(r, theirs)
}

type syncCount struct {
	mu sync.Mutex
	n  int
}

func (c *syncCount) add(ovs.Change) { c.mu.Lock(); c.n++; c.mu.Unlock() }
func (c *syncCount) value() int     { c.mu.Lock(); defer c.mu.Unlock(); return c.n }

func TestTeardown(t *testing.T) {
	h := newHost(t)
	h.container('a', "blue", "10.128.0.7", "10.128.0.1")
	h.stop()
	if err := h.Teardown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s, err := h.bridge.State(t.Context()); err != nil || s.Exists {
		t.Errorf("the bridge is there: %v", err)
	}
	if _, err := net.InterfaceByName("gv0"); err == nil {
		t.Error("gv0 is there")
	}
}
