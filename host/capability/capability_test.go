package capability

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/portreserve"
	"github.com/grapevine-net/grapevine/overlay/tunnel"
)

func names() (list []string) {
	for _, c := range Needed {
		list = append(list, c.Name)
	}
	return list
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestLists holds what asks for capabilities, and says why, to the list.
func TestLists(t *testing.T) {
	var plugin struct {
		Linux struct{ Capabilities []string }
	}
	if err := json.Unmarshal([]byte(read(t, "plugin.json")), &plugin); err != nil {
		t.Fatal(err)
	}
	// Docker gives every plugin this one.
	given := slices.DeleteFunc(names(), func(n string) bool { return n == "CAP_NET_BIND_SERVICE" })
	if got := plugin.Linux.Capabilities; !slices.Equal(got, given) {
		t.Errorf("plugin.json asks for %q, want %q", got, given)
	}
	if want := "\nCapabilityBoundingSet=" + strings.Join(names(), " ") + "\n"; !strings.Contains(read(t, "scripts/grapevine.service"), want) {
		t.Errorf("the systemd unit has no line %q", want)
	}
	var want, have []string
	for _, c := range Needed {
		want = append(want, fmt.Sprintf("| `%s` | %s |", c.Name, c.Why))
	}
	have = regexp.MustCompile("(?m)^\\| `CAP_.*$").FindAllString(read(t, "docs/operate/install.md"), -1)
	if !slices.Equal(have, want) {
		t.Errorf("docs/operate/install.md has\n%s\nwant\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
}

func TestCheck(t *testing.T) {
	var all Set
	for _, c := range Needed {
		all |= 1 << c.bit
	}
	for _, test := range []struct {
		without   string
		userspace bool
		vital     bool
	}{
		{"", true, false},
		{"CAP_NET_ADMIN", false, true},
		{"CAP_NET_RAW", true, true},
		{"CAP_NET_RAW", false, false},
		{"CAP_NET_BIND_SERVICE", true, false},
		{"CAP_SYS_ADMIN", true, true},
		{"CAP_SYS_ADMIN", false, false},
		{"CAP_SYS_MODULE", true, false},
		{"CAP_SYS_PTRACE", true, false},
	} {
		set := all
		for _, c := range Needed {
			if c.Name == test.without {
				set &^= 1 << c.bit
			}
		}
		lacking, err := set.Check(test.userspace)
		if test.vital != (err != nil) || err != nil && !strings.Contains(err.Error(), test.without) {
			t.Errorf("without %s, userspace %v: %v", test.without, test.userspace, err)
		}
		if noted := test.without != "" && !test.vital; noted != (len(lacking) == 1 && lacking[0].Name == test.without) {
			t.Errorf("without %s, userspace %v: lacking %v", test.without, test.userspace, lacking)
		}
	}
}

// doings are, for each capability, what the agent does with it: itself, or through a program
// that it starts.
var doings = map[string]func() error{
	"CAP_NET_ADMIN": link.Veth{Name: "gvone", Peer: "gvtwo"}.Ensure,
	"CAP_NET_RAW": func() error { // as ovs-vswitchd
		_, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		return err
	},
	"CAP_NET_BIND_SERVICE": func() error { return new(portreserve.Sockets).Hold("tcp", netip.MustParseAddrPort("0.0.0.0:80")) },
	"CAP_SYS_ADMIN": func() error {
		ns, err := os.Open("/proc/self/ns/net")
		if err != nil {
			return err
		}
		defer ns.Close()
		return errors.Join(
			unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET), // dns does this
			tunnel.New(tunnel.Config{}).SetVTEPs(context.Background(), map[uint32]netip.Addr{1: netip.MustParseAddr("192.0.2.2")}))
	},
	"CAP_SYS_MODULE": func() error { // as modprobe: no module, but only who may load one is told so
		err := unix.InitModule([]byte("no module"), "")
		if errors.Is(err, unix.ENOEXEC) || errors.Is(err, unix.ENOSYS) {
			return nil
		}
		return err
	},
	"CAP_SYS_PTRACE": func() error { return link.GrowBuffers(os.Getppid()) }, // which may do everything
}

const doingEnv = "GRAPEVINE_TEST_DOING"

// TestMain is also the process that TestEachIsNeeded starts.
func TestMain(m *testing.M) {
	name := os.Getenv(doingEnv)
	if name == "" {
		os.Exit(m.Run())
	}
	if err := doings[name](); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// TestEachIsNeeded does what the agent does in processes that have all capabilities of the
// list, which suffice, and in others that have all but one, which is then missing.
func TestEachIsNeeded(t *testing.T) {
	noModules := errors.Is(unix.InitModule(nil, ""), unix.ENOSYS)
	for _, c := range Needed {
		if c.Name == "CAP_SYS_MODULE" && noModules {
			continue // tests/uml shows it, on a kernel that has modules
		}
		t.Run(c.Name, func(t *testing.T) {
			if out, err := do(t, c.Name, names()); err != nil {
				t.Errorf("with the whole list: %v\n%s", err, out)
			}
			out, err := do(t, c.Name, slices.DeleteFunc(names(), func(n string) bool { return n == c.Name }))
			if err == nil {
				t.Error("nothing needs it")
			}
			if !strings.Contains(out, "permi") { // EPERM, EACCES
				t.Errorf("without it: %s", out)
			}
			if c.Name == "CAP_NET_BIND_SERVICE" && !strings.Contains(out, c.Name) {
				t.Errorf("the error does not name it: %s", out)
			}
		})
	}
}

// do runs a doing in a process with the given capabilities, in a network namespace of its own.
func do(t *testing.T, doing string, allowed []string) (string, error) {
	t.Helper()
	bounds := "-all"
	for _, n := range allowed {
		bounds += ",+" + strings.ToLower(strings.TrimPrefix(n, "CAP_"))
	}
	cmd := exec.CommandContext(t.Context(), "setpriv", "--bounding-set="+bounds, os.Args[0])
	cmd.Env = append(os.Environ(), doingEnv+"="+doing)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	return string(out), err
}
