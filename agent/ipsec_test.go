package agent

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cleanup"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/link/linktest"
	"github.com/grapevine-net/grapevine/host/strongswan"
	"github.com/grapevine-net/grapevine/membership"
	"github.com/grapevine-net/grapevine/membership/identity"
)

// begun is an agent that has come so far that it knows whether strongSwan is to be told anything.
func begun(t *testing.T, cfg config.Config) *Agent {
	t.Helper()
	a := newAgent(cfg, "", slog.New(slog.DiscardHandler))
	a.underlay = link.Underlay{Addr: netip.MustParseAddr("10.9.0.1")}
	var err error
	if a.member, err = membership.Identify(a.membership()); err != nil {
		t.Fatal(err)
	}
	if a.ike, err = a.openIKE(); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *Agent) ended(t *testing.T) {
	t.Helper()
	if err := a.member.Close(); err != nil {
		t.Fatal(err)
	}
}

// spokenAt has strongSwan be where a test has it.
func spokenAt(t *testing.T, socket string) {
	former := strongswan.Sockets
	strongswan.Sockets = []string{socket}
	t.Cleanup(func() { strongswan.Sockets = former })
}

func ipsecConfig(dir string) config.Config {
	return config.Config{State: filepath.Join(dir, "state"), Run: filepath.Join(dir, "run"), PluginSocket: filepath.Join(dir, "p.sock"), Keys: testKey, VXLANPort: 4789}
}

// Where strongSwan was told nothing it is not even spoken to, neither at the start of an agent nor by a clean-up.
func TestStrongSwanUnspoken(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "charon.vici")
	spokenAt(t, socket)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg := ipsecConfig(dir)
	for _, cfg.IPsec = range []string{"", "off", "require"} {
		begun(t, cfg).ended(t)
	}
	linktest.New(t).Do(func() {
		for _, purge := range []bool{false, true} {
			if _, _, err := cleanup.Host(t.Context(), cfg, purge); err != nil {
				t.Error(err)
			}
		}
	})
	// Who had connected, and gone again, would be here.
	if err := l.SetDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Accept(); !os.IsTimeout(err) {
		t.Errorf("strongSwan was spoken to (%v)", err)
	}
}

type records struct{ *cluster.State }

func (records) Watch() <-chan struct{} { return nil }

// An administrator's connection that is called grapevine-host2, and is in all else as ours, stays through the start of an agent,
// changes of the setting and a clean-up, by strongSwan as Debian has it. What the agent has told it ends.
func TestStrongSwanOfOthers(t *testing.T) {
	const charon = "/usr/lib/ipsec/charon"
	if _, err := os.Stat(charon); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("there is no strongSwan here: scripts/setup")
	}
	dir := t.TempDir()
	socket := filepath.Join(dir, "charon.vici")
	spokenAt(t, socket)
	for name, text := range map[string]string{
		"strongswan.conf": "charon {\n load_modular = yes\n plugins {\n  include /etc/strongswan.d/charon/*.conf\n  stroke {\n   load = no\n  }\n }\n}\n",
		"swanctl.conf": "connections {\n grapevine-host2 {\n  version = 2\n  local_addrs = 10.9.0.1\n  remote_addrs = 10.9.0.2\n  local {\n   auth = psk\n  }\n  remote {\n   auth = psk\n  }\n" +
			"  children {\n   sent {\n    mode = transport\n   }\n   taken {\n    mode = transport\n   }\n  }\n }\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	linktest.New(t).Do(func() {
		cmd := exec.Command("unshare", "--mount", "sh", "-c", "mount --bind "+dir+" /run && exec "+charon)
		cmd.Env = append(os.Environ(), "STRONGSWAN_CONF="+dir+"/strongswan.conf")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
		eventually(t, "the daemon answers", func() bool {
			conn, err := net.Dial("unix", socket)
			if err == nil {
				_ = conn.Close()
			}
			return err == nil
		})
		swanctl := func(argv ...string) string {
			t.Helper()
			out, err := exec.Command("swanctl", append(argv, "--uri", "unix://"+socket)...).CombinedOutput()
			if err != nil {
				t.Fatalf("swanctl %v: %v: %s", argv, err, out)
			}
			return string(out)
		}
		swanctl("--load-conns", "--file", filepath.Join(dir, "swanctl.conf"))
		conns := func() string {
			var names []string
			for _, m := range regexp.MustCompile(`(?m)^(\S+): IKE`).FindAllStringSubmatch(swanctl("--list-conns"), -1) {
				names = append(names, m[1])
			}
			slices.Sort(names)
			return strings.Join(names, " ")
		}
		const others = "grapevine-host2"
		want := func(when, names string) {
			t.Helper()
			if got := conns(); got != names {
				t.Errorf("%s there are the connections %q, want %q", when, got, names)
			}
		}
		cfg := ipsecConfig(dir)
		start := func(setting string) *Agent {
			cfg.IPsec = setting
			return begun(t, cfg)
		}
		start("off").ended(t)
		want("with another setting", others)

		// It is told of a host, and the agent ends: what was told stays.
		const peer = cluster.NodeID("2222222222222222")
		with := others + " grapevine-" + string(peer)
		with = strings.Join(slices.Sorted(slices.Values(strings.Fields(with))), " ")
		told := func() {
			a := start("strongswan")
			state := cluster.New(a.self())
			r, _, err := cluster.New(peer).Put(cluster.Node{ID: peer, Name: "host2", VTEP: netip.MustParseAddr("10.9.0.2"), IPsec: a.ike.Public()})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := state.Merge([]cluster.Record{r}); err != nil {
				t.Fatal(err)
			}
			a.ike.Follow(records{state})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { _ = a.ike.Run(ctx); close(done) }()
			eventually(t, "strongSwan is told of a host", func() bool { return conns() == with })
			cancel()
			<-done
			a.ended(t)
			want("after the agent", with)
		}
		told()
		start("require").ended(t)
		want("with a setting by which policies are an administrator's", others)
		start("require").ended(t)
		want("at the next start", others)
		told()
		did, _, err := cleanup.Host(t.Context(), cfg, true)
		if text := strings.Join(did, "\n"); err != nil || !strings.Contains(text, "strongSwan's connection grapevine-"+string(peer)) || !strings.Contains(text, "strongSwan's copy of this host's key") {
			t.Errorf("cleaned up: %s, %v", text, err)
		}
		want("after a clean-up", others)
		if _, err := os.Stat(filepath.Join(cfg.State, identity.ToldFile)); err == nil {
			t.Error("that it was told something is noted yet")
		}
	})
}
