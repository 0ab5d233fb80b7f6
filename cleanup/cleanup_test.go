package cleanup

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/host/link/linktest"
	"github.com/grapevine-net/grapevine/host/nat"
	"github.com/grapevine-net/grapevine/host/socket"
	"github.com/grapevine-net/grapevine/membership/identity"
	"github.com/grapevine-net/grapevine/overlay/gateway"
)

// TestCleanup: what an agent has made in a network namespace goes, by its name, and what is
// others' stays; not while an agent answers; and the state only if that is asked for.
func TestCleanup(t *testing.T) {
	dir := t.TempDir()
	cfg := config.Config{State: filepath.Join(dir, "state"), Run: filepath.Join(dir, "run"), PluginSocket: filepath.Join(dir, "plugins", "p.sock")}
	linktest.New(t).Do(func() {
		run := func(command string) string {
			t.Helper()
			out, err := exec.Command("sh", "-ec", command).CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v: %s", command, err, out)
			}
			return string(out)
		}
		look := func() string {
			return run(`ip -o link | awk '{print $2}'; for f in -4 -6; do ip $f rule; ip $f route show table all | grep -v 'table local'; done; iptables-save | grep -v '^#' | sed 's/\[.*//'`)
		}
		run(`ip link add own0 type bridge; ip link set own0 up; ip addr add 203.0.113.1/24 dev own0
			ip link add gvown0 type bridge; ip rule add to 203.0.113.9 table 99; ip route add 10.200.0.0/14 dev own0 table 26486
			iptables -A INPUT -p tcp --dport 4444 -j DROP; iptables -t nat -A POSTROUTING -s 203.0.113.0/24 -j ACCEPT`)
		// iptables makes all tables by looking; what is made is the owner's.
		run(`for p in iptables ip6tables; do for t in filter nat mangle raw; do $p -t $t -S; done; done >/dev/null`)
		before := look()

		run(`ip link add gv0 type bridge; ip link del gv0
			ip link add gv0123456789ab type veth peer name gi0123456789ab; ip link set gv0123456789ab alias "grapevine: endpoint"
			ip link add gvtun type veth peer name gvtunx; ip link add gvvxlan type vxlan external dstport 4799
			ip rule add priority 32000 table 26486; ip -6 rule add priority 32000 table 26486
			ip route add unreachable 10.132.0.0/14 metric 2147483647 table 26486`)
		n := nat.New()
		rules := []nat.Rule{{Table: "nat", Chain: "PREROUTING", Text: "-i gv0 -p udp -m udp --dport 53 -j REDIRECT --to-ports 7953"}}
		if err := n.Set(t.Context(), nat.Config{Interface: gateway.Port, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/14"), netip.MustParsePrefix("fd00::/48")}, Rules: rules}); err != nil {
			t.Fatal(err)
		}
		id, err := identity.Load(cfg.State)
		if err != nil {
			t.Fatal(err)
		}
		id.Cluster = identity.NewCluster()
		if err := id.Save(cfg.State); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(cfg.State, "owners"), nil, 0o600); err != nil {
			t.Fatal(err)
		}

		l, err := socket.Listen(t.Context(), cfg.PluginSocket, 0o755)
		if err != nil {
			t.Fatal(err)
		}
		if did, _, err := Host(t.Context(), cfg, true); err == nil || !strings.Contains(err.Error(), "an agent runs on this host") || len(did) > 0 {
			t.Errorf("under an agent: %v, %v", did, err)
		}
		_ = l.Close()

		did, kept, err := Host(t.Context(), cfg, false)
		said := strings.Join(did, "\n")
		for _, want := range []string{"gv0123456789ab", "gvtun", "gvvxlan", "rule for table 26486", "routes of table 26486", "iptables nat GRAPEVINE-POSTROUTING", "ip6tables filter GRAPEVINE-FORWARD"} {
			if !strings.Contains(said, want) {
				t.Errorf("%q is missing in %s", want, said)
			}
		}
		if text := strings.Join(kept, ""); err != nil || !strings.Contains(text, id.Cluster) || !strings.Contains(text, "--purge") {
			t.Errorf("kept: %s, %v", text, err)
		}
		if after := look(); after != before {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
		if back, err := identity.Load(cfg.State); err != nil || back.Node != id.Node {
			t.Errorf("the identity: %+v, %v", back, err)
		}
		if did, _, err := Host(t.Context(), cfg, false); len(did) > 0 || err != nil {
			t.Errorf("a second time: %v, %v", did, err)
		}
		if err := (identity.Left{Remains: "delete gvtun: device busy"}).Save(cfg.State); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Host(t.Context(), cfg, false); err != nil {
			t.Errorf("after a leave: %v", err)
		}
		if left, there, err := identity.LoadLeft(cfg.State); err != nil || !there || left.Remains != "" {
			t.Errorf("the note of the leave: %+v, %v", left, err)
		}
		if _, _, err := Host(t.Context(), cfg, true); err == nil || !strings.Contains(err.Error(), "not empty") {
			t.Errorf("with a file of somebody's in the state directory: %v", err)
		}
	})
	if _, err := os.Stat(filepath.Join(cfg.State, identity.File)); err == nil {
		t.Error("the identity is still there")
	}
}
