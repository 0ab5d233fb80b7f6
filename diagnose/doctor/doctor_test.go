package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/diagnose/probe"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/reach"
)

var addr, prefix = netip.MustParseAddr, netip.MustParsePrefix

// expect compares a check with its verdict and words of its texts; verdict "": there
// is to be no such check but ok ones.
func expect(t *testing.T, checks []api.Check, subject string, verdict api.Verdict, words ...string) {
	t.Helper()
	for _, c := range checks {
		if c.Subject != subject || c.Verdict != verdict {
			continue
		}
		all := true
		for _, w := range words {
			all = all && strings.Contains(c.What+" | "+c.Do, w)
		}
		if all {
			if verdict != api.OK && c.Do == "" {
				t.Errorf("nothing to do: %+v", c)
			}
			return
		}
	}
	t.Errorf("no check %s, %s with %q in\n%+v", subject, verdict, words, checks)
}

// well is a host with nothing wrong.
func well() Host {
	return Host{
		Config: config.Default(), Kernel: Kernel{Release: "6.1.0", Has: true},
		Switch:   Switch{Version: "3.1", Embedded: true, Datapath: "kernel"},
		Underlay: Underlay{Underlay: link.Underlay{Interface: "eth0", Addr: addr("192.0.2.1"), MTU: 1500}},
		Docker:   Docker{Engine: docker.Engine{Version: "28.5.2"}},
		Reaches:  []reach.Thing{{Prefix: prefix("192.0.2.0/24"), Kind: reach.OnLink, Name: "eth0"}},
	}
}

func TestHost(t *testing.T) {
	for _, c := range well().Judge() {
		if c.Verdict != api.OK {
			t.Errorf("a host that is well: %+v", c)
		}
	}
	broken := errors.New("broken")
	for _, tt := range []struct {
		change  func(*Host)
		subject string
		verdict api.Verdict
		words   []string
	}{
		{func(h *Host) { h.Kernel = Kernel{Release: "6.1.0", File: true} }, "kernel", api.Wrong, []string{"not loaded", "modprobe openvswitch"}},
		{func(h *Host) { h.Kernel.Has = false }, "kernel", api.OK, []string{"no module openvswitch", "package"}},
		{func(h *Host) { h.Kernel.Has, h.Switch.Datapath = false, "userspace" }, "datapath", api.OK, []string{"userspace, since the kernel has no module"}},
		{func(h *Host) { h.Config.Datapath, h.Switch.Datapath = "userspace", "userspace" }, "datapath", api.OK, []string{"userspace, since GRAPEVINE_DATAPATH says so"}},
		{func(h *Host) { h.Config.Datapath, h.Kernel.Has = "kernel", false }, "datapath", api.Wrong, []string{"GRAPEVINE_DATAPATH=auto"}},
		{func(h *Host) { h.Switch.Err = broken }, "switch", api.Wrong, []string{"install openvswitch-switch"}},
		{func(h *Host) { h.Switch.DB = broken }, "switch", api.Wrong, []string{"ovsdb-server does not answer: broken", "the agent starts it"}},
		{func(h *Host) { h.Switch.Embedded, h.Switch.Forward = false, broken }, "switch", api.Wrong, []string{"the host's own: ovs-vswitchd", "systemctl start openvswitch-switch"}},
		{func(h *Host) { h.Underlay.Err = broken }, "underlay", api.Wrong, []string{"broken"}},
		{func(h *Host) { h.Underlay.Addr = addr("10.129.0.1") }, "underlay", api.Wrong, []string{"within the cluster's own 10.128.0.0/14", "GRAPEVINE_CIDR4"}},
		{func(h *Host) { h.Underlay.Twin = []byte{2, 0, 0, 0, 0, 1} }, "underlay", api.Wrong, []string{"02:00:00:00:00:01", "192.0.2.1"}},
		{func(h *Host) {
			h.Reaches = append(h.Reaches, reach.Thing{Prefix: prefix("10.0.0.0/8"), Kind: reach.Routed, Name: "by tun7"})
		}, "addresses", api.OK, []string{"10.0.0.0/8 by tun7 gives way to the cluster's networks in 10.128.0.0/14"}},
		{func(h *Host) {
			h.Reaches = append(h.Reaches, reach.Thing{Prefix: prefix("10.129.0.0/16"), Kind: reach.OnLink, Name: "lan0"})
		}, "addresses", api.OK, []string{"10.129.0.0/16 on lan0 lies in the cluster's 10.128.0.0/14: new networks keep out of it"}},
		{func(h *Host) {
			h.Reaches = append(h.Reaches, reach.Thing{Prefix: prefix("10.0.0.0/8"), Kind: reach.OnLink, Name: "lan0"})
		}, "addresses", api.Wrong, []string{"10.0.0.0/8 on lan0 overlaps all of the cluster's 10.128.0.0/14", "GRAPEVINE_CIDR4"}},
		{func(h *Host) { h.Docker.Pools = []netip.Prefix{prefix("10.129.0.0/16"), prefix("172.16.0.0/12")} }, "addresses", api.OK, []string{"Docker's address pool 10.129.0.0/16 lies in the cluster's 10.128.0.0/14: new networks keep out of it"}},
		{func(h *Host) { h.Docker.Pools = []netip.Prefix{prefix("10.0.0.0/8")} }, "addresses", api.Wrong, []string{"Docker's address pool 10.0.0.0/8 covers all of the cluster's 10.128.0.0/14", "default-address-pools"}},
		{func(h *Host) { h.Switch.Err = fmt.Errorf("ask it: %w", context.DeadlineExceeded) }, "switch", api.Unknown, []string{"not found out in time"}},
		{func(h *Host) { h.Taken = []Port{{Name: "UDP port 7947 (gossip)"}} }, "ports", api.Wrong, []string{"UDP port 7947", "ss -lntup"}},
		{func(h *Host) { h.Taken = []Port{{"UDP port 7947 (gossip)", Process{7, "serf"}}} }, "ports", api.Wrong, []string{"another program's: serf, process 7", "stop serf"}},
		{func(h *Host) { h.Taken = []Port{{"UDP port 7947 (gossip)", Process{7, "grapevine"}}} }, "ports", api.OK, []string{"the agent's, process 7"}},
		{func(h *Host) { h.Docker.Unasked = true }, "docker", api.Unknown, []string{"was not asked"}},
		{func(h *Host) { h.Docker.Err = broken }, "docker", api.Wrong, []string{"does not answer: broken", "systemctl start docker"}},
		{func(h *Host) { h.Docker.Socket = broken }, "docker", api.Wrong, []string{"cannot call the driver"}},
		{func(h *Host) { h.Docker.Plugin = docker.Plugin{Name: "grapevine:latest"} }, "docker", api.Wrong, []string{"docker plugin enable grapevine:latest"}},
		{func(h *Host) { h.Docker.Plugin = docker.Plugin{Name: "grapevine:latest", Enabled: true} }, "docker", api.OK, []string{"has the plugin grapevine:latest"}},
		{func(*Host) {}, "docker", api.OK, []string{"Engine 28.5.2 writes", "::ffff:", "a later engine than 29.0", "localhost"}},
		{func(h *Host) { h.Docker.Redirect = broken }, "names", api.Wrong, []string{`set "dns" in /etc/docker/daemon.json`}},
		{func(h *Host) { h.Docker.Redirect, h.Docker.Engine.Version = broken, "20.10.24+dfsg1" }, "names", api.OK, []string{"at the gateway only"}},
	} {
		h := well()
		tt.change(&h)
		expect(t, h.Judge(), tt.subject, tt.verdict, tt.words...)
	}
}

// TestTaken: who has a port of ours is named, by TCP and by UDP.
func TestTaken(t *testing.T) {
	tcp, udp := both(t)
	port := tcp.Addr().(*net.TCPAddr).AddrPort().Port()
	defer tcp.Close()
	defer udp.Close()
	list := taken(config.Config{Port: port})
	if len(list) != 2 || list[0].By.ID != os.Getpid() || list[1].By.ID != os.Getpid() || list[0].By.Program == "" {
		t.Errorf("%+v, want both by process %d", list, os.Getpid())
	}
}

// passed is a path on which everything passes.
func passed() Path {
	return Path{
		Peer: "h2", Limits: probe.Limits{Gossip: probe.Way{Out: 1500, In: 1500}, Tunnel: probe.Way{Out: 1450, In: 1450}},
		Report: probe.Report{
			Answer: 2 * time.Millisecond, Skew: 3 * time.Millisecond,
			Gossip: probe.Way{Out: 1500, In: 1500}, Tunnel: probe.Way{Out: 1450, In: 1450},
		},
	}
}

func TestPaths(t *testing.T) {
	c := Cluster{Self: "h1", GossipPort: 7947, By: "UDP port 4789", Overhead: 50}
	expect(t, c.Paths(nil), "gossip", api.OK, "no other host")
	checks := c.Paths([]Path{passed(), passed()})
	if len(checks) != 4 {
		t.Errorf("%+v", checks)
	}
	for _, subject := range []string{"gossip", "encap", "mtu", "clock"} {
		expect(t, checks, subject, api.OK, "2 hosts")
	}
	broken := errors.New("broken")
	for _, tt := range []struct {
		change  func(*Path)
		subject string
		verdict api.Verdict
		words   []string
	}{
		{func(p *Path) { p.Report.Gossip.Out = 0 }, "gossip", api.Wrong, []string{"h1 -> h2: nothing arrives at UDP port 7947", "out of h1 and into h2"}},
		{func(p *Path) { p.Report.Tunnel.In = 0 }, "encap", api.Wrong, []string{"h2 -> h1: nothing arrives", "UDP port 4789 out of h2 and into h1"}},
		{func(p *Path) { p.Report.Tunnel.Out, p.Astray = 0, "by docker0, and not by eth0" }, "encap", api.Wrong, []string{"h1 -> h2: nothing arrives", "this host sends it by docker0, and not by eth0", "ip rule"}},
		{func(p *Path) { p.Report.TunnelErr = broken }, "encap", api.Wrong, []string{"could not be tried: broken"}},
		{func(p *Path) { p.Report.Tunnel.Out, p.Report.Gossip.Out = 1350, 1404 }, "mtu", api.Wrong, []string{"h1 -> h2: of 1500 bytes at most 1404 arrive unfragmented, in the tunnel 1350 of 1450", "get lost", "GRAPEVINE_MTU=1400 on every host", "get 1350"}},
		{func(p *Path) { p.Report.Gossip.In = 1400 }, "mtu", api.Wrong, []string{"h2 -> h1: of 1500 bytes at most 1400", "fragmented on the way"}},
		{func(p *Path) { p.Report.Skew = -time.Hour }, "clock", api.Wrong, []string{"1h0m0s behind", "NTP"}},
		{func(p *Path) { p.Report.Skew = 6 * time.Second }, "clock", api.Wrong, []string{"6s ahead of"}},
		{func(p *Path) { p.Report.Skew, p.Report.Answer = 6*time.Second, 7*time.Second }, "clock", api.OK, nil},
		{func(p *Path) { p.Err, p.Dial = broken, errors.New("connection refused") }, "gossip", api.Wrong, []string{"h1 -> h2: TCP port 7947 cannot be connected to: connection refused"}},
		{func(p *Path) { p.Err = broken }, "gossip", api.Wrong, []string{"no answer comes back", "from h2 to h1"}},
		{func(p *Path) { p.Err, p.Old = broken, true }, "gossip", api.Unknown, []string{"upgrade"}},
	} {
		p := passed()
		tt.change(&p)
		expect(t, c.Paths([]Path{passed(), p}), tt.subject, tt.verdict, tt.words...)
	}
}

// TestHungSwitch: what a switch that hangs does not let through is not blamed on firewalls, nor is somebody else to start it.
func TestHungSwitch(t *testing.T) {
	h := well()
	h.Switch.Forward = fmt.Errorf("version: %w", os.ErrDeadlineExceeded)
	expect(t, h.Judge(), "switch", api.Wrong, "ovs-vswitchd does not answer", "hangs; if so, end it")
	c, p := Cluster{Self: "h1", GossipPort: 7947, By: "UDP port 4789", Overhead: 50, Hung: h.Switch.Hangs()}, passed()
	p.Report.Tunnel = probe.Way{}
	checks := c.Paths([]Path{p, passed()})
	expect(t, checks, "encap", api.Unknown, "h1 <-> h2", "this host's switch does not answer")
	for _, check := range checks {
		if check.Verdict == api.Wrong {
			t.Errorf("%+v", check)
		}
	}
}

func TestDuplicates(t *testing.T) {
	nodes := []api.Node{{Name: "h1", VTEP: addr("192.0.2.1"), Alive: true}, {Name: "h2", VTEP: addr("192.0.2.2"), Alive: true}, {Name: "old", VTEP: addr("192.0.2.1")}}
	endpoints := []api.Endpoint{{ID: "1", Name: "app", Host: "h1", Addrs: []netip.Addr{addr("10.128.0.2")}}}
	expect(t, Duplicates(nodes, endpoints), "addresses", api.OK, "2 hosts and 1 endpoint")
	nodes[2].Alive = true
	endpoints = append(endpoints, api.Endpoint{ID: "0123456789abcdef", Host: "h2", Addrs: []netip.Addr{addr("10.128.0.2")}})
	checks := Duplicates(nodes, endpoints)
	expect(t, checks, "addresses", api.Wrong, "h1 and old have the same underlay address 192.0.2.1", "GRAPEVINE_ADVERTISE")
	expect(t, checks, "addresses", api.Wrong, "10.128.0.2 is claimed by app on h1 and by 0123456789ab on h2")
}

func TestInterfacesKeysAndOrder(t *testing.T) {
	checks := Interfaces(1350, []api.Network{{Name: "big", MTU: 1400}, {Name: "fit", MTU: 1300}}, []link.Link{
		{Name: "gv0123456789ab", Alias: "grapevine x", MTU: 1450},
		{Name: "gv0123456789ac", Alias: "grapevine x", MTU: 1350},
		{Name: "gvtun", Alias: "grapevine: tunnel port", MTU: 9000},
	})
	expect(t, checks, "mtu", api.Wrong, "network big has -o mtu=1400", "1350")
	expect(t, checks, "mtu", api.Wrong, "1 container interface of this host")
	if len(checks) != 2 {
		t.Errorf("%+v", checks)
	}
	list := []api.Check{ok("a", "1"), unknown("b", "x", "2"), ok("c", "3"), wrong("d", "x", "4")}
	Sort(list)
	if list[0].Subject+list[1].Subject+list[2].Subject+list[3].Subject != "dbac" {
		t.Errorf("%+v", list)
	}
}

func TestARP(t *testing.T) {
	mac := []byte{2, 0, 0, 0, 0, 9}
	probe := arpProbe(mac, addr("192.0.2.1"))
	if got := arpSender(probe, addr("192.0.2.1")); got != nil {
		t.Errorf("a probe claims nothing: %v", got)
	}
	reply := append([]byte{}, probe...)
	copy(reply[28:32], []byte{192, 0, 2, 1})
	if got := arpSender(reply, addr("192.0.2.1")); got.String() != "02:00:00:00:00:09" {
		t.Errorf("sender %v", got)
	}
	if got := arpSender(reply[:30], addr("192.0.2.1")); got != nil {
		t.Error("half a frame")
	}
}

// A key in a plugin's settings is advice, and only once the agent has it elsewhere.
func TestKeySetting(t *testing.T) {
	if got := KeySetting(false, true, "grapevine"); got != nil {
		t.Errorf("without one: %v", got)
	}
	if got := KeySetting(true, false, "grapevine"); len(got) != 1 || got[0].Verdict != api.OK || got[0].Do != "" {
		t.Errorf("with one that is not kept: %v", got)
	}
	if got := KeySetting(true, true, "gv"); len(got) != 1 || got[0].Verdict != api.OK || !strings.Contains(got[0].Do, "docker plugin set gv GRAPEVINE_KEY= ") {
		t.Errorf("with one: %v", got)
	}
}

// both listens at one port by TCP and by UDP: another one, while another program has that of UDP.
func both(t *testing.T) (net.Listener, net.PacketConn) {
	t.Helper()
	for range 100 {
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if udp, err := net.ListenPacket("udp", tcp.Addr().String()); err == nil {
			return tcp, udp
		}
		tcp.Close()
	}
	t.Fatal("no port is free by TCP and by UDP")
	return nil, nil
}
