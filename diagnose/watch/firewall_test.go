package watch

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/diagnose/doctor"
	"github.com/grapevine-net/grapevine/diagnose/paths"
	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// TestFirewallProblems: status names what this host's firewall drops for sure and for longer
// than a moment, once for all hosts, and not what packets have shown to pass.
func TestFirewallProblems(t *testing.T) {
	one, two := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	drop := func(by string, sure bool, p doctor.Packet) doctor.Drop {
		return doctor.Drop{Packet: p, By: by, Do: "do", Sure: sure}
	}
	out := doctor.Packet{Chain: "FORWARD", In: "gv0", Proto: "tcp", For: "what containers send to the outside"}
	vxlan := func(from netip.Addr, name string) doctor.Packet {
		return doctor.Packet{Chain: "INPUT", Src: from, Proto: "udp", Port: 4789, Tunnel: true, For: "VXLAN from " + name}
	}
	nodes := []api.Node{{ID: "a", VTEP: one}, {ID: "b", VTEP: two}}
	begin := time.Now()
	for _, tt := range []struct {
		drops    []doctor.Drop
		verdicts []paths.Verdict
		want     []string
	}{
		{nil, nil, nil},
		{[]doctor.Drop{drop("-A FORWARD -j DROP", true, out)}, nil, []string{"this host's firewall drops what containers send to the outside: -A FORWARD -j DROP"}},
		{[]doctor.Drop{drop("-A FORWARD -j DROP", false, out)}, nil, nil},
		{[]doctor.Drop{{Packet: out, By: "-A DOCKER-USER -i gv0 -j DROP", Do: "do", Sure: true, Meant: true}}, nil, nil},
		{
			[]doctor.Drop{drop("the policy of INPUT, DROP", true, vxlan(one, "h1")), drop("the policy of INPUT, DROP", true, vxlan(two, "h2"))},
			nil,
			[]string{"this host's firewall drops VXLAN from h1 (UDP port 4789), and of 1 more host: the policy of INPUT, DROP"},
		},
		{
			[]doctor.Drop{drop("the policy of INPUT, DROP", true, vxlan(one, "h1")), drop("the policy of INPUT, DROP", true, vxlan(two, "h2"))},
			[]paths.Verdict{{Host: "a", In: paths.All}, {Host: "b", In: paths.Nothing}},
			[]string{"this host's firewall drops VXLAN from h2 (UDP port 4789): the policy of INPUT, DROP"},
		},
		{
			[]doctor.Drop{{Packet: vxlan(one, "h1"), By: "-A PREROUTING -p udp -j REDIRECT", Do: "do", Sure: true, Led: true}},
			[]paths.Verdict{{Host: "a", In: paths.All}},
			[]string{"a rule of this host's NAT leads VXLAN from h1 (UDP port 4789) elsewhere, though what is under way is not led, and seems well: -A PREROUTING -p udp -j REDIRECT"},
		},
	} {
		var w Firewall
		w.set(tt.drops, doctor.Unread{}, begin)
		w.still(begin.Add(firewallPatience / 2))
		if early := w.problems(tt.verdicts, nodes); len(early) > 0 {
			t.Errorf("%+v: after a moment: %+v", tt.drops, early)
		}
		w.set(tt.drops, doctor.Unread{}, begin.Add(firewallPatience/2)) // read again, the same
		w.still(begin.Add(firewallPatience))
		var got []string
		for _, p := range w.problems(tt.verdicts, nodes) {
			got = append(got, p.What)
		}
		if strings.Join(got, "\n") != strings.Join(tt.want, "\n") {
			t.Errorf("%+v: %q, want %q", tt.drops, got, tt.want)
		}
	}
}

// TestFirewallUnanswered: rules that could not be read are read again, though they are the same as before.
func TestFirewallUnanswered(t *testing.T) {
	nft, err := exec.LookPath("nft")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	busy := filepath.Join(dir, "busy")
	for file, text := range map[string]string{busy: "", filepath.Join(dir, "nft"): "#!/bin/sh\n[ -e " + busy + " ] && exit 1\nexec " + nft + ` "$@"` + "\n"} {
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	state := cluster.New("1111111111111111")
	w := Firewall{Host: Host{Self: state.Self(), Snapshot: state.Snapshot, Nodes: func(*cluster.Snapshot) []api.Node { return nil }, CIDRs: func() []netip.Prefix { return nil }}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	defer func() { cancel(); <-done }()
	ns := linktest.New(t)
	ns.Do(func() {
		if out, err := exec.Command(nft, "add table inet mine; add chain inet mine in { type filter hook input priority 0; }").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	})
	go func() {
		defer close(done)
		ns.Do(func() { _ = w.Run(ctx) })
	}()
	named := func(want bool, what string) {
		t.Helper()
		for begin := time.Now(); len(w.problems(nil, nil)) > 0 != want; time.Sleep(20 * time.Millisecond) {
			if time.Since(begin) > 2*time.Minute {
				t.Fatalf("%s: %+v", what, w.problems(nil, nil))
			}
		}
	}
	named(true, "nft says nothing")
	if p := w.problems(nil, nil)[0]; p.Code != api.FirewallUnread || p.Do == doctor.InstallNFT {
		t.Errorf("%+v", p)
	}
	if err := os.Remove(busy); err != nil {
		t.Fatal(err)
	}
	named(false, "nft says all")
}
