package fastpath

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	bpflink "github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/grapevine-net/grapevine/host/link/linktest"
	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
)

// bridged is a host whose address is a bridge's, with its NIC and another interface as ports, and another host beside it.
type bridged struct {
	a, b *host
	out  *linktest.Socket // of a's container
	wire *linktest.Socket // where b's NIC is
}

func newBridged(t *testing.T) *bridged {
	a, b := twoHosts(t)
	run(t, a.NS, "ip link add br0 type bridge", "ip link add other type veth peer name beside", "ip link set other up; ip link set beside up", "ip link set other master br0; ip link set eth0 master br0",
		"ip addr flush dev eth0; ip addr add 10.9.0.1/24 dev br0; ip link set br0 up")
	for h, u := range map[*host]Underlay{a: {Device: "br0", VTEP: addrs("10.9.0.1")[0], Port: vxlanPort}, b: {Device: "eth0", VTEP: addrs("10.9.0.2")[0], Port: vxlanPort}} {
		h.path.cfg.Underlay = u
		h.Do(func() { must(t, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)) })
	}
	ovstest.Eventually(t, 10*time.Second, func() error { // the hosts know each other's MAC addresses then, and the bridge where they are
		if n := a.ping("10.128.1.7", 56); n != 5 {
			return fmt.Errorf("%d of 5 pings were answered", n)
		}
		return nil
	})
	a.judge()
	ovstest.Eventually(t, 30*time.Second, a.path.Direct)
	r := &bridged{a: a, b: b}
	a.container.Do(func() { r.out = linktest.OpenVNet(t, "gca") })
	b.Do(func() { r.wire = linktest.OpenVNet(t, "eth0") })
	return r
}

const virtioHeader = 10 // bytes before a frame of OpenVNet's

// How a packet arrives that the kernel has still to segment.
const (
	whole = "whole"
	cut   = "cut"
	gone  = "not at all"
)

// arrives sends such a packet, and says how it arrives at the other host.
func (r *bridged) arrives() string {
	const size = 1300 // of its segments
	for r.wire.Receive(time.Millisecond) != nil {
		continue
	}
	r.out.Send(segments(size, 3*size))
	for {
		switch frame := r.wire.Receive(300 * time.Millisecond); {
		case frame == nil:
			return gone
		case !bytes.Contains(frame, mark):
		case len(frame) > 3*size:
			return whole
		default:
			return cut
		}
	}
}

// eventually waits until all of some packets arrive so, or one whole: a few go by the bridge in any case.
func (r *bridged) eventually(want string) {
	r.a.t.Helper()
	ovstest.Eventually(r.a.t, 30*time.Second, func() error {
		for range 5 {
			got := r.arrives()
			if got == want && want == whole {
				return nil
			}
			if got != want {
				return fmt.Errorf("a packet arrives %s, want %s", got, want)
			}
			time.Sleep(30 * time.Millisecond)
		}
		return nil
	})
}

// What the kernel has still to segment leaves a bridge whole, by the port behind which the other host is, as long as the bridge does
// nothing else with it. Where it does, that is obeyed.
func TestJudgedByABridge(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	r := newBridged(t)
	a, b := r.a, r.b
	r.eventually(whole)
	if err := Cut(a.path); err != nil {
		t.Errorf("packets are cut: %v", err)
	}
	ovstest.Eventually(t, 30*time.Second, func() error { // an agent that has no time for a while takes packets back
		before := a.byTunnel()
		a.transfer(b, "10.128.1.7:99", 8<<20)
		b.transfer(a, "10.128.0.7:99", 8<<20)
		if n := a.byTunnel() - before; n != 0 {
			return fmt.Errorf("%d packets went by the VXLAN device", n)
		}
		return nil
	})
	own := giveIPv6(t, a, b)
	ovstest.Eventually(t, 30*time.Second, a.path.Direct)
	ovstest.Eventually(t, 30*time.Second, func() error {
		for r.wire.Receive(time.Millisecond) != nil {
			continue
		}
		a.transfer(b, "["+own[b]+"]:99", 8<<20)
		for frame := r.wire.Receive(time.Millisecond); frame != nil; frame = r.wire.Receive(time.Millisecond) {
			if len(frame) > 2*mtu && frame[virtioHeader+64]>>4 == 6 {
				return nil
			}
		}
		return errors.New("of a transfer in IPv6 nothing arrives whole")
	})
	var mac string
	b.Do(func() {
		l, err := netlink.LinkByName("eth0")
		must(t, err)
		mac = l.Attrs().HardwareAddr.String()
	})
	shot, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "shot", Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}})
	must(t, err)
	defer shot.Close()
	for _, c := range []struct{ name, add, remove, want, why string }{
		{"nft of bridges", "nft add table bridge t; nft add chain bridge t o '{ type filter hook output priority 0; }'; nft add rule bridge t o ether type ip udp dport 4789 drop", "nft delete table bridge t", gone, "the chain o of nftables' table t"},
		{"nft of bridges, behind", "nft add table bridge t; nft add chain bridge t o '{ type filter hook postrouting priority 0; }'; nft add rule bridge t o ether type ip counter", "nft delete table bridge t", cut, "the chain o of nftables' table t"},
		{"ebtables", "ebtables-nft -A OUTPUT -p IPv4 --ip-proto udp -j DROP", "ebtables-nft -F OUTPUT; nft delete table bridge filter", gone, "the chain OUTPUT of nftables' table filter"},
		{"nft at the port", "nft add table netdev t; nft add chain netdev t o '{ type filter hook egress device eth0 priority 0; }'; nft add rule netdev t o ip protocol udp drop", "nft delete table netdev t", gone, "is at the interface eth0"},
		{"a qdisc of the bridge", "tc qdisc add dev br0 root tbf rate 100mbit burst 10000 latency 50ms", "tc qdisc del dev br0 root", cut, "looks at what leaves by br0"},
		{"a program at the bridge", "", "", gone, "the tc program shot"},
		{"a port that may not send", "bridge link set dev eth0 state 0", "bridge link set dev eth0 state 3", gone, ""},
		{"another port", "bridge fdb replace " + mac + " dev other master static sticky", "bridge fdb del " + mac + " dev other master", gone, ""},
		{"a port of a smaller MTU", "ip link set br0 mtu 1400; ip link set eth0 mtu 1450; ip link set br0 mtu 1500", "ip link set eth0 mtu 1500; ip link set br0 mtu 1500", cut, "has a smaller MTU"},
		{"no port any more", "ip link set eth0 nomaster", "ip link set eth0 master br0", gone, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.add == "" {
				a.Do(func() {
					l, err := netlink.LinkByName("br0")
					must(t, err)
					must(t, bpflink.RawAttachProgram(bpflink.RawAttachProgramOptions{Target: l.Attrs().Index, Program: shot, Attach: ebpf.AttachTCXEgress}))
				})
			} else {
				run(t, a.NS, c.add)
			}
			r.eventually(c.want)
			ovstest.Eventually(t, 30*time.Second, a.path.Direct) // judged again, it is so as well
			r.eventually(c.want)
			if c.why != "" {
				ovstest.Eventually(t, 30*time.Second, func() error {
					if err := Cut(a.path); err == nil || !strings.Contains(err.Error(), c.why) {
						return fmt.Errorf("it is not %q that cuts packets, but: %w", c.why, err)
					}
					return nil
				})
			}
			if c.add == "" {
				a.Do(func() {
					l, err := netlink.LinkByName("br0")
					must(t, err)
					must(t, bpflink.RawDetachProgram(bpflink.RawDetachProgramOptions{Target: l.Attrs().Index, Program: shot, Attach: ebpf.AttachTCXEgress}))
				})
			} else {
				run(t, a.NS, c.remove)
			}
			a.ping("10.128.1.7", 56) // the bridge learns
			r.eventually(whole)
		})
	}
	// The kernel asks for the neighbour again, though nothing else is sent.
	run(t, a.NS, "ip neigh replace 10.9.0.2 lladdr "+mac+" dev br0 nud stale")
	ovstest.Eventually(t, 30*time.Second, func() error {
		if r.arrives() == gone {
			t.Error("a packet is lost")
		}
		var out []byte
		a.Do(func() { out, _ = exec.Command("ip", "neigh", "show", "10.9.0.2", "dev", "br0").CombinedOutput() })
		if bytes.Contains(out, []byte("STALE")) {
			return errors.New("the neighbour is stale")
		}
		return nil
	})
}
