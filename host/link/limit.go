package link

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Limits of a veth pair in bits per second; 0: none. Lag is what becomes of what the container sends.
type Limits struct {
	Egress, Ingress uint64
	Lag             Lag
}

// The handles by which a qdisc is known to be ours; others' stay as they are. The bucket of an interface with a lag has
// another one: the kernel would take one of that handle for a qdisc that moves.
var (
	limitHandle  = netlink.MakeHandle(0x6776, 0)
	lagHandle    = netlink.MakeHandle(lagMajor, 0)
	behindHandle = netlink.MakeHandle(0x6778, 0)
)

// Limit shapes what passes a veth pair: name, in this namespace, sends what the container gets
// (Ingress), and its peer in the namespace of file sandbox sends what the container does (Egress).
// Each is a token bucket (tc-tbf(8)) of ten milliseconds, at least one packet of the largest size, before
// which packets wait for a twentieth of a second at most. The container's is behind its lag, if it has one. A qdisc that somebody else has set there stays, and is an error.
func Limit(name, sandbox string, limits Limits) error {
	host, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("limit %s: %w", name, mapErr(err))
	}
	if err := shape(&netlink.Handle{}, host, limits.Ingress, Lag{}); err != nil {
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
	if err := fewQdiscs(sandbox); err != nil {
		return fmt.Errorf("limit what comes by %s: %w", name, err)
	}
	if err := shape(h, peer, limits.Egress, limits.Lag); err != nil {
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

// shape gives an interface a bucket of that rate, behind that lag, or takes them away.
func shape(h *netlink.Handle, l netlink.Link, rate uint64, lag Lag) error {
	list, err := Dump(func() ([]netlink.Qdisc, error) { return h.QdiscList(l) })
	if err != nil {
		return err
	}
	var has, behind netlink.Qdisc // ours
	for _, q := range list {
		switch a := q.Attrs(); {
		case a.Handle == 0: // the kernel's own
		case a.Handle == behindHandle:
			behind = q
		case a.Parent != netlink.HANDLE_ROOT:
		case a.Handle == limitHandle && q.Type() == "tbf" || a.Handle == lagHandle && q.Type() == "netem":
			has = q
		case rate != 0 || lag != Lag{}:
			return fmt.Errorf("somebody else has set the qdisc %s there; take it away (tc qdisc del dev %s root), or the limit", q.Type(), l.Attrs().Name)
		}
	}
	switch {
	case rate == 0 && lag == Lag{} && has == nil:
		return nil
	case rate == 0 && lag == Lag{}:
		return h.QdiscDel(has)
	case lag == Lag{}:
		return replace(h, has, tokens(l, rate, limitHandle, netlink.HANDLE_ROOT))
	}
	if err := CanLag(); err != nil { // what it may send holds all the same
		return errors.Join(err, shape(h, l, rate, Lag{}))
	}
	if err := replace(h, has, lag.qdisc(l)); err != nil {
		return err
	}
	if has == nil || has.Type() != "netem" {
		behind = nil // it went with the qdisc whose it was
	}
	switch {
	case rate != 0:
		return replace(h, behind, tokens(l, rate, behindHandle, netlink.MakeHandle(lagMajor, 1)))
	case behind != nil:
		return h.QdiscDel(behind)
	}
	return nil
}

// tokens are a token bucket of that rate, bits a second.
func tokens(l netlink.Link, rate uint64, handle, parent uint32) *netlink.Tbf {
	bytes, mtu := rate/8, l.Attrs().MTU
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Handle: handle, Parent: parent},
		Rate:       bytes,
		// netlink takes ticks of the kernel's clock for a burst.
		Buffer: uint32(netlink.Xmittime(bytes, uint32(burst(bytes, mtu)))),
		Limit:  uint32(burst(bytes, mtu) + bytes/20),
	}
}

// replace puts a qdisc in the place of one that is there, unless that is as it is to be.
func replace(h *netlink.Handle, has, want netlink.Qdisc) error {
	switch want := want.(type) {
	case *netlink.Tbf:
		if had, is := has.(*netlink.Tbf); is && same(had, want) {
			return nil
		}
	case *netlink.Netem:
		if had, is := has.(*netlink.Netem); is && sameLag(had, want) {
			return nil
		}
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
	// It alone is asked for: a container may have made any number of interfaces.
	peer, err = h.LinkByIndex(host.ParentIndex)
	if err == nil {
		if a := peer.Attrs(); peer.Type() == "veth" && a.ParentIndex == host.Index && a.NetNsID == here {
			return h, peer, done, nil
		}
	}
	done()
	if err != nil && !errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil, nil, nil, fmt.Errorf("look for its peer in the sandbox: %w", err)
	}
	return nil, nil, nil, errors.New("its peer is not in the sandbox")
}
