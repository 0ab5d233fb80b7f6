package ovs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
)

func TestMain(m *testing.M) { ovstest.Main(m) }

// pid reads a daemon's pid file; 0: there is none just now.
func pid(t *testing.T, e *ovs.Embedded, name string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(e.RunDir, name+".pid"))
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestEmbeddedDaemonsAreRestarted(t *testing.T) {
	e, b := ovstest.Start(t)
	left := killOfctl(t, e, b)
	for _, name := range []string{"ovsdb-server", "ovs-vswitchd"} {
		old := pid(t, e, name)
		if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		ovstest.Eventually(t, 2*time.Second, func() error {
			if now := pid(t, e, name); now == old || now == 0 {
				return errors.New(name + " has its old pid or none")
			}
			if _, err := b.Appctl(t.Context(), "version"); err != nil {
				return err
			}
			return b.Ping(t.Context())
		})
	}
	if err := b.Ensure(t.Context()); err != nil {
		t.Error("after both were killed:", err)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket of a killed ovs-ofctl is still there: %v", err)
	}
}

// killOfctl kills an ovs-ofctl and returns the socket that it leaves.
func killOfctl(t *testing.T, e *ovs.Embedded, b *ovs.Bridge) (socket string) {
	if err := b.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("ovs-ofctl", "monitor", "unix:"+filepath.Join(e.RunDir, b.Name+".mgmt"))
	cmd.Env = append(os.Environ(), "OVS_RUNDIR="+e.RunDir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(e.RunDir, fmt.Sprintf("ovs-ofctl.%d.ctl", cmd.Process.Pid))
	ovstest.Eventually(t, 5*time.Second, func() error {
		_, err := os.Stat(socket)
		return err
	})
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // killed
	return socket
}

// TestEmbeddedDaemonsAreAdopted: they outlive the agent, the next one finds them,
// restarts them, and stops them.
func TestEmbeddedDaemonsAreAdopted(t *testing.T) {
	dir := t.TempDir()
	agent := func() (*ovs.Embedded, func()) {
		e := &ovs.Embedded{RunDir: filepath.Join(dir, "run"), StateDir: filepath.Join(dir, "state"), Datapath: ovs.Userspace}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		ovstest.Eventually(t, 10*time.Second, func() error {
			_, err := e.Instance().Appctl(t.Context(), "version")
			return err
		})
		return e, func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	e, end := agent()
	server, vswitchd := pid(t, e, "ovsdb-server"), pid(t, e, "ovs-vswitchd")
	end()
	e, end = agent()
	if pid(t, e, "ovsdb-server") != server || pid(t, e, "ovs-vswitchd") != vswitchd {
		t.Error("a restarted agent started other daemons")
	}
	// An adopted daemon is no child: its death must be seen all the same.
	time.Sleep(50 * time.Millisecond)
	if err := syscall.Kill(vswitchd, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ovstest.Eventually(t, 2*time.Second, func() error {
		_, err := e.Instance().Appctl(t.Context(), "version")
		return err
	})
	end()
	if err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := e.Instance().Ping(t.Context()); err == nil {
		t.Error("the database answers after Stop")
	}
}

// TestEmbeddedRunDirectoryIsSwept: somebody removes all of it, while an agent runs and while none does.
func TestEmbeddedRunDirectoryIsSwept(t *testing.T) {
	e, b := ovstest.Start(t)
	if err := b.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(e.RunDir); err != nil {
		t.Fatal(err)
	}
	ovstest.Eventually(t, 20*time.Second, func() error {
		if pid(t, e, "ovsdb-server") == 0 || pid(t, e, "ovs-vswitchd") == 0 {
			return errors.New("a pid file is missing")
		}
		if _, err := os.Stat(filepath.Join(e.RunDir, b.Name+".mgmt")); err != nil {
			return err
		}
		return b.Ping(t.Context())
	})
}

// TestEmbeddedCannotComeBack: a daemon that nobody reaches goes on while it could not begin anew, one
// that has ended is told of, and both are well when what was in their way is gone.
func TestEmbeddedCannotComeBack(t *testing.T) {
	e, b := ovstest.Start(t)
	if err := b.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	vswitchd := pid(t, e, "ovs-vswitchd")
	if err := errors.Join(os.RemoveAll(e.RunDir), os.WriteFile(e.RunDir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	says := func(what string) func() error {
		return func() error {
			for _, err := range e.Trouble() {
				if strings.Contains(err.Error(), what) && strings.Contains(err.Error(), e.RunDir) {
					return nil
				}
			}
			return fmt.Errorf("%q, and not %q", e.Trouble(), what)
		}
	}
	ovstest.Eventually(t, 20*time.Second, says("ovs-vswitchd cannot be reached"))
	if err := syscall.Kill(vswitchd, syscall.SIGKILL); err != nil {
		t.Fatal("it goes on no more: ", err)
	}
	ovstest.Eventually(t, 10*time.Second, says("ovs-vswitchd does not come back"))
	if err := os.Remove(e.RunDir); err != nil {
		t.Fatal(err)
	}
	ovstest.Eventually(t, 20*time.Second, func() error { return errors.Join(append(e.Trouble(), b.Ping(t.Context()))...) })
}

// TestKillCommand: it ends ovs-vswitchd, and no other process of that name.
func TestKillCommand(t *testing.T) {
	e, _ := ovstest.Start(t)
	other := exec.Command("bash", "-c", `exec -a ovs-vswitchd bash -c 'echo up; sleep 60; :' x --pidfile=/run/openvswitch/ovs-vswitchd.pid`)
	out, err := other.StdoutPipe()
	if err == nil {
		err = other.Start()
	}
	if err == nil {
		_, err = out.Read(make([]byte, 1))
	}
	if err != nil {
		t.Fatal(err)
	}
	mine := pid(t, e, "ovs-vswitchd")
	if said, err := exec.Command("sh", "-c", e.KillCommand("ovs-vswitchd")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	ovstest.Eventually(t, 10*time.Second, func() error {
		if now := pid(t, e, "ovs-vswitchd"); now == mine || now == 0 {
			return fmt.Errorf("process %d, %d before", now, mine)
		}
		return nil
	})
	if args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", other.Process.Pid)); err != nil || len(args) == 0 { // a zombie has none
		t.Errorf("another one was ended: %v", err)
	}
	_ = other.Process.Kill()
	_ = other.Wait() // killed
}

// TestEmbeddedIsFoundWithoutItsFiles: and nobody else's daemons are, with the same paths in another
// network, or at other paths.
func TestEmbeddedIsFoundWithoutItsFiles(t *testing.T) {
	dir := t.TempDir()
	e := &ovs.Embedded{RunDir: filepath.Join(dir, "run"), StateDir: filepath.Join(dir, "state"), Datapath: ovs.Userspace}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	defer func() { _ = e.Stop(context.WithoutCancel(ctx)) }()
	ovstest.Eventually(t, 10*time.Second, func() error {
		_, err := e.Instance().Appctl(t.Context(), "version")
		return err
	})
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	want := []string{"ovsdb-server", "ovs-vswitchd"}
	if err := os.RemoveAll(e.RunDir); err != nil {
		t.Fatal(err)
	}
	if got := e.Running(); !reflect.DeepEqual(got, want) {
		t.Errorf("without the run directory: %q run, want %q", got, want)
	}
	if err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A program of that name with those arguments: here it is taken for the daemon, elsewhere not.
	if err := os.MkdirAll(e.RunDir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		where string
		in    []string
		found []string
	}{
		{"here", []string{"env"}, []string{"ovs-vswitchd"}},
		{"in another network", []string{"unshare", "-n"}, nil},
		{"with another directory at the path", []string{"unshare", "-m", "sh", "-c", `mount -t tmpfs none "$0" && exec "$@"`, e.RunDir}, nil},
	} {
		program := append(c.in, "bash", "-c", `exec -a ovs-vswitchd bash -c 'echo up; sleep 60; :' x "$0"`, "--pidfile="+filepath.Join(e.RunDir, "ovs-vswitchd.pid"))
		cmd := exec.Command(program[0], program[1:]...)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if got := e.Running(); !slices.Equal(got, c.found) {
			t.Errorf("%s: %q run, want %q", c.where, got, c.found)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	}
}

// TestStalePidFile: another program with the pid of the file is left alone.
func TestStalePidFile(t *testing.T) {
	dir := t.TempDir()
	e := &ovs.Embedded{RunDir: dir, StateDir: dir, Datapath: ovs.Userspace}
	for _, name := range []string{"ovsdb-server", "ovs-vswitchd"} {
		if err := os.WriteFile(filepath.Join(dir, name+".pid"), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Stop(t.Context()); err != nil { // would end this test
		t.Error(err)
	}
}

// lines passes on what is logged.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	select {
	case l <- string(p):
	default: // nobody reads any more
	}
	return len(p), nil
}

// TestAnotherAgentsDaemons: those of an agent in another PID namespace, such as a
// managed plugin's, are not this one's to start again.
func TestAnotherAgentsDaemons(t *testing.T) {
	dir := t.TempDir()
	e := &ovs.Embedded{RunDir: dir, StateDir: dir, Datapath: ovs.Userspace}
	run := func(e *ovs.Embedded) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	// Its own paths are others, as in the plugin's root file system.
	db := filepath.Join(dir, "ovs.db")
	if out, err := exec.Command("ovsdb-tool", "create", db).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	theirs := exec.Command("ovsdb-server", db, "--remote=punix:"+e.Instance().DB, "--no-chdir", "--pidfile="+filepath.Join(dir, "theirs.pid"), "--unixctl="+filepath.Join(dir, "theirs.ctl"))
	if err := theirs.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = theirs.Process.Kill()
		_ = theirs.Wait() // killed
	}()
	ovstest.Eventually(t, 10*time.Second, func() error { return e.Instance().Ping(t.Context()) })
	logged := make(lines, 100)
	other := &ovs.Embedded{RunDir: dir, StateDir: dir, Datapath: ovs.Userspace, Log: slog.New(slog.NewTextHandler(logged, nil))}
	stop := run(other)
	for line := range logged {
		if strings.Contains(line, "another agent's Open vSwitch answers") {
			break
		}
		if strings.Contains(line, "started an Open vSwitch daemon") && strings.Contains(line, "ovsdb-server") {
			t.Error(line)
			break
		}
	}
	stop()
	if err := e.Instance().Ping(t.Context()); err != nil {
		t.Error("the other agent's database: ", err)
	}
}

// bridged makes a bridge, and waits until ovs-vswitchd has it.
func bridged(e *ovs.Embedded) error {
	return exec.Command("ovs-vsctl", "--timeout=5", "--db=unix:"+e.Instance().DB, "--may-exist", "add-br", "gvtest",
		"--", "set", "bridge", "gvtest", "datapath_type=netdev").Run()
}

// TestDamagedDatabase: whatever is in the switch's database, there is one that takes a bridge.
// What no Open vSwitch can read, or convert, is put aside.
func TestDamagedDatabase(t *testing.T) {
	schema, err := os.ReadFile("/usr/share/openvswitch/vswitch.ovsschema")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`"version": "[^"]*"`)
	newer := version.ReplaceAll(schema, []byte(`"version": "99.0.0"`))
	other := bytes.ReplaceAll(newer, []byte(`"external_ids"`), []byte(`"other_ids"`))
	made := func(t *testing.T, schema []byte, column string) []byte {
		dir := t.TempDir()
		file := filepath.Join(dir, "schema")
		if err := os.WriteFile(file, schema, 0o600); err != nil {
			t.Fatal(err)
		}
		ovstest.Run(t, "ovsdb-tool", "create", filepath.Join(dir, "db"), file)
		ovstest.Run(t, "ovsdb-tool", "transact", filepath.Join(dir, "db"), `["Open_vSwitch",{"op":"insert","table":"Open_vSwitch","row":{"`+column+`":["map",[["a","b"]]]}}]`)
		db, err := os.ReadFile(filepath.Join(dir, "db"))
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	good := made(t, schema, "external_ids")
	flipped := bytes.Clone(good)
	flipped[len(good)-20] ^= 1
	for name, tt := range map[string]struct {
		db    []byte
		aside bool
	}{
		"whole":       {good, false},
		"garbage":     {[]byte("garbage\n"), true},
		"empty":       {nil, true},
		"torn":        {good[:len(good)-30], false},
		"torn schema": {good[:len(good)/2], true},
		"flipped":     {flipped, false},
		"newer":       {made(t, newer, "external_ids"), false},
		"renamed":     {made(t, other, "other_ids"), false},
		"another's":   {made(t, []byte(`{"name": "Open_vSwitch", "version": "1.0.0", "tables": {"Open_vSwitch": {"isRoot": true, "columns": {"cur_cfg": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}}}}}}`), "cur_cfg"), true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "ovs.db"), tt.db, 0o600); err != nil {
				t.Fatal(err)
			}
			e := &ovs.Embedded{RunDir: dir, StateDir: dir, Datapath: ovs.Userspace}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- e.Run(ctx) }()
			ovstest.Eventually(t, 10*time.Second, func() error {
				if err := e.Instance().Ping(t.Context()); err != nil {
					return err
				}
				return bridged(e)
			})
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if err := e.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(filepath.Join(dir, "ovs.db.unreadable")); (err == nil) != tt.aside {
				t.Errorf("put aside: %v", err == nil)
			}
		})
	}
}

// TestDatabaseOnADiskThatTakesNothing: a good database that has to be converted is neither lost
// nor replaced while there is no room for that.
func TestDatabaseOnADiskThatTakesNothing(t *testing.T) {
	schema, err := os.ReadFile("/usr/share/openvswitch/vswitch.ovsschema")
	if err != nil {
		t.Fatal(err)
	}
	older := filepath.Join(t.TempDir(), "schema")
	if err := os.WriteFile(older, regexp.MustCompile(`"version": "[^"]*"`).ReplaceAll(schema, []byte(`"version": "1.0.0"`)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, flag := range map[string]uintptr{"full": 0, "read-only": syscall.MS_RDONLY} {
		t.Run(name, func(t *testing.T) {
			dir, runDir := t.TempDir(), t.TempDir()
			if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
				t.Fatalf("mount a small file system: %v; the tests run as root", err)
			}
			t.Cleanup(func() { _ = syscall.Unmount(dir, 0) })
			file := filepath.Join(dir, "ovs.db")
			ovstest.Run(t, "ovsdb-tool", "create", file, older)
			good, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_ = os.Remove(filepath.Join(dir, ".ovs.db.~lock~"))
			size := (len(good)/4096 + 1) * 4096
			if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|flag, fmt.Sprintf("size=%d", size)); err != nil {
				t.Fatal(err)
			}
			logged := make(lines, 100)
			e := &ovs.Embedded{RunDir: runDir, StateDir: dir, Datapath: ovs.Userspace, Log: slog.New(slog.NewTextHandler(logged, nil))}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- e.Run(ctx) }()
			for line := range logged {
				if strings.Contains(line, "must be writable and have room") {
					break
				}
			}
			if now, err := os.ReadFile(file); err != nil || !bytes.Equal(now, good) {
				t.Errorf("the database is not what it was: %d bytes, %v", len(now), err)
			}
			if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT, "size=1m"); err != nil {
				t.Fatal(err)
			}
			ovstest.Eventually(t, 10*time.Second, func() error { return bridged(e) })
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if err := e.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(file + ".unreadable"); err == nil {
				t.Error("a good database was put aside")
			}
		})
	}
}

func TestBridge(t *testing.T) {
	_, b := ovstest.Start(t)
	if s, err := b.State(t.Context()); err != nil || s.Exists {
		t.Fatalf("before Ensure: %+v, %v", s, err)
	}
	for range 2 {
		if err := b.Ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ovstest.Run(t, "ip", "link", "add", "gvtest0", "type", "veth", "peer", "name", "gvtest1")
	t.Cleanup(func() { ovstest.Run(t, "ip", "link", "del", "gvtest0") })
	add := []ovs.PortSpec{
		{Name: "gvtest0", Role: "endpoint", Endpoint: "abc"},
		{Name: "gv0", Type: "internal", Role: "gateway", MAC: "02:67:76:00:00:02"},
		{Name: "gvnone", Role: "endpoint"},
	}
	// A device that does not exist is no error of ovs-vsctl: State says it.
	set, err := b.SetPorts(t.Context(), add, []string{"nothing"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(set, s) {
		t.Errorf("SetPorts says %+v, State %+v", set, s)
	}
	p, gw, none := s.Ports["gvtest0"], s.Ports["gv0"], s.Ports["gvnone"]
	if !s.Configured || p.OFPort == 0 || p.Endpoint != "abc" || p.Role != "endpoint" || gw.Type != "internal" || gw.OFPort == 0 {
		t.Errorf("state: %+v", s)
	}
	if none.OFPort != 0 || none.Error == "" {
		t.Errorf("a port without a device: %+v", none)
	}
	if s, err := b.SetPorts(t.Context(), nil, []string{"gvtest0", "gvnone"}); err != nil || s.Ports["gvtest0"].Name != "" || s.Ports["gv0"].Name == "" {
		t.Errorf("without two ports: %+v, %v", s, err)
	}
	if err := b.Delete(t.Context()); err != nil {
		t.Error(err)
	}
	if s, err := b.State(t.Context()); err != nil || s.Exists {
		t.Errorf("after Delete: %+v, %v", s, err)
	}
	if err := b.Delete(t.Context()); err != nil {
		t.Error("deleting what is gone:", err)
	}
}

// TestTracking: the userspace datapath tracks connections, and forgets those that it is to.
func TestTracking(t *testing.T) {
	_, b := ovstest.Start(t)
	if err := b.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	if lacks, err := b.CannotTrack(t.Context()); err != nil || len(lacks) > 0 {
		t.Errorf("%v, it lacks %q", err, lacks)
	}
	if room, err := b.Connections(t.Context(), 26486); err != nil || room != (ovs.Space{}) {
		t.Errorf("%v, it has %+v", err, room)
	}
	if err := b.LimitConnections(t.Context(), 26486, 100); err != nil {
		t.Error(err)
	}
	// A ping and a datagram of fd00::5, to fd00::6: the daemon outlives that they are forgotten.
	const head = "ffffffffffff02000000000586dd60000000%04x%02x40fd000000000000000000000000000005fd000000000000000000000000000006"
	for _, packet := range []string{
		fmt.Sprintf(head, 8, 58) + "800085ae00010001", // ICMPv6: echo, its checksum, ID and number
		fmt.Sprintf(head, 8, 17) + "138813880008dec1", // UDP: ports, length and checksum
	} {
		ovstest.Run(t, "ovs-ofctl", "-O", "OpenFlow14", "packet-out", "unix:"+filepath.Join(b.RunDir, b.Name+".mgmt"),
			"in_port=local packet="+packet+" actions=ct(commit,zone=26486)")
	}
	known := func() string {
		out, err := b.Appctl(t.Context(), "dpctl/dump-conntrack", "zone=26486")
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	if had := known(); !strings.Contains(had, "icmpv6,orig=(src=fd00::5") || !strings.Contains(had, "udp,orig=(src=fd00::5") {
		t.Fatalf("it tracks %q", had)
	}
	if room, err := b.Connections(t.Context(), 26486); err != nil || room != (ovs.Space{Has: 2, Limit: 100}) {
		t.Errorf("%v, it has %+v", err, room)
	}
	if callers, err := b.Callers(t.Context(), 26486); err != nil || len(callers) != 1 || callers[netip.MustParseAddr("fd00::5")] != 2 {
		t.Errorf("%v, callers are %v", err, callers)
	}
	if err := b.ForgetConnections(t.Context(), 26486, netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("fd00::5")); err != nil {
		t.Error(err)
	}
	if has := known(); strings.Contains(has, "udp,") {
		t.Errorf("it still tracks %q", has)
	}
}

func TestForeignBridgeIsLeftAlone(t *testing.T) {
	_, b := ovstest.Start(t)
	ovstest.Run(t, "ovs-vsctl", "--db=unix:"+b.DB, "add-br", "gvbr0", "--", "set", "Bridge", "gvbr0", "datapath_type=netdev")
	if err := b.Ensure(t.Context()); err == nil || !strings.Contains(err.Error(), "not grapevine's") {
		t.Errorf("Ensure: %v", err)
	}
	if err := b.Delete(t.Context()); err != nil {
		t.Error(err)
	}
	if s, err := b.State(t.Context()); err != nil || !s.Exists {
		t.Errorf("the bridge is gone: %+v, %v", s, err)
	}
}

func TestBundleIsAtomic(t *testing.T) {
	_, b := ovstest.Start(t)
	if err := b.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := b.ApplyBundle(t.Context(), []string{
		"add cookie=0x5,table=3,priority=7,ip,actions=goto_table:4",
		"add cookie=0x5,table=3,priority=7,arp,actions=goto_table:2", // backwards: refused
	})
	if err == nil || !strings.Contains(err.Error(), "OFPBIC_BAD_TABLE_ID") {
		t.Errorf("a bundle with a bad flow: %v", err)
	}
	if flows, err := b.DumpFlows(t.Context()); err != nil || len(flows) != 0 {
		t.Errorf("after it: %v, %v", flows, err)
	}
	if err := b.ApplyBundle(t.Context(), []string{"add cookie=0x5,table=3,priority=7,ip,actions=goto_table:4"}); err != nil {
		t.Fatal(err)
	}
	flows, err := b.DumpFlows(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]ovs.Flow{{Table: 3, Priority: 7, Cookie: 5, Match: "ip", Actions: "goto_table:4"}}, flows); d != "" {
		t.Error(d)
	}
}

// TestWatch: what others do to flows and ports is seen within tens of
// milliseconds, also after the switch was restarted; and when nothing happens,
// nothing is reported.
func TestWatch(t *testing.T) {
	e, b := ovstest.Start(t)
	if err := b.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	var wakes atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Watch(ctx, func(ovs.Change) { wakes.Add(1) }) }()
	defer func() {
		cancel()
		<-done
	}()
	settle := func() int64 {
		for n := wakes.Load(); ; {
			time.Sleep(300 * time.Millisecond)
			if m := wakes.Load(); m == n {
				return n
			} else {
				n = m
			}
		}
	}
	seen := func(what string, f func()) {
		t.Helper()
		n := settle()
		f()
		began := time.Now()
		ovstest.Eventually(t, time.Second, func() error {
			if wakes.Load() == n {
				return errors.New(what + " was not seen")
			}
			return nil
		})
		t.Logf("%s: seen after %v", what, time.Since(began))
	}
	flow := func() {
		if err := b.ApplyBundle(t.Context(), []string{"add table=0,priority=1,actions=drop"}); err != nil {
			t.Fatal(err)
		}
	}
	wipe := func() { ovstest.Run(t, "ovs-ofctl", "del-flows", "unix:"+filepath.Join(b.RunDir, "gvbr0.mgmt")) }
	seen("a flow", flow)
	seen("a wipe", wipe)
	seen("a deleted bridge", func() { ovstest.Run(t, "ovs-vsctl", "--db=unix:"+b.DB, "del-br", "gvbr0") })
	seen("a bridge", func() {
		if err := b.Ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	seen("a killed switch", func() {
		if err := syscall.Kill(pid(t, e, "ovs-vswitchd"), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	})
	ovstest.Eventually(t, 5*time.Second, func() error {
		_, err := b.DumpFlows(t.Context())
		return err
	})
	seen("a flow in the new switch", flow)
}

// TestRival: beside another Open vSwitch that has bridges in the same datapath
// ovs-vswitchd is not started; it is once they are gone.
func TestRival(t *testing.T) {
	host, own := ovstest.Start(t)
	if err := own.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	e := &ovs.Embedded{RunDir: dir, StateDir: dir, Datapath: ovs.Userspace, Host: host.Instance()}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	ovstest.Eventually(t, 10*time.Second, func() error { return e.Instance().Ping(t.Context()) })
	var rival *ovs.RivalError
	if err := e.Rival(t.Context()); !errors.As(err, &rival) || len(rival.Bridges) != 1 || rival.Bridges[0] != own.Name {
		t.Errorf("beside a bridge: %v", err)
	}
	if n := pid(t, e, "ovs-vswitchd"); n != 0 {
		t.Error("ovs-vswitchd was started beside another one that has the datapath")
	}
	kernel := &ovs.Embedded{Datapath: ovs.Kernel, Host: e.Host}
	if err := kernel.Rival(t.Context()); err != nil {
		t.Errorf("in the other datapath: %v", err)
	}
	if err := own.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := &ovs.Bridge{Instance: e.Instance(), Name: "second", Datapath: ovs.Userspace}
	ovstest.Eventually(t, 10*time.Second, func() error { return b.Ensure(t.Context()) })
	if err := e.Rival(t.Context()); err != nil {
		t.Errorf("beside no bridge: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := e.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
