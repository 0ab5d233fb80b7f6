package link

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	bpflink "github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// HasTCX says that this kernel has no tcx; nil: it has.
func HasTCX() error {
	const loopback = 1
	_, err := bpflink.QueryPrograms(bpflink.QueryOptions{Target: loopback, Attach: ebpf.AttachTCXIngress})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, ebpf.ErrNotSupported) {
		return errNoTCX
	}
	return nil // what else is wrong shows where it is used
}

var errNoTCX = errors.New("a program at the NIC needs Linux 6.6 with CONFIG_NET_XGRESS")

// tcx is the hook without a clsact qdisc.
func (h Hook) tcx() ebpf.AttachType {
	if h == Egress {
		return ebpf.AttachTCXEgress
	}
	return ebpf.AttachTCXIngress
}

// AttachTCX runs prog, called name, before all others on what arrives at an interface, or leaves by it, that
// is not ours (tcx, Linux 6.6): a clsact qdisc that comes or goes would stop the interface for
// a moment. A program that is there under the same name is replaced atomically. The
// kernel keeps prog, and with it its maps, until DetachTCX or as long as the interface lives.
func AttachTCX(ifname string, hook Hook, prog *ebpf.Program, name string) error {
	l, err := Get(ifname)
	if err != nil {
		return err
	}
	opts := bpflink.RawAttachProgramOptions{Target: l.Index, Program: prog, Attach: hook.tcx(), Anchor: bpflink.Head()}
	old, err := programTCX(l, hook, name)
	if err != nil {
		return err
	}
	if old != nil {
		defer old.Close()
		opts.Anchor = bpflink.ReplaceProgram(old)
	}
	if err := bpflink.RawAttachProgram(opts); err != nil {
		if errors.Is(err, unix.EINVAL) || errors.Is(err, ebpf.ErrNotSupported) {
			return fmt.Errorf("attach %s to %s (needs Linux 6.6 with CONFIG_NET_XGRESS): %w", name, ifname, err)
		}
		return fmt.Errorf("attach %s to %s: %w", name, ifname, err)
	}
	return nil
}

// DetachTCX removes what AttachTCX put there. No such program or interface is no error.
func DetachTCX(ifname string, hook Hook, name string) error {
	l, err := Get(ifname)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	prog, err := programTCX(l, hook, name)
	if err != nil || prog == nil {
		return err
	}
	defer prog.Close()
	err = bpflink.RawDetachProgram(bpflink.RawDetachProgramOptions{Target: l.Index, Program: prog, Attach: hook.tcx()})
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("detach %s from %s: %w", name, ifname, err)
	}
	return nil
}

// AttachedTCX returns the ID of what AttachTCX put there. No such program or interface: 0 and
// no error.
func AttachedTCX(ifname string, hook Hook, name string) (ebpf.ProgramID, error) {
	l, err := Get(ifname)
	if errors.Is(err, ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	prog, err := programTCX(l, hook, name)
	if err != nil || prog == nil {
		return 0, err
	}
	defer prog.Close()
	info, err := prog.Info()
	if err != nil {
		return 0, fmt.Errorf("ask about %s at %s: %w", name, ifname, err)
	}
	id, _ := info.ID()
	return id, nil
}

// programTCX is the program of that name at the interface, or nil.
func programTCX(l Link, hook Hook, name string) (*ebpf.Program, error) {
	all, err := bpflink.QueryPrograms(bpflink.QueryOptions{Target: l.Index, Attach: hook.tcx()})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) || errors.Is(err, ebpf.ErrNotSupported) {
		return nil, nil // none, or no tcx
	}
	if err != nil {
		return nil, fmt.Errorf("list programs of %s: %w", l.Name, err)
	}
	for _, p := range all.Programs {
		prog, err := ebpf.NewProgramFromID(p.ID)
		if errors.Is(err, unix.ENOENT) {
			continue // gone meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("program %d of %s: %w", p.ID, l.Name, err)
		}
		if info, err := prog.Info(); err == nil && info.Name == name {
			return prog, nil
		}
		_ = prog.Close()
	}
	return nil, nil
}
