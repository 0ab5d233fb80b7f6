package nat

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-iptables/iptables"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

var (
	v4   = netip.MustParsePrefix("10.128.0.0/14")
	pool = netip.MustParsePrefix("172.30.0.0/16")
	v6   = netip.MustParsePrefix("fd00:128::/48")
	ctx  = context.Background()

	// resolver is what the agent's resolver wants (package dns, Rules).
	resolver = []Rule{
		{false, "nat", "PREROUTING", "-i gv0 -p udp -m udp --dport 53 -j REDIRECT --to-ports 7953"},
		{false, "filter", "INPUT", "-i gv0 -p udp -m udp --dport 7953 -j ACCEPT"},
		{true, "nat", "PREROUTING", "-i gv0 -p udp -m udp --dport 53 -j REDIRECT --to-ports 7953"},
		{true, "filter", "INPUT", "-i gv0 -p udp -m udp --dport 7953 -j ACCEPT"},
	}
)

// run runs a command in the namespace of the thread and returns its output.
func run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
	return string(out)
}

// rules is what both families' tables hold, without counters and comments.
func rules(t *testing.T) string {
	var b strings.Builder
	for _, cmd := range []string{"iptables-save", "ip6tables-save"} {
		for l := range strings.Lines(run(t, cmd)) {
			if !strings.HasPrefix(l, "#") {
				l, _, _ = strings.Cut(l, " [")
				b.WriteString(strings.TrimSpace(l) + "\n")
			}
		}
	}
	return b.String()
}

func set(t *testing.T, n *NAT, cidrs ...netip.Prefix) {
	t.Helper()
	if err := n.Set(ctx, Config{Interface: "gv0", CIDRs: cidrs, Rules: resolver}); err != nil {
		t.Fatal(err)
	}
}

func lines(t *testing.T, cmd, table, chain string) string {
	t.Helper()
	return run(t, cmd, "-t", table, "-S", chain)
}

func TestSet(t *testing.T) {
	linktest.New(t).Do(func() {
		run(t, "iptables", "-P", "FORWARD", "DROP")
		run(t, "iptables", "-A", "FORWARD", "-i", "theirs", "-j", "ACCEPT")
		run(t, "iptables", "-t", "nat", "-A", "POSTROUTING", "-s", "192.168.0.0/16", "-j", "MASQUERADE")
		before := rules(t)

		n := New()
		set(t, n, v4, v6)
		const want = `-P FORWARD DROP
-A FORWARD -j GRAPEVINE-FORWARD
-A FORWARD -i theirs -j ACCEPT
`
		if got := lines(t, "iptables", "filter", "FORWARD"); got != want {
			t.Errorf("FORWARD is\n%s", got)
		}
		if got := lines(t, "ip6tables", "nat", Postrouting); !strings.Contains(got, "-A "+Postrouting+" -s fd00:128::/48 ! -o gv0 -j MASQUERADE\n") {
			t.Errorf("IPv6 masquerading is\n%s", got)
		}

		// What is as it should be is not touched: the generation stays.
		gen, err := n.fingerprint()
		if err != nil {
			t.Fatal(err)
		}
		set(t, New(), v4, v6) // an agent that starts
		if again, _ := n.fingerprint(); again != gen {
			t.Error("rules that were right were written again")
		}

		set(t, n, v4, pool)
		if got := lines(t, "iptables", "nat", Postrouting); got != `-N GRAPEVINE-POSTROUTING
-A GRAPEVINE-POSTROUTING -s 10.128.0.0/14 ! -o gv0 -j MASQUERADE
-A GRAPEVINE-POSTROUTING -s 172.30.0.0/16 ! -o gv0 -j MASQUERADE
` {
			t.Errorf("with a pool it is\n%s", got)
		}
		if got := run(t, "ip6tables-save"); strings.Contains(got, "GRAPEVINE") {
			t.Errorf("without IPv6 prefixes it is\n%s", got)
		}

		// Further rules come in the chains of ours, and go with them.
		const input = "-N GRAPEVINE-INPUT\n-A GRAPEVINE-INPUT -i gv0 -p udp -m udp --dport 7953 -j ACCEPT\n"
		if got := lines(t, "iptables", "filter", Input); got != input {
			t.Errorf("rules for INPUT are\n%s", got)
		}
		if err := n.Set(ctx, Config{Interface: "gv0", CIDRs: []netip.Prefix{v4}}); err != nil {
			t.Fatal(err)
		}
		if got := rules(t); strings.Contains(got, Input) || strings.Contains(got, Prerouting) || !strings.Contains(got, Forward) {
			t.Errorf("without further rules it is\n%s", got)
		}
		set(t, n, v4)

		for range 2 {
			if err := n.Remove(ctx); err != nil {
				t.Fatal(err)
			}
		}
		// The nat table of IPv6, now empty, was not there before; legacy keeps it.
		if got := rules(t); strings.Contains(got, "GRAPEVINE") || !strings.Contains(got, strings.Split(before, "COMMIT")[0]) {
			t.Errorf("after Remove:\n%s\nbefore:\n%s", got, before)
		}
	})
}

func TestChainOfOtherRules(t *testing.T) {
	linktest.New(t).Do(func() {
		run(t, "iptables", "-N", Forward)
		run(t, "iptables", "-A", Forward, "-i", "gv0", "-j", "ACCEPT")
		run(t, "iptables", "-A", Forward, "-j", "ACCEPT")
		run(t, "iptables", "-A", Forward, "-j", "ACCEPT")
		set(t, New(), v4)
		want := "-N " + Forward + "\n"
		for _, r := range chainsFor(Config{Interface: "gv0", CIDRs: []netip.Prefix{v4}}, nil, nil, iptables.ProtocolIPv4)[2].rules {
			want += "-A " + Forward + " " + r + "\n"
		}
		if got := lines(t, "iptables", "filter", Forward); got != want {
			t.Errorf("the chain is\n%swant\n%s", got, want)
		}
	})
}

func TestRunPutsBack(t *testing.T) {
	for _, kind := range []string{"nft", "legacy"} {
		t.Run(kind, func(t *testing.T) {
			useBackend(t, kind)
			ns := linktest.New(t)
			n := New()
			n.glance = 50 * time.Millisecond
			ns.Do(func() { set(t, n, v4) })
			keep(t, ns, n)
			ns.Do(func() {
				for _, flush := range [][]string{
					{"iptables", "-F", "FORWARD"},
					{"iptables", "-t", "nat", "-F"},
					{"iptables", "-t", "nat", "-D", "POSTROUTING", "-j", Postrouting},
					{"iptables", "-t", "nat", "-F", Prerouting},
					{"iptables", "-D", "INPUT", "-j", Input},
				} {
					before := rules(t)
					run(t, flush...)
					for end := time.Now().Add(5 * time.Second); rules(t) != before; time.Sleep(20 * time.Millisecond) {
						if time.Now().After(end) {
							t.Fatalf("after %v, and not put back:\n%s", flush, rules(t))
						}
					}
				}
			})
		})
	}
}

// useBackend puts iptables-KIND first in PATH as iptables.
func useBackend(t *testing.T, kind string) {
	t.Helper()
	dir := t.TempDir()
	for _, cmd := range []string{"iptables", "ip6tables"} {
		for _, suffix := range []string{"", "-save", "-restore"} {
			file, err := exec.LookPath(cmd + "-" + kind + suffix)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(file, filepath.Join(dir, cmd+suffix)); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// keep runs n.Run in the namespace until the test ends.
func keep(t *testing.T, ns *linktest.NS, n *NAT) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread goes with the goroutine
		if err := unix.Setns(ns.FD(), unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- n.Run(ctx, slog.New(slog.DiscardHandler))
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	})
}

// A container reaches the outside under the host's address; the outside does not
// reach a container by itself.
func TestPackets(t *testing.T) {
	container, host, outside := linktest.New(t), linktest.New(t), linktest.New(t)
	linktest.Wire(t, "gv0", host, container, []string{"10.128.0.1/24"}, []string{"10.128.0.2/24"})
	linktest.Wire(t, "eth0", host, outside, []string{"10.9.0.1/24"}, []string{"10.9.0.2/24"})
	container.Do(func() { run(t, "ip", "route", "add", "default", "via", "10.128.0.1") })
	outside.Do(func() { run(t, "ip", "route", "add", "10.128.0.0/14", "via", "10.9.0.1") })
	host.Do(func() {
		run(t, "sysctl", "-qw", "net.ipv4.ip_forward=1")
		run(t, "iptables", "-P", "FORWARD", "DROP")
		set(t, New(), v4)
	})
	listen := func(ns *linktest.NS, addr string) net.Listener {
		var l net.Listener
		var err error
		ns.Do(func() { l, err = net.Listen("tcp", addr) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	dial := func(ns *linktest.NS, addr string, timeout time.Duration) error {
		var err error
		ns.Do(func() {
			var c net.Conn
			if c, err = net.DialTimeout("tcp4", addr, timeout); err == nil {
				_ = c.Close()
			}
		})
		return err
	}
	out, in := listen(outside, "10.9.0.2:80"), listen(container, "10.128.0.2:80")
	if err := dial(container, out.Addr().String(), 2*time.Second); err != nil {
		t.Fatal(err)
	}
	c, err := out.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if from := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr(); from != netip.MustParseAddr("10.9.0.1") {
		t.Errorf("the outside saw %v", from)
	}
	if dial(outside, in.Addr().String(), 500*time.Millisecond) == nil {
		t.Error("the outside reached a container")
	}
}

// TestSetAgain: what is declared already costs no process; what could not be done, or
// is something else, is done.
func TestSetAgain(t *testing.T) {
	linktest.New(t).Do(func() {
		n := New()
		set(t, n, v4)
		path := os.Getenv("PATH")
		t.Setenv("PATH", t.TempDir()) // iptables and modprobe are not found any more
		for range 2 {
			set(t, n, v4)
		}
		delete(n.open, iptables.ProtocolIPv4)
		for range 2 {
			if err := n.Set(ctx, Config{Interface: "gv0", CIDRs: []netip.Prefix{v4}}); err == nil {
				t.Error("without iptables, other rules are said to be in place")
			}
		}
		t.Setenv("PATH", path)
		if err := n.Set(ctx, Config{Interface: "gv0", CIDRs: []netip.Prefix{v4}}); err != nil {
			t.Error(err)
		}
		if got := rules(t); strings.Contains(got, Input) {
			t.Errorf("the rules are\n%s", got)
		}
	})
}

func TestNoIPTables(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	n := New()
	if err := n.Set(ctx, Config{Interface: "gv0", CIDRs: []netip.Prefix{v4}}); err == nil || !strings.Contains(err.Error(), "install the package") {
		t.Errorf("set: %v", err)
	}
	if err := n.Remove(ctx); err != nil {
		t.Errorf("remove: %v", err)
	}
}

// TestKernelWithoutIPv6: where the kernel has no ip6tables, there is nothing to remove, and
// what cannot be done is said.
func TestKernelWithoutIPv6(t *testing.T) {
	dir := t.TempDir()
	const program = `#!/bin/sh
case $1 in --version) echo 'ip6tables v1.8.11 (legacy)'; exit 0 ;; esac
echo "modprobe: FATAL: Module ip6_tables not found in directory /lib/modules/6.1.176" >&2
echo "ip6tables v1.8.11 (legacy): can't initialize ip6tables table filter: Table does not exist (do you need to insmod?)" >&2
exit 3
`
	if err := os.WriteFile(filepath.Join(dir, "ip6tables"), []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	if err := New().clear(iptables.ProtocolIPv6, nil); err != nil {
		t.Error(err)
	}
	// IPv4 has its rules all the same, and it is said what is missing.
	linktest.New(t).Do(func() {
		n := New()
		if err := n.Set(ctx, Config{Interface: "gv0", CIDRs: []netip.Prefix{v4, v6}}); err == nil || !strings.Contains(err.Error(), "load its module (ip6table_nat)") {
			t.Errorf("with IPv6 networks: %v", err)
		}
		if got := rules(t); !strings.Contains(got, "-A "+Postrouting+" -s "+v4.String()) {
			t.Errorf("the rules are\n%s", got)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, "ip6tables"), []byte(strings.ReplaceAll(program, "can't initialize", "is afraid of")), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := New().clear(iptables.ProtocolIPv6, nil); err == nil {
		t.Error("another failure of ip6tables is no error")
	}
}

// TestBehindDockerUser: what DOCKER-USER drops is dropped, wherever our jump was.
func TestBehindDockerUser(t *testing.T) {
	for name, first := range map[string]func(t *testing.T){
		"Docker first":    func(t *testing.T) { dockerUserFirst(t) },
		"the agent first": func(t *testing.T) { set(t, New(), v4); dockerUserFirst(t) },
		"an older agent": func(t *testing.T) {
			dockerUserFirst(t)
			run(t, "iptables", "-N", Forward)
			run(t, "iptables", "-I", "FORWARD", "-j", Forward)
		},
	} {
		t.Run(name, func(t *testing.T) {
			linktest.New(t).Do(func() {
				first(t)
				for range 2 {
					set(t, New(), v4)
				}
				const want = "-P FORWARD ACCEPT\n-A FORWARD -j DOCKER-USER\n-A FORWARD -j GRAPEVINE-FORWARD\n-A FORWARD -j THEIRS\n"
				if got := lines(t, "iptables", "filter", "FORWARD"); got != want {
					t.Errorf("FORWARD is\n%s", got)
				}
			})
		})
	}
}

// dockerUserFirst is what Docker does when it starts.
func dockerUserFirst(t *testing.T) {
	run(t, "iptables", "-N", "THEIRS")
	run(t, "iptables", "-A", "FORWARD", "-j", "THEIRS")
	run(t, "iptables", "-N", "DOCKER-USER")
	run(t, "iptables", "-I", "FORWARD", "-j", "DOCKER-USER")
}

// TestForbid: the policy that came with forwarding is kept when all rules are flushed, by
// a later agent as well, and left to whoever changes it on purpose.
func TestForbid(t *testing.T) {
	linktest.New(t).Do(func() {
		n := New()
		set(t, n, v4, v6)
		policy := func(want string) {
			t.Helper()
			for _, command := range []string{"iptables", "ip6tables"} {
				if got := lines(t, command, "filter", "FORWARD"); !strings.HasPrefix(got, "-P FORWARD "+want+"\n") {
					t.Errorf("%s: %s, want %s", command, got, want)
				}
			}
		}
		policy("ACCEPT")
		for _, v6 := range []bool{false, true} {
			if err := n.Forbid(v6); err != nil {
				t.Fatal(err)
			}
		}
		policy("DROP")
		// Docker's bridges go on, where Docker makes no rules for them.
		run(t, "iptables", "-N", "DOCKER")
		if err := n.Bridges([]string{"br-0"}); err != nil {
			t.Fatal(err)
		}
		const through = " -i br-0 -j ACCEPT"
		if got := lines(t, "iptables", "filter", Forward); strings.Contains(got, through) {
			t.Errorf("IPv4: %s", got)
		}
		if got := lines(t, "ip6tables", "filter", Forward); !strings.Contains(got, through) {
			t.Errorf("IPv6: %s", got)
		}
		run(t, "iptables", "-P", "FORWARD", "ACCEPT")
		run(t, "ip6tables", "-P", "FORWARD", "ACCEPT")
		next := New()
		next.Forbidden(false)
		next.Forbidden(true)
		set(t, next, v4, v6)
		policy("ACCEPT")
		run(t, "nft", "flush", "ruleset")
		if err := next.restore(); err != nil {
			t.Fatal(err)
		}
		policy("DROP")
		for _, v6 := range []bool{false, true} {
			if err := next.Allow(v6); err != nil {
				t.Fatal(err)
			}
		}
		policy("ACCEPT")
	})
}

// TestOpen: the chain lets the outside into a network that is open, before it lets nobody in.
func TestOpen(t *testing.T) {
	cfg := Config{Interface: "gv0", CIDRs: []netip.Prefix{v4}, Open: []netip.Prefix{netip.MustParsePrefix("10.128.4.0/22"), netip.MustParsePrefix("fd00:128:4::/64")}}
	rules := chainsFor(cfg, nil, nil, iptables.ProtocolIPv4)[2].rules
	at := slices.Index(rules, "-d 10.128.4.0/22 ! -i gv0 -o gv0 -j ACCEPT")
	if end := slices.Index(rules, "-o gv0 -j DROP"); at < 0 || at > end {
		t.Errorf("the chain is %q", rules)
	}
	if other := (Config{Interface: "gv0", CIDRs: cfg.CIDRs}); cfg.equal(other) {
		t.Error("a network that opens changes nothing")
	}
}
