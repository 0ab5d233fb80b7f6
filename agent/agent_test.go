package agent

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/agent/task"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/membership"
	"github.com/grapevine-net/grapevine/overlay/plane"
)

var testKey = [][]byte{make([]byte, 32)}

// TestMain has more tests run at once than there are processors: they wait most of the time.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// address is where host n of a test gossips.
func address(n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 100, byte(n)}), 17946)
}

// newHost runs host n as an agent without a switch and Docker, opened as Run does it.
func newHost(t *testing.T, n int, join ...int) *Agent {
	t.Helper()
	a := newAgent(config.Config{
		State: t.TempDir(), Name: fmt.Sprintf("host%d", n), Keys: testKey, Bind: address(n).Addr(), Port: address(n).Port(),
		CIDR4: netip.MustParsePrefix("10.128.0.0/14"), PrefixLen: 22, VXLANPort: 4789,
	}, "", slog.New(slog.DiscardHandler))
	a.underlay = link.Underlay{Addr: address(n).Addr(), MTU: 1500}
	for _, j := range join {
		a.cfg.Join = append(a.cfg.Join, address(j))
	}
	var err error
	if a.member, err = membership.Identify(a.membership()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.member.Close(); err != nil {
			t.Error(err)
		}
	})
	a.reached = a.newReached()
	if err := a.openMember(); err != nil {
		t.Fatal(err)
	}
	a.plane, err = plane.New(plane.Config{
		Settings: a.cfg, Switch: plane.Switch{Bridge: &ovs.Bridge{Instance: ovs.NewInstance(filepath.Join(a.cfg.State, "no.sock")), Datapath: ovs.Kernel}}, Self: a.self(), Underlay: a.underlay, Source: a.replica, Log: a.log,
	})
	if err != nil {
		t.Fatal(err)
	}
	a.naming = newNaming(a.place)
	a.clients = a.newClients()
	a.naming.lead(nil)
	a.groups = a.newGroups()
	a.announcer = a.newAnnouncer()
	a.exposes = a.newExposes()
	a.openWatches()
	tasks, ctx := errgroup.WithContext(t.Context())
	for _, run := range a.member.Tasks() {
		tasks.Go(func() error { return run(ctx) })
	}
	t.Cleanup(func() {
		if err := tasks.Wait(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// eventually waits for a condition, ten seconds at most.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within ten seconds: %s", what)
		}
	}
}

// TestNoProblems: two agents that are one cluster have nothing to complain of.
func TestNoProblems(t *testing.T) {
	t.Parallel()
	one, two := newHost(t, 1), newHost(t, 2, 1)
	eventually(t, "both know both", func() bool {
		return two.replica.Settled() && len(one.member.Nodes(one.replica.Snapshot())) == 2 && len(two.member.Nodes(two.replica.Snapshot())) == 2
	})
	if p := two.problems(t.Context(), task.Look{Snapshot: two.replica.Snapshot()}); len(p) != 0 {
		t.Errorf("problems of a whole cluster: %v", p)
	}
}

// TestStoppedWhileItStarts: an agent that is told to stop before it runs has done as it was told.
func TestStoppedWhileItStarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := config.Config{State: dir, Run: dir, PluginSocket: filepath.Join(dir, "p.sock")}
	other, err := net.Listen("unix", cfg.PluginSocket) // for whose end it waits
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, cfg, "1", nil, slog.New(slog.DiscardHandler)) }()
	for range 3 { // it asks for a deputy, and then whether anybody is there
		c, err := other.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("it ends with %v", err)
	}
}

// TestTasks: each task has a name of its own, and all of membership's run.
func TestTasks(t *testing.T) {
	t.Parallel()
	a := newHost(t, 3)
	names := map[string]bool{}
	for _, task := range a.tasks() {
		if names[task.Name] {
			t.Errorf("%s is there twice", task.Name)
		}
		names[task.Name] = task.Run != nil
		// Of these doctor finds out by itself (diagnose/doctor): silent hosts, ways to others, rules, the socket, the engine.
		if itself := []string{"autoforget", "contacts", "firewall", "paths", "plugin", "engine"}; task.Problems != nil && task.Doctor == "" && !slices.Contains(itself, task.Name) {
			t.Errorf("doctor says nothing of what is wrong with %s", task.Name)
		}
		if task.Doctor != "" && task.Problems == nil || task.Run == nil && task.Problems == nil {
			t.Errorf("%s has no problems", task.Name)
		}
	}
	for name := range a.member.Tasks() {
		if !names[name] {
			t.Errorf("nobody runs %s", name)
		}
	}
}

// TestAskedByOthers: whatever another host asks of this one is asked of rooms that are there. They are opened one after the other, and
// some are given what is opened after them.
func TestAskedByOthers(t *testing.T) {
	t.Parallel()
	a := newHost(t, 4)
	asked := 0
	for _, methods := range append(a.desks.methods(), a.prober.Methods()) {
		for name, handler := range methods {
			asked++
			func() {
				defer func() {
					if p := recover(); p != nil {
						t.Errorf("%s: %v: %s", name, p, debug.Stack())
					}
				}()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, _ = handler(ctx, "0011223344556677", []byte{0xa0}) // a question of which each field is empty
			}()
		}
	}
	if asked < 5 {
		t.Errorf("only %d questions are known", asked)
	}
}
