package link

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/cilium/ebpf"
	bpflink "github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// FiltersBeside names filters of tc(8) at what arrives at an interface. "": there are none.
func FiltersBeside(ifname string) (string, error) {
	l, err := netlink.LinkByName(ifname)
	if err != nil {
		return "", fmt.Errorf("filters of %s: %w", ifname, mapErr(err))
	}
	return filtersBeside(l, Ingress)
}

// FiltersBehind names what others have put at what leaves an interface by tc(8): qdiscs in place of the kernel's own, and
// filters. "": nothing.
func FiltersBehind(ifname string) (string, error) {
	l, err := netlink.LinkByName(ifname)
	if err != nil {
		return "", fmt.Errorf("filters of %s: %w", ifname, mapErr(err))
	}
	if given, err := shapers(l); err != nil || given[l.Attrs().Index] != "" {
		return given[l.Attrs().Index], err
	}
	return filtersBeside(l, Egress)
}

// ProgramsBeside names a program of others at what arrives at an interface (tcx), which one attached by AttachTCX under the
// name ours comes before. "": there is none. The kernel tells of no change of these.
func ProgramsBeside(index int, ours string) (string, error) {
	return programs(index, ebpf.AttachTCXIngress, ours)
}

// ProgramsBehind names a program of others at what leaves an interface, as ProgramsBeside does.
func ProgramsBehind(index int) (string, error) { return programs(index, ebpf.AttachTCXEgress, "") }

// ProgramsAt names a program of others at what arrives at an interface, of tcx or XDP. "": there is none.
func ProgramsAt(index int) (string, error) {
	l, err := fewOf(index, "")
	if err != nil {
		return "", fmt.Errorf("programs of %w", err)
	}
	if program, attached := l.xdp(); attached {
		return fmt.Sprintf("the XDP program %d", program), nil
	}
	return programs(index, ebpf.AttachTCXIngress, "")
}

func programs(index int, at ebpf.AttachType, ours string) (string, error) {
	all, err := bpflink.QueryPrograms(bpflink.QueryOptions{Target: index, Attach: at})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || errors.Is(err, ebpf.ErrNotSupported) {
		return "", nil // none, or no tcx
	}
	if err != nil {
		return "", fmt.Errorf("list tc programs: %w", mapErr(err))
	}
	for _, p := range all.Programs {
		name, err := programName(p.ID)
		if err != nil {
			return "", err
		}
		if name != ours {
			return fmt.Sprintf("the tc program %s (%d)", name, p.ID), nil
		}
	}
	return "", nil
}

// filtersBeside are filters of a clsact qdisc; one of the kind ingress has none but these.
func filtersBeside(l netlink.Link, hook Hook) (string, error) {
	qdiscs, err := Dump(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(l) })
	if err != nil {
		return "", fmt.Errorf("qdiscs of %s: %w", l.Attrs().Name, mapErr(err))
	}
	kinds := make([]string, 0, len(qdiscs))
	for _, q := range qdiscs {
		kinds = append(kinds, q.Type())
	}
	if hook == Ingress && slices.Contains(kinds, "ingress") {
		return "an ingress qdisc", nil
	}
	if !slices.Contains(kinds, "clsact") {
		return "", nil
	}
	filters, err := Dump(func() ([]netlink.Filter, error) { return netlink.FilterList(l, uint32(hook)) })
	if err != nil {
		return "", fmt.Errorf("list tc filters of %s: %w", l.Attrs().Name, mapErr(err))
	}
	if len(filters) > 0 {
		return "a tc filter (" + filters[0].Type() + ")", nil
	}
	return "", nil
}

// StackPrograms says of a BPF program that it is a hook of netfilter, or chooses sockets (BPF_PROG_TYPE_SK_LOOKUP), in
// whatever namespace: of the first the kernel does not tell which. "": there is none.
func StackPrograms() (string, error) {
	for id := bpflink.ID(0); ; {
		next, err := linkBehind(id)
		if errors.Is(err, unix.ENOENT) {
			return "", nil
		}
		if err != nil {
			return "", fmt.Errorf("list BPF links: %w", err)
		}
		id = next
		what, err := stackLink(id)
		if errors.Is(err, fs.ErrNotExist) {
			continue // gone meanwhile
		}
		if err != nil {
			return "", fmt.Errorf("look at BPF link %d: %w", id, err)
		}
		if what != "" {
			return what, nil
		}
	}
}
