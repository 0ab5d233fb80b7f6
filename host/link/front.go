package link

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A filter in front has a handle of its own in the same turn, so that an agent that knows none of it
// leaves it alone. Of one turn the kernel runs first the filter that was added last.
const frontHandle = 2

// AttachFront runs prog before the program that AttachTC has put at a hook and a turn, or will put there. prog has
// to answer TC_ACT_UNSPEC. A program in front that is there already is replaced atomically.
func AttachFront(ifname string, hook Hook, turn Turn, prog *ebpf.Program, name string) error {
	l, err := netlink.LinkByName(ifname)
	if err != nil {
		return fmt.Errorf("attach %s to %s: %w", name, ifname, mapErr(err))
	}
	clsact := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
	if err := netlink.QdiscAdd(clsact); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add clsact to %s: %w", ifname, mapErr(err))
	}
	front, first, err := frontOf(l, hook, turn)
	if err != nil {
		return err
	}
	if front != nil && !first {
		if err := netlink.FilterDel(front); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("move %s of %s to the front: %w", name, ifname, mapErr(err))
		}
	}
	return putFront(l, hook, turn, prog, name)
}

func putFront(l netlink.Link, hook Hook, turn Turn, prog *ebpf.Program, name string) error {
	err := netlink.FilterReplace(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: l.Attrs().Index, Parent: uint32(hook), Handle: frontHandle, Priority: uint16(turn), Protocol: unix.ETH_P_ALL,
		},
		Fd: prog.FD(), Name: name, DirectAction: true,
	})
	if err != nil {
		return fmt.Errorf("attach %s to the front of %s: %w", name, l.Attrs().Name, mapErr(err))
	}
	return nil
}

// Front is the ID of the program in front at a hook and a turn, and whether it runs first. None, and no such
// interface: 0 and no error.
func Front(ifname string, hook Hook, turn Turn) (id ebpf.ProgramID, first bool, err error) {
	l, err := netlink.LinkByName(ifname)
	if errors.Is(mapErr(err), ErrNotFound) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("look at the front of %s: %w", ifname, err)
	}
	f, first, err := frontOf(l, hook, turn)
	if f == nil {
		return 0, false, err
	}
	return ebpf.ProgramID(f.Id), first, nil
}

// DetachFront removes the program in front. No such program or interface is no error.
func DetachFront(ifname string, hook Hook, turn Turn) error {
	l, err := netlink.LinkByName(ifname)
	if errors.Is(mapErr(err), ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at the front of %s: %w", ifname, err)
	}
	f, _, err := frontOf(l, hook, turn)
	if err != nil || f == nil {
		return err
	}
	if err := netlink.FilterDel(f); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("detach %s from the front of %s: %w", f.Name, ifname, mapErr(err))
	}
	return nil
}

func frontOf(l netlink.Link, hook Hook, turn Turn) (front *netlink.BpfFilter, first bool, err error) {
	all, err := Dump(func() ([]netlink.Filter, error) { return netlink.FilterList(l, uint32(hook)) })
	if err != nil {
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			return nil, false, nil // no clsact
		}
		return nil, false, fmt.Errorf("list tc filters of %s: %w", l.Attrs().Name, mapErr(err))
	}
	before := 0 // others of the turn: the kernel lists them in the order in which they run
	for _, f := range all {
		b, ok := f.(*netlink.BpfFilter)
		if !ok || Turn(f.Attrs().Priority) != turn {
			continue
		}
		if b.Handle == frontHandle {
			return b, before == 0, nil
		}
		before++
	}
	return nil, false, nil
}

// raise moves the program in front to the front again, after another one was added to the turn. For a moment
// it sees nothing, rather than packets twice.
func raise(l netlink.Link, hook Hook, turn Turn) error {
	f, first, err := frontOf(l, hook, turn)
	if err != nil || f == nil || first {
		return err
	}
	prog, err := ebpf.NewProgramFromID(ebpf.ProgramID(f.Id))
	if err != nil {
		return fmt.Errorf("move %s of %s to the front: %w", f.Name, l.Attrs().Name, err)
	}
	defer prog.Close()
	if err := netlink.FilterDel(f); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("move %s of %s to the front: %w", f.Name, l.Attrs().Name, mapErr(err))
	}
	return putFront(l, hook, turn, prog, f.Name)
}
