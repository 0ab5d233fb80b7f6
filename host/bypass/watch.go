package bypass

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/pulse"
)

// Watch judges traffic as a namespace's rules are, and hears of their changes.
type Watch struct {
	ours string
	tell Tell

	firewall, security *news
	network            *link.Watch
	neighbours         *link.Watch
	changed            chan struct{}
	heard              atomic.Uint64 // changes
	state              atomic.Int32
	damper             damper

	mu      sync.Mutex
	judged  bool
	at      uint64 // heard, when last was
	when    time.Time
	last    error
	traffic Traffic
	ports   Ports // that last was judged by
	fine    fine

	about atomic.Pointer[about] // who hears of changes does not wait for mu, which is held while rules are read
}

// Tell is what a Watch calls.
type Tell struct {
	// Withdraw is called as soon as anything has changed that may matter, and Again when it has been calm for a moment.
	Withdraw, Again func()
	// Renew is called each second in which all was looked at that has to be. Who is judged relies on it for as long as Lease
	// behind that, and no longer. It returns false if that has ended before: nobody has heard of changes meanwhile.
	Renew func() bool
}

// Lease is for how long a judgement is relied on without Renew: a process that is stopped hears of nothing.
const Lease = 3 * time.Second

// about is what is judged.
type about struct {
	traffic Traffic
	looked  bool
	seen    string  // of what the kernel tells no news of
	bridge  *bridge // nil: packets leave by none
}

// States of a Watch.
const (
	opened = iota
	running
	ended
)

const (
	glance = time.Second      // how often it is looked at what the kernel tells nobody of
	stale  = 20 * time.Second // for as long a judgement is good at least, whatever is heard
)

// Open returns a Watch of the calling thread's namespace. ours is the name of the program at the NIC that it does not
// look at. The caller runs it, and closes it then.
func Open(ours string, tell Tell) (*Watch, error) {
	w := &Watch{ours: ours, tell: tell, changed: make(chan struct{}, 1)}
	var err error
	if w.firewall, err = openNews(unix.NETLINK_NETFILTER, groupNFTables); err != nil {
		return nil, fmt.Errorf("watch the changes of nftables: %w", err)
	}
	if w.security, err = openNews(unix.NETLINK_XFRM, groupPolicies); err != nil && !errors.Is(err, unix.EPROTONOSUPPORT) {
		w.Close()
		return nil, fmt.Errorf("watch the changes of IPsec's policies: %w", err)
	}
	if w.network, err = link.OpenWatch(link.LinkChange, link.RouteChange, link.RuleChange, link.FilterChange, link.SwitchChange); err != nil {
		w.Close()
		return nil, err
	}
	if w.neighbours, err = link.OpenWatch(link.NeighbourChange); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Close lets go of the sockets.
func (w *Watch) Close() {
	for _, n := range []*news{w.firewall, w.security} {
		if n != nil {
			_ = n.file.Close()
		}
	}
	for _, n := range []*link.Watch{w.network, w.neighbours} {
		if n != nil {
			n.Close()
		}
	}
}

var (
	errNotWatching = errors.New("the agent does not hear of changes of this host's rules")
	// ErrLooking says that there is no judgement yet, or none any more: what the host does with packets has just changed.
	ErrLooking = errors.New("the agent looks at what this host does with packets, which has just changed")
)

// Judge says why t may not pass this host by; nil: nothing would be missed. It is called in the namespace of the Watch.
// What it said is said again, at no cost, until something changes.
func (w *Watch) Judge(t Traffic) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch w.state.Load() {
	case opened:
		return ErrLooking
	case ended:
		return errNotWatching
	}
	heard := w.heard.Load()
	if w.damper.rest(time.Now()) > 0 {
		if needs := w.damper.needs(); needs > leastCalm {
			return fmt.Errorf("%w; that happens often: it waits until nothing has changed for %s", ErrLooking, needs.Round(100*time.Millisecond))
		}
		return ErrLooking
	}
	if w.judged && w.at == heard && time.Since(w.when) < w.damper.lasts() && w.traffic.equal(t) {
		return w.last
	}
	w.traffic = t
	now := about{traffic: t}
	nic := bridgeOf(t)
	if nic != nil {
		now.bridge = &bridge{all: true}
	}
	w.about.Store(&now)
	heard = w.heard.Load() // what changes from here on is heard of
	began := time.Now()
	err := unheard(t, w.ours)
	seen := said(err) + w.ofBridge(now)
	if err == nil {
		err = w.fine.heard(t)
	}
	w.ports = Ports{}
	if nic != nil {
		now.bridge = &bridge{closed: true}
	}
	if err == nil {
		w.ports, now.bridge = portsOf(t, nic)
	}
	w.about.Store(&about{t, true, seen, now.bridge})
	w.judged, w.at, w.last, w.when = w.heard.Load() == heard, heard, err, time.Now()
	w.damper.read(w.when.Sub(began))
	if !w.judged {
		return ErrLooking
	}
	return err
}

// Ports are those of a bridge by which what is judged leaves, and none where nothing is known to be as it was.
func (w *Watch) Ports() Ports {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.judged || w.at != w.heard.Load() || w.last != nil {
		return Ports{}
	}
	return w.ports
}

// Run hears of changes until ctx is done. It is called in the namespace of the Watch, on a thread that stays there.
func (w *Watch) Run(ctx context.Context) error {
	w.state.Store(running)
	defer func() {
		w.state.Store(ended)
		w.hear()
	}()
	g, ctx := errgroup.WithContext(ctx)
	for _, n := range []*news{w.firewall, w.security} {
		if n != nil {
			g.Go(func() error { return n.run(ctx, w.hear) })
		}
	}
	g.Go(func() error { return w.network.Run(ctx, w.hearOfNetwork) })
	g.Go(func() error { return w.neighbours.Run(ctx, w.hearOfNeighbour) })
	stopped := make(chan error, 1)
	go func() { stopped <- g.Wait() }()
	tick := pulse.After(glance)
	quiet := time.NewTimer(leastCalm)
	defer quiet.Stop()
	for {
		select {
		case err := <-stopped:
			if ctx.Err() != nil && errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		case <-w.changed:
			quiet.Reset(w.damper.needs())
		case <-quiet.C:
			if rest := w.damper.rest(time.Now()); rest > 0 {
				quiet.Reset(rest)
				continue
			}
			w.tell.Again()
		case <-tick:
			w.glance()
			tick = pulse.After(glance)
		}
	}
}

// hear is called when something has changed. Nobody relies on a judgement that is older: its number comes first.
func (w *Watch) hear() {
	w.heard.Add(1)
	w.damper.heard(time.Now())
	w.tell.Withdraw()
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// hearOfNetwork leaves out what containers come and go with.
func (w *Watch) hearOfNetwork(c link.Change) {
	var t Traffic
	var b *bridge
	if a := w.about.Load(); a != nil {
		t, b = a.traffic, a.bridge
	}
	matters := false
	switch c.Kind {
	case link.AnyChange:
		matters = true
	case link.LinkChange:
		matters = c.Index == t.Index || c.Name == t.Device || c.Name == t.Tunnel || b.uses(c.Index)
	case link.FilterChange:
		matters = c.Index == t.Index || c.Index == t.TunnelIndex || c.Index < 0 // below 0: of a block that several share
	case link.RouteChange, link.RuleChange:
		matters = !c.V6
	case link.SwitchChange:
		matters = !c.V6 && (c.Index == t.Index || c.Index < 0) // below 0: of all, or of those to come
	}
	if matters {
		w.hear()
	}
}

// hearOfNeighbour is of who is behind the ports of a bridge by which packets leave.
func (w *Watch) hearOfNeighbour(c link.Change) {
	a := w.about.Load()
	switch {
	case a == nil || a.bridge == nil || a.bridge.closed:
	case c.Kind == link.AnyChange,
		c.Bridge == a.traffic.Index && a.bridge.moved(c.MAC, c.Index, c.Gone),
		c.Bridge == 0 && c.Index == a.traffic.Index && !c.Gone && c.MAC != MAC{} && a.bridge.renumbered(c.Dst.Addr(), c.MAC):
		w.hear()
	}
}

// unheard is what the kernel tells no news of.
func (w *Watch) unheard(a about) string {
	return said(unheard(a.traffic, w.ours)) + w.ofBridge(a)
}

func (w *Watch) ofBridge(a about) string {
	if a.bridge == nil {
		return ""
	}
	return said(atBridge(a.traffic))
}

// glance looks at what the kernel tells no news of.
func (w *Watch) glance() {
	a := w.about.Load()
	if a == nil || !a.looked {
		return
	}
	if seen := w.unheard(*a); seen != a.seen {
		next := *a // heard of once: else it would never be calm
		next.seen = seen
		w.about.CompareAndSwap(a, &next)
		w.hear()
	} else if !w.tell.Renew() {
		w.hear()
	}
}

func said(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Groups of news (linux/netfilter/nfnetlink.h, linux/xfrm.h).
const (
	groupNFTables = 7 // NFNLGRP_NFTABLES
	groupPolicies = 4 // XFRMNLGRP_POLICY
)

// news is a netlink socket that hears of changes, of which it does not matter what they are.
type news struct {
	file *os.File
	raw  syscall.RawConn
}

func openNews(protocol, group int) (*news, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (group - 1)}); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	n := &news{file: os.NewFile(uintptr(fd), "netlink")}
	n.raw, err = n.file.SyscallConn()
	return n, err
}

func (n *news) run(ctx context.Context, hear func()) error {
	defer context.AfterFunc(ctx, func() { _ = n.file.SetReadDeadline(time.Unix(1, 0)) })()
	for {
		var failed error
		err := n.raw.Read(func(fd uintptr) bool {
			_, failed = take(fd)
			return !errors.Is(failed, unix.EAGAIN)
		})
		if ctx.Err() != nil {
			return nil
		}
		if err = errors.Join(failed, err); err != nil {
			return fmt.Errorf("watch the host's rules: %w", err)
		}
		hear() // before all of it is read, which may be much
		more := false
		if err := n.raw.Control(func(fd uintptr) {
			for some := true; some; more = more || some {
				some, _ = take(fd)
			}
		}); err != nil {
			return fmt.Errorf("watch the host's rules: %w", err)
		}
		if more {
			hear()
		}
	}
}

// take reads one message; that there were too many for the socket is news as well.
func take(fd uintptr) (bool, error) {
	var head [unix.NLMSG_HDRLEN]byte
	for {
		switch _, _, err := unix.Recvfrom(int(fd), head[:], unix.MSG_DONTWAIT); err {
		case nil, unix.ENOBUFS:
			return true, nil
		case unix.EINTR:
		default:
			return false, err
		}
	}
}
