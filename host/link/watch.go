package link

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Kind is a kind of things in a network namespace that change.
type Kind int

// The kinds, as rtnetlink(7) has them.
const (
	// AnyChange: anything may have changed. A watch has just begun, or the kernel had more to tell
	// than there was room for.
	AnyChange       Kind = iota
	LinkChange           // interfaces: come, gone, up, down, other addresses or MTU
	AddrChange           // IP addresses
	RouteChange          // of all tables
	RuleChange           // that choose the table
	FilterChange         // qdiscs, classes and filters of tc(8)
	SwitchChange         // forwarding, rp_filter and the like of interfaces, "all" and "default"
	NeighbourChange      // whose MAC address is known, and behind which ports of bridges one is
)

// groups are rtnetlink's groups of each kind.
var groups = map[Kind][]int{
	LinkChange:      {unix.RTNLGRP_LINK},
	AddrChange:      {unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR},
	RouteChange:     {unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE},
	RuleChange:      {unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE},
	FilterChange:    {unix.RTNLGRP_TC},
	SwitchChange:    {unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF},
	NeighbourChange: {unix.RTNLGRP_NEIGH},
}

// Change is what the kernel tells of one thing. Whoever wants to know how that is now looks:
// what is told may be long over.
type Change struct {
	Kind Kind
	// Gone: it was deleted. Of an interface that goes down the kernel tells nothing of the
	// IPv4 routes that go with it.
	Gone  bool
	Index int    // of the interface; 0: of a rule, or of a route that has none
	Name  string // of a link
	Up    bool   // of a link
	V6    bool
	Table int // of a route or a rule
	// Priority is a rule's, Dst a route's or an address' with its prefix length, or a neighbour's.
	Priority int
	Dst      netip.Prefix
	// MAC is a neighbour's. If Bridge is not 0 that is behind the port Index of that bridge, and Dst is not valid.
	MAC    [6]byte
	Bridge int
}

// Watch is a subscription to changes of a network namespace.
type Watch struct {
	file  *os.File
	raw   syscall.RawConn
	kinds []Kind
}

// watchRoom is how many bytes of news the kernel keeps for a watch: those of some thousand
// changes. What does not fit is told as AnyChange.
const watchRoom = 1 << 20

// OpenWatch subscribes to changes of the calling thread's namespace. From then on nothing is
// lost: look at what there is after it, then Run. The caller closes it.
func OpenWatch(kinds ...Kind) (*Watch, error) {
	fd, err := subscribe(kinds, watchRoom)
	if err != nil {
		return nil, err
	}
	w := &Watch{file: os.NewFile(uintptr(fd), "rtnetlink"), kinds: kinds}
	w.raw, err = w.file.SyscallConn()
	return w, err
}

// subscribe returns a socket at which the kernel tells of changes, with so much room for them; 0: as much as it gives.
func subscribe(kinds []Kind, room int) (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return 0, fmt.Errorf("watch the kernel's network: %w", err)
	}
	// Beyond net.core.rmem_max; who may not has less room, and hears of AnyChange sooner.
	if room > 0 && unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, room) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, room)
	}
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	for _, k := range kinds {
		for _, g := range groups[k] {
			if err == nil {
				err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, g)
			}
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return 0, fmt.Errorf("watch the kernel's network: %w", err)
	}
	return fd, nil
}

// Close ends Run.
func (w *Watch) Close() { _ = w.file.Close() }

// Run tells of changes until ctx is done, which is no error, or the watch is closed. tell is
// called by this goroutine, and must not block for long. The first that it is told is
// AnyChange.
func (w *Watch) Run(ctx context.Context, tell func(Change)) error {
	stop := context.AfterFunc(ctx, func() { _ = w.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	tell(Change{})
	buf := make([]byte, 64<<10)
	for {
		n, from, err := w.receive(buf)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			tell(Change{})
			continue
		case err != nil:
			return fmt.Errorf("watch the kernel's network: %w", err)
		case from != 0: // not the kernel's word
			continue
		}
		messages, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			tell(Change{})
		}
		for _, m := range messages {
			if c, ok := parseChange(m); ok && slices.Contains(w.kinds, c.Kind) {
				tell(c)
			}
		}
	}
}

func (w *Watch) receive(buf []byte) (n int, from uint32, err error) {
	var sender unix.Sockaddr
	readErr := w.raw.Read(func(fd uintptr) bool {
		n, sender, err = unix.Recvfrom(int(fd), buf, 0)
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	if readErr != nil {
		return 0, 0, readErr
	}
	if s, ok := sender.(*unix.SockaddrNetlink); ok {
		from = s.Pid
	}
	return n, from, err
}
