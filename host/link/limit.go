package link

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Limits of a veth pair in bits per second; 0: none.
type Limits struct{ Egress, Ingress uint64 }

// limitHandle is by which a qdisc is known to be ours; others' stay as they are.
var limitHandle = netlink.MakeHandle(0x6776, 0)

// Limit shapes what passes a veth pair: name, in this namespace, sends what the container gets
// (Ingress), and its peer in the namespace of file sandbox sends what the container does (Egress).
// Each is a token bucket (tc-tbf(8)) of ten milliseconds, at least one packet of the largest size, before
// which packets wait for a twentieth of a second at most. A qdisc that somebody else has set there stays, and is an error.
func Limit(name, sandbox string, limits Limits) error {
	host, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("limit %s: %w", name, mapErr(err))
	}
	if err := shape(&netlink.Handle{}, host, limits.Ingress); err != nil {
		return fmt.Errorf("limit what %s carries to its container: %w", name, err)
	}
	if host.Attrs().NetNsID == -1 { // what it has would not go with it
		return fmt.Errorf("limit what comes by %s: its peer is not in the sandbox yet", name)
	}
	h, peer, done, err := peerIn(host.Attrs(), sandbox)
	if err != nil {
		return fmt.Errorf("limit what comes by %s: %w", name, err)
	}
	defer done()
	if err := shape(h, peer, limits.Egress); err != nil {
		return fmt.Errorf("limit what comes by %s: %w", name, err)
	}
	if err := pieces(h, peer, limits); err != nil {
		return fmt.Errorf("limit the size of what comes by %s: %w", name, err)
	}
	return nil
}

// Received is how many bytes have come by a veth from its peer, past whatever queues there.
func Received(name string) (uint64, error) {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return 0, fmt.Errorf("counters of %s: %w", name, mapErr(err))
	}
	s := l.Attrs().Statistics
	if s == nil {
		return 0, fmt.Errorf("counters of %s: the kernel tells none", name)
	}
	return s.RxBytes, nil
}

// shape gives an interface a bucket of that rate, or takes it away.
func shape(h *netlink.Handle, l netlink.Link, rate uint64) error {
	list, err := Dump(func() ([]netlink.Qdisc, error) { return h.QdiscList(l) })
	if err != nil {
		return err
	}
	var ours *netlink.Tbf
	for _, q := range list {
		a := q.Attrs()
		switch tbf, is := q.(*netlink.Tbf); {
		case a.Parent != netlink.HANDLE_ROOT || a.Handle == 0: // the kernel's own has no handle
		case is && a.Handle == limitHandle:
			ours = tbf
		case rate != 0:
			return fmt.Errorf("somebody else has set the qdisc %s there; take it away (tc qdisc del dev %s root), or the limit", q.Type(), l.Attrs().Name)
		}
	}
	bytes := rate / 8
	want := &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Handle: limitHandle, Parent: netlink.HANDLE_ROOT},
		Rate:       bytes,
		// netlink takes ticks of the kernel's clock for a burst.
		Buffer: uint32(netlink.Xmittime(bytes, uint32(burst(bytes, l.Attrs().MTU)))),
		Limit:  uint32(burst(bytes, l.Attrs().MTU) + bytes/20),
	}
	switch {
	case rate == 0 && ours == nil:
		return nil
	case rate == 0:
		return h.QdiscDel(ours)
	case ours != nil && same(ours, want):
		return nil
	}
	return h.QdiscReplace(want)
}

// same reports whether a bucket is as another one is to be. The kernel counts in nanoseconds, and tells in ticks of 64
// of them, rounded.
func same(had, want *netlink.Tbf) bool {
	return had.Rate == want.Rate && had.Limit == want.Limit && max(had.Buffer, want.Buffer)-min(had.Buffer, want.Buffer) <= 1
}

// burst is the size of the bucket in bytes.
func burst(bytes uint64, mtu int) uint64 { return max(bytes/100, uint64(mtu)+64) }

// peerIn finds the other end of a veth, here or in the namespace of file sandbox. done is to be
// called when the handle is not needed any more.
func peerIn(host *netlink.LinkAttrs, sandbox string) (h *netlink.Handle, peer netlink.Link, done func(), err error) {
	h, done = &netlink.Handle{}, func() {}
	here := -1 // the ID of this namespace where the peer is
	if host.NetNsID != -1 {
		f, err := os.Open(sandbox)
		if err != nil {
			return nil, nil, nil, err
		}
		defer f.Close()
		if h, err = netlink.NewHandleAt(netns.NsHandle(f.Fd())); err != nil {
			return nil, nil, nil, fmt.Errorf("enter the sandbox: %w", err)
		}
		done = h.Close
		own, err := netns.Get()
		if err != nil {
			done()
			return nil, nil, nil, fmt.Errorf("open this network namespace: %w", err)
		}
		defer own.Close()
		if here, err = h.GetNetNsIdByFd(int(own)); err != nil {
			done()
			return nil, nil, nil, fmt.Errorf("find this network namespace from the sandbox: %w", err)
		}
	}
	all, err := Dump(h.LinkList)
	if err != nil {
		done()
		return nil, nil, nil, fmt.Errorf("list interfaces: %w", err)
	}
	for _, l := range all {
		if a := l.Attrs(); l.Type() == "veth" && a.ParentIndex == host.Index && a.Index == host.ParentIndex && a.NetNsID == here {
			return h, l, done, nil
		}
	}
	done()
	return nil, nil, nil, errors.New("its peer is not in the sandbox")
}
