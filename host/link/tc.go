package link

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Hook is a place of an interface where a tc program runs.
type Hook uint32

// The hooks of the clsact qdisc.
const (
	Ingress Hook = netlink.HANDLE_MIN_INGRESS
	Egress  Hook = netlink.HANDLE_MIN_EGRESS
)

// Turn is when a program of ours runs at its hook: a packet for which the one before
// answers TC_ACT_UNSPEC goes on to the next.
type Turn uint16

// The turns, in front of others' usual places.
const (
	First  Turn = 1
	Second Turn = 2
	// Last is behind those of others, but for who wants to be the very last.
	Last Turn = 0xfff0
)

// One filter of ours per hook and turn.
const tcHandle = 1

// AttachTC runs prog (direct action) at the hook. A program that is there already
// under the same name is replaced atomically: no packet passes by both, unless it had
// another turn: then it goes when the new one is there. The kernel keeps prog, and with it its maps, as long
// as it is attached and the interface lives. A filter of another name at our handle is
// an error that names it.
func AttachTC(ifname string, hook Hook, turn Turn, prog *ebpf.Program, name string) error {
	l, err := netlink.LinkByName(ifname)
	if err != nil {
		return fmt.Errorf("attach %s to %s: %w", name, ifname, mapErr(err))
	}
	clsact := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: l.Attrs().Index,
		Handle:    netlink.MakeHandle(0xffff, 0),
		Parent:    netlink.HANDLE_CLSACT,
	}}
	if err := netlink.QdiscAdd(clsact); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add clsact to %s: %w", ifname, mapErr(err))
	}
	have, err := filters(l, hook)
	if err != nil {
		return err
	}
	if f := have[turn]; f != nil && f.Name != name {
		return fmt.Errorf("attach %s to %s: filter %q of another program is in its place: remove it", name, ifname, f.Name)
	}
	err = netlink.FilterReplace(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: l.Attrs().Index, Parent: uint32(hook),
			Handle: tcHandle, Priority: uint16(turn), Protocol: unix.ETH_P_ALL,
		},
		Fd: prog.FD(), Name: name, DirectAction: true,
	})
	if err != nil {
		return fmt.Errorf("attach %s to %s: %w", name, ifname, mapErr(err))
	}
	if have[turn] == nil {
		if err := raise(l, hook, turn); err != nil {
			return err
		}
	}
	delete(have, turn)
	return detach(ifname, have, name)
}

// DetachTC removes the program that AttachTC put at the hook under name. No such
// program or interface is no error.
func DetachTC(ifname string, hook Hook, name string) error {
	l, err := netlink.LinkByName(ifname)
	if errors.Is(mapErr(err), ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for %s at %s: %w", name, ifname, err)
	}
	have, err := filters(l, hook)
	if err != nil {
		return err
	}
	return detach(ifname, have, name)
}

func detach(ifname string, have map[Turn]*netlink.BpfFilter, name string) error {
	for _, f := range have {
		if f.Name != name {
			continue
		}
		if err := netlink.FilterDel(f); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("detach %s from %s: %w", name, ifname, mapErr(err))
		}
	}
	return nil
}

// AttachedTC returns the ID of the program that AttachTC put at the hook under
// name. No such program or interface: 0 and no error.
func AttachedTC(ifname string, hook Hook, name string) (ebpf.ProgramID, error) {
	l, err := netlink.LinkByName(ifname)
	if errors.Is(mapErr(err), ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look for %s at %s: %w", name, ifname, err)
	}
	have, err := filters(l, hook)
	for _, f := range have {
		if f.Name == name {
			return ebpf.ProgramID(f.Id), nil
		}
	}
	return 0, err
}

// filters returns the filters at our handle by their turns.
func filters(l netlink.Link, hook Hook) (map[Turn]*netlink.BpfFilter, error) {
	all, err := Dump(func() ([]netlink.Filter, error) { return netlink.FilterList(l, uint32(hook)) })
	if err != nil {
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			return nil, nil // no clsact
		}
		return nil, fmt.Errorf("list tc filters of %s: %w", l.Attrs().Name, mapErr(err))
	}
	ours := map[Turn]*netlink.BpfFilter{}
	for _, f := range all {
		b, ok := f.(*netlink.BpfFilter)
		if turn := Turn(f.Attrs().Priority); ok && b.Handle == tcHandle && (turn == First || turn == Second || turn == Last) {
			ours[turn] = b
		}
	}
	return ours, nil
}

// consumeName is how the filter of Consume is called.
const consumeName = "gv_consume"

// Consume keeps what arrives on the interface from the host's own network stack,
// which would answer ARP and take broadcasts. Packet sockets, by which the userspace
// datapath of Open vSwitch reads an interface, see packets before tc: they still get
// everything. Not for ports of the kernel datapath: there it would take all.
func Consume(ifname string) error {
	id, err := AttachedTC(ifname, Ingress, consumeName)
	if err != nil || id != 0 {
		return err
	}
	const actStolen = 4 // TC_ACT_STOLEN: taken, not dropped
	return attachCode(ifname, consumeName, asm.Instructions{asm.Mov.Imm(asm.R0, actStolen), asm.Return()})
}

// spliceName is how the filters of Splice are called.
const spliceName = "gv_splice"

// Splice sends everything that arrives on the interface from out of the interface to,
// and nothing of it to the host's own stack. Programs of the first turn come before.
func Splice(from, to string) error {
	l, err := netlink.LinkByName(to)
	if err != nil {
		return fmt.Errorf("splice %s to %s: %w", from, to, mapErr(err))
	}
	return attachCode(from, spliceName, asm.Instructions{
		asm.Mov.Imm(asm.R1, int32(l.Attrs().Index)), asm.Mov.Imm(asm.R2, 0), asm.FnRedirect.Call(), asm.Return(),
	})
}

// attachCode loads a program of a few instructions and gives it the second turn of what
// arrives on the interface.
func attachCode(ifname, name string, code asm.Instructions) error {
	RaiseMemlock()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: ebpf.SchedCLS, License: "Apache-2.0", Instructions: code})
	if err != nil {
		return fmt.Errorf("load %s: %w", name, err)
	}
	defer prog.Close()
	return AttachTC(ifname, Ingress, Second, prog, name)
}
