// Package ovstest runs a package's tests beside a real Open vSwitch, out of
// everybody's way: in network, mount and process namespaces of their own, which
// end with them.
package ovstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/ovs"
)

const inside = "GRAPEVINE_OVSTEST_INSIDE"

// Main is TestMain of such a package: it runs the test binary again in the
// namespaces. It needs root and Open vSwitch, and says so.
func Main(m *testing.M) {
	if os.Getenv(inside) != "" {
		if err := prepare(); err != nil {
			fmt.Fprintln(os.Stderr, "ovstest: prepare the namespaces:", err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "ovstest: these tests make network namespaces: run them as root")
		os.Exit(1)
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		os.Exit(0)
	case !errors.As(err, &exit):
		fmt.Fprintln(os.Stderr, "ovstest: run the tests in namespaces:", err)
	}
	os.Exit(1)
}

// prepare makes /proc, /sys and `ip netns` those of the new namespaces.
func prepare() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := os.MkdirAll("/run/netns", 0o755); err != nil {
		return err
	}
	for dir, fs := range map[string]string{"/proc": "proc", "/run/netns": "tmpfs"} {
		if err := unix.Mount(fs, dir, fs, 0, ""); err != nil {
			return fmt.Errorf("mount %s on %s: %w", fs, dir, err)
		}
	}
	return exec.Command("ip", "link", "set", "lo", "up").Run()
}

// Datapath is what Start's switches have: the userspace one, or the kernel's for who sets
// GRAPEVINE_OVSTEST_DATAPATH=kernel where there is one, such as in QEMU (tests/README.md).
func Datapath() ovs.Datapath {
	if d := ovs.Datapath(os.Getenv("GRAPEVINE_OVSTEST_DATAPATH")); d != "" {
		return d
	}
	return ovs.Userspace
}

// Start runs an Open vSwitch for one test and returns it with its bridge's description; the
// bridge is not made.
func Start(t testing.TB) (*ovs.Embedded, *ovs.Bridge) {
	t.Helper()
	dir := t.TempDir()
	e := &ovs.Embedded{RunDir: filepath.Join(dir, "run"), StateDir: filepath.Join(dir, "state"), Datapath: Datapath()}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := e.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	b := &ovs.Bridge{Instance: e.Instance(), Name: "gvbr0", Datapath: Datapath()}
	Eventually(t, time.Minute, func() error { // in QEMU it takes long
		_, err := b.Appctl(t.Context(), "version")
		return err
	})
	return e, b
}

// Settle waits until the bridge's datapath goes by the flows that it has now: till then it may go by those before.
func Settle(t testing.TB, b *ovs.Bridge) {
	t.Helper()
	Eventually(t, time.Minute, func() error { return b.Settle(t.Context()) })
}

// Eventually repeats f until it succeeds, or fails the test with its last error.
func Eventually(t testing.TB, within time.Duration, f func() error) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %v", within, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Run runs a command, fails the test if it fails, and returns what it printed.
func Run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return string(out)
}

// Container makes a namespace with one end of a veth in it, as eth0 with the
// address and a default route, and leaves the other end here, up. Offloads are off
// as the userspace datapath wants them.
func Container(t testing.TB, name, hostIf string, mac net.HardwareAddr, addr, gateway string) {
	t.Helper()
	Run(t, "ip", "netns", "add", name)
	Run(t, "ip", "link", "add", hostIf, "type", "veth", "peer", "name", "eth0", "address", mac.String(), "netns", name)
	t.Cleanup(func() {
		_ = exec.Command("ip", "link", "del", hostIf).Run() // the test may have done so
		Run(t, "ip", "netns", "del", name)
	})
	for _, line := range []string{
		"link set " + hostIf + " up", "-n " + name + " link set lo up", "-n " + name + " link set eth0 up",
		"-n " + name + " addr add " + addr + " dev eth0",
		"-n " + name + " route add default via " + gateway,
	} {
		Run(t, "ip", strings.Fields(line)...)
	}
	Run(t, "ip", "netns", "exec", name, "ethtool", "-K", "eth0", "tx", "off")
}
