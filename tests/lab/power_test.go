package lab_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// What a host wrote outlives a loss of power; its processes, its /run and what it
// changed in its network do not, and the machine sees none of it.
func TestPowerOffKeepsTheDisk(t *testing.T) {
	t.Parallel()
	ctx, l := newLab(t, lab.Options{Hosts: 1})
	h, run := l.Hosts[0], must(t)
	run(h.Docker(ctx, "run", "-d", "--name", "app", "--restart", "always", lab.Image))
	run(h.Exec(ctx, "sh", "-c", "echo kept > /etc/lab-test; echo gone > /run/lab-test; ip link add own0 type bridge"))
	if _, err := os.Stat("/etc/lab-test"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a host's file is on the machine: %v", err)
	}
	if err := h.FillDisk(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Exec(ctx, "sh", "-c", "head -c 8192 /dev/zero > /etc/lab-test2"); err == nil || !strings.Contains(err.Error(), "space") {
		t.Errorf("writing to a full disk: %v", err)
	}
	if err := h.FreeDisk(); err != nil {
		t.Fatal(err)
	}
	run(h.Exec(ctx, "sh", "-c", "head -c 8192 /dev/zero > /etc/lab-test2"))
	if err := h.PowerOff(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Exec(ctx, "true"); err == nil {
		t.Error("a host without power ran a command")
	}
	if err := h.Boot(ctx); err != nil {
		t.Fatal(err)
	}
	if got := run(h.Exec(ctx, "cat", "/etc/lab-test")); got != "kept" {
		t.Errorf("the file has %q", got)
	}
	for _, gone := range [][]string{{"cat", "/run/lab-test"}, {"ip", "link", "show", "own0"}} {
		var exit *lab.ExitError
		if out, err := h.Exec(ctx, gone...); !errors.As(err, &exit) {
			t.Errorf("%v after a boot: %q, %v", gone, out, err)
		}
	}
	container(ctx, t, h, "app") // it has a restart policy
}

func TestOneWayCutAndLoss(t *testing.T) {
	t.Parallel()
	ctx, l := newLab(t, lab.Options{Hosts: 2})
	run, a, b := must(t), l.Hosts[0], l.Hosts[1]
	const pings = 100
	// Counted where they arrive, since an echo needs both ways.
	arrived := func(from, to *lab.Host) int {
		t.Helper()
		run(to.Exec(ctx, "sh", "-c", "iptables -N COUNT 2>/dev/null && iptables -I INPUT -p icmp --icmp-type 8 -j COUNT; iptables -Z"))
		_, _ = from.Exec(ctx, "busybox", "ping", "-c", strconv.Itoa(pings), "-i", "0.01", "-W", "1", to.Addr().String())
		n, err := strconv.Atoi(run(to.Exec(ctx, "sh", "-c", "iptables -nvxL INPUT | awk '/COUNT/ {print $1}'")))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n, m := arrived(a, b), arrived(b, a); n != pings || m != pings { // and both know each other's MAC
		t.Fatalf("%d and %d of %d pings arrive on a whole wire", n, m, pings)
	}
	run("", l.Wire.CutOneWay(ctx, a.Name, b.Name))
	if n, m := arrived(a, b), arrived(b, a); n != 0 || m != pings {
		t.Errorf("%d pings get through the cut, and %d of %d the other way", n, m, pings)
	}
	run("", l.Wire.Heal(ctx))
	run("", l.Wire.Loss(ctx, a.Name, b.Name, 50))
	if n := arrived(a, b); n < pings/5 || n > pings*4/5 {
		t.Errorf("%d of %d pings get through a loss of a half", n, pings)
	}
	run("", l.Wire.Heal(ctx))
	if n := arrived(a, b); n != pings {
		t.Errorf("%d of %d pings get through after Heal", n, pings)
	}
	run("", l.Wire.CutOutside(ctx, "host1"))
	if out, err := a.Exec(ctx, "busybox", "ping", "-c", "1", "-W", "1", lab.OutsideAddr); err == nil {
		t.Errorf("the outside answers through the cut: %s", out)
	}
	run(b.Exec(ctx, "busybox", "ping", "-c", "1", "-W", "3", lab.OutsideAddr))
}

// Two labs stand side by side with the same addresses; closing them leaves the
// machine as it was.
func TestTwoLabsAndNothingLeft(t *testing.T) {
	before := machine(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var labs [2]*lab.Lab
	for i := range labs {
		l, err := lab.New(ctx, lab.Options{Hosts: 1})
		if err != nil {
			t.Fatal(err)
		}
		labs[i] = l
	}
	run := must(t)
	run(labs[0].Hosts[0].Docker(ctx, "run", "-d", "--name", "one", lab.Image))
	run(labs[1].Hosts[0].Docker(ctx, "run", "-d", "--name", "two", lab.Image))
	if got := run(labs[0].Hosts[0].Docker(ctx, "ps", "--format", "{{.Names}}")); got != "one" {
		t.Errorf("the first lab has the containers %q", got)
	}
	ids := []string{labs[0].ID(), labs[1].ID()}
	if machine(t, ids...) == before {
		t.Error("the check finds nothing of labs that are there")
	}
	for _, l := range labs {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if after := machine(t, ids...); after != before {
		t.Errorf("the machine was\n%s\nand is\n%s", before, after)
	}
}

// machine lists what the labs named may have left, and the machine's own NICs.
func machine(t *testing.T, ids ...string) string {
	t.Helper()
	script := `ip -o link | cut -d: -f2 | sed 's/@.*//'
		for id; do
			grep $id /proc/mounts
			find /sys/fs/cgroup -maxdepth 3 -name $id
			grep -l $id /proc/[0-9]*/cgroup 2>/dev/null
			ls -d /run/grapevine-lab/$id 2>/dev/null
		done; true`
	out, err := exec.Command("sh", append([]string{"-c", script, "sh"}, ids...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestContextEndsACommand(t *testing.T) {
	t.Parallel()
	ctx, l := newLab(t, lab.Options{Hosts: 1})
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if _, err := l.Hosts[0].Exec(short, "sleep", "4711"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the command ended with %v", err)
	}
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		out, _ := l.Hosts[0].Exec(ctx, "pgrep", "-f", "^sleep 4711")
		if strings.TrimSpace(out) == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it still runs: %s", out)
		}
	}
}

func TestAddrsOfHosts(t *testing.T) {
	t.Parallel()
	_, l := newLab(t, lab.Options{Hosts: 2})
	if got, want := l.Hosts[1].Addr(), netip.MustParseAddr("192.0.2.2"); got != want {
		t.Errorf("host2 has %s, want %s", got, want)
	}
	if _, err := l.Host("host3"); err == nil || !strings.Contains(err.Error(), "host1 to host2") {
		t.Errorf("a host that is not there: %v", err)
	}
}
