package bypass

import (
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	bpflink "github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// Programs of others at what arrives at the VXLAN device would be passed by.
func TestLookAtTunnel(t *testing.T) {
	ns, traffic := host(t)
	traffic.Peers = nil
	ns.Do(func() {
		against := func(want string) {
			t.Helper()
			if got := verdict(look(traffic, "none")); want == "" && got != "" || !strings.Contains(got, want) {
				t.Errorf("judged %q, want %q", got, want)
			}
		}
		against("")
		xdp := program(t, ebpf.XDP, 2) // XDP_PASS
		l, err := netlink.LinkByIndex(traffic.TunnelIndex)
		if err == nil {
			err = netlink.LinkSetXdpFdWithFlags(l, xdp.FD(), 1<<1) // XDP_FLAGS_SKB_MODE
		}
		if err != nil {
			t.Fatal(err)
		}
		against("the XDP program")
		run(t, "ip link set gvvxlan xdpgeneric off")
		against("")
		at, err := bpflink.AttachTCX(bpflink.TCXOptions{Interface: traffic.TunnelIndex, Program: program(t, ebpf.SchedCLS, -1), Attach: ebpf.AttachTCXIngress})
		if err != nil {
			t.Fatal(err)
		}
		against("looks at what arrives at gvvxlan")
		if err := at.Close(); err != nil {
			t.Fatal(err)
		}
		against("")
	})
}

func program(t *testing.T, kind ebpf.ProgramType, result int32) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "others", Type: kind, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, result), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// A program that chooses the sockets of what arrives may choose another one than the VXLAN device's.
func TestLookAtSockets(t *testing.T) {
	ns, traffic := host(t)
	traffic.Peers = nil
	ns.Do(func() {
		if err := look(traffic, "none"); err != nil {
			t.Error(err)
		}
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "others", Type: ebpf.SkLookup, AttachType: ebpf.AttachSkLookup, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()}})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		here, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			t.Fatal(err)
		}
		defer here.Close()
		at, err := bpflink.AttachNetNs(int(here.Fd()), p)
		if err != nil {
			t.Fatal(err)
		}
		defer at.Close()
		if got := verdict(look(traffic, "none")); !strings.Contains(got, "chooses the sockets of what arrives") {
			t.Errorf("judged %q", got)
		}
	})
}

// What arrives by a bridge, a bond or a VLAN may have a mark, which something below has given it.
func TestLookAtMarks(t *testing.T) {
	ns, traffic := host(t)
	ns.Do(func() {
		restore(t, "iptables-nft-restore", "*filter\n-A INPUT -m mark --mark 1 -j DROP\nCOMMIT\n")
		run(t, "nft add table ip f; nft add chain ip f i '{ type filter hook input priority 10; }'; nft add rule ip f i meta mark 2 drop")
		if err := look(traffic, "none"); err != nil {
			t.Errorf("of what has no mark: %v", err)
		}
		run(t, "ip link set eth0 name wire", "ip link add eth0 type bridge", "ip link set wire master eth0", "ip addr flush dev wire", "ip addr add 10.9.0.1/16 dev eth0", "ip link set wire up", "ip link set eth0 up")
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		traffic.Index = l.Attrs().Index
		if got := verdict(look(traffic, "none")); !strings.Contains(got, "drops what may be received") {
			t.Errorf("judged %q of what arrives by a bridge", got)
		}
	})
}
