package link

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/rlimit"
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

// One filter of ours per hook, in front of others' usual places.
const (
	tcHandle   = 1
	tcPriority = 1
)

// AttachTC runs prog (direct action) at the hook. A program that is there already
// under the same name is replaced atomically: no packet passes by both. The kernel
// keeps prog, and with it its maps, as long as it is attached and the interface
// lives. A filter of another name at our handle is an error that names it.
func AttachTC(ifname string, hook Hook, prog *ebpf.Program, name string) error {
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
	if have, err := filter(l, hook); err != nil {
		return err
	} else if have != nil && have.Name != name {
		return fmt.Errorf("attach %s to %s: filter %q of another program is in its place: remove it", name, ifname, have.Name)
	}
	err = netlink.FilterReplace(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: l.Attrs().Index, Parent: uint32(hook),
			Handle: tcHandle, Priority: tcPriority, Protocol: unix.ETH_P_ALL,
		},
		Fd: prog.FD(), Name: name, DirectAction: true,
	})
	if err != nil {
		return fmt.Errorf("attach %s to %s: %w", name, ifname, mapErr(err))
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
	f, err := filter(l, hook)
	if err != nil || f == nil || f.Name != name {
		return 0, err
	}
	return ebpf.ProgramID(f.Id), nil
}

// filter returns the filter at our handle and priority, nil if there is none.
func filter(l netlink.Link, hook Hook) (*netlink.BpfFilter, error) {
	all, err := Dump(func() ([]netlink.Filter, error) { return netlink.FilterList(l, uint32(hook)) })
	if err != nil {
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			return nil, nil // no clsact
		}
		return nil, fmt.Errorf("list tc filters of %s: %w", l.Attrs().Name, mapErr(err))
	}
	for _, f := range all {
		b, ok := f.(*netlink.BpfFilter)
		if ok && b.Priority == tcPriority && b.Handle == tcHandle {
			return b, nil
		}
	}
	return nil, nil
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
	if err := rlimit.RemoveMemlock(); err != nil {
		return fmt.Errorf("raise the limit of locked memory: %w", err)
	}
	const actStolen = 4 // TC_ACT_STOLEN: taken, not dropped
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: consumeName, Type: ebpf.SchedCLS, License: "Apache-2.0",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, actStolen), asm.Return()},
	})
	if err != nil {
		return fmt.Errorf("load %s: %w", consumeName, err)
	}
	defer prog.Close()
	return AttachTC(ifname, Ingress, prog, consumeName)
}
