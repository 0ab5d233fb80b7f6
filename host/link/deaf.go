package link

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Deafen has the stack of the calling thread's namespace given nothing that comes by an interface. Packet sockets see it
// all the same: they come first.
func Deafen(name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("look for %s: %w", name, mapErr(err))
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "gv_deaf", Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, int32(netlink.TC_ACT_SHOT)), asm.Return()},
	})
	if err != nil {
		return fmt.Errorf("load a program that drops all: %w", err)
	}
	defer prog.Close()
	index := l.Attrs().Index
	if err := netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}); err != nil {
		return fmt.Errorf("add clsact to %s: %w", name, mapErr(err))
	}
	err = netlink.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Priority: 1, Protocol: unix.ETH_P_ALL},
		Fd:          prog.FD(), Name: "gv_deaf", DirectAction: true,
	})
	if err != nil {
		return fmt.Errorf("drop all that comes by %s: %w", name, mapErr(err))
	}
	return nil
}
