package link_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	bpflink "github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// TestFew: what is asked for again and again is what the kernel says of an interface at length.
func TestFew(t *testing.T) {
	linktest.New(t).Do(func() {
		attrs := func(name string) netlink.LinkAttrs { return netlink.LinkAttrs{Name: name} }
		for _, l := range []netlink.Link{
			&netlink.Bridge{LinkAttrs: attrs("bridge")}, &netlink.Veth{LinkAttrs: attrs("veth"), PeerName: "peer"},
			&netlink.Tuntap{LinkAttrs: attrs("tap"), Mode: netlink.TUNTAP_MODE_TAP},
		} {
			if err := netlink.LinkAdd(l); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"lo", "bridge", "veth", "tap", "nobody"} {
			var stranger *link.StrangerError
			is, err := link.Get(name)
			if isOne := errors.As(link.Stranger(name), &stranger); isOne != (err == nil && name != "tap") || isOne && stranger.Kind != is.Kind {
				t.Errorf("%s: a stranger: %t, %v, and it is %v, %v", name, isOne, stranger, is, err)
			}
		}
		veth, err := link.Get("veth")
		if err != nil {
			t.Fatal(err)
		}
		if is, err := link.ProgramsAt(veth.Index); is != "" || err != nil {
			t.Errorf("an interface without programs has %q, %v", is, err)
		}
		if is, err := link.ProgramsAt(veth.Index + 1000); !errors.Is(err, link.ErrNotFound) {
			t.Errorf("an interface that is not there has %q, %v", is, err)
		}
		program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}})
		if err != nil {
			t.Fatal(err)
		}
		defer program.Close()
		at, err := bpflink.AttachXDP(bpflink.XDPOptions{Program: program, Interface: veth.Index, Flags: bpflink.XDPGenericMode})
		if err != nil {
			t.Fatal(err)
		}
		defer at.Close()
		if is, err := link.ProgramsAt(veth.Index); !strings.HasPrefix(is, "the XDP program ") || err != nil {
			t.Errorf("an interface with an XDP program has %q, %v", is, err)
		}
	})
}
