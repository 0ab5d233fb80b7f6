package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/dns/names"
	"github.com/grapevine-net/grapevine/host/nft"
	"github.com/grapevine-net/grapevine/pulse"
)

// lookAgain is how often the gateway's device is looked for.
const lookAgain = time.Second

// listen answers at the gateway for as long as ctx lasts, on new sockets whenever
// the device has become another one.
func (s *Server) listen(ctx context.Context) {
	for ctx.Err() == nil {
		err := s.listenOnce(ctx)
		if errors.Is(err, errGone) {
			continue // another one may be there
		}
		if err != nil && ctx.Err() == nil {
			s.cfg.Log.Warn("the resolver does not hear the gateway", "error", err)
		}
		sleep(ctx, s.look)
	}
}

// sleep takes until it is time to look again.
func sleep(ctx context.Context, look <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-look:
	case <-pulse.After(lookAgain):
	}
}

func (s *Server) listenOnce(ctx context.Context) (err error) {
	dev, err := net.InterfaceByName(s.cfg.Device)
	if err != nil {
		return nil // it will come
	}
	tried := false
	defer func() {
		if !tried {
			s.heard.set(dev.Index) // in vain: nobody shall wait
		}
	}()
	g, ctx := errgroup.WithContext(ctx)
	bound := net.ListenConfig{Control: bindTo(s.cfg.Device)}
	port := ":" + strconv.Itoa(int(s.cfg.Port))
	for _, family := range []string{"4", "6"} {
		f, err := openFront(ctx, bound, family, port)
		if family == "6" && noIPv6(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("listen on %s%s for IPv%s: %w", s.cfg.Device, port, family, err)
		}
		defer f.close()
		leave, err := s.redirect(family)
		if err != nil {
			return err
		}
		defer leave()
		f.identify = s.atGateway
		g.Go(func() error { return s.serve(ctx, f) })
	}
	tried = true
	s.heard.set(dev.Index)
	g.Go(func() error { return s.untilGone(ctx, dev) })
	return g.Wait()
}

// hearPatience is how long Hear waits at most.
const hearPatience = time.Second

// Hear returns when questions at the device, as it is now, are heard, or cannot be: whoever
// makes it calls this before anybody can ask, lest the first questions get no answer.
func (s *Server) Hear(ctx context.Context) {
	dev, err := netlink.LinkByName(s.cfg.Device)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, hearPatience)
	defer cancel()
	for asked := false; ; asked = true {
		at, changed := s.heard.get()
		if at == dev.Attrs().Index {
			return
		}
		if !asked {
			select {
			case s.look <- struct{}{}:
			default:
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// heard is the index of the device that was listened at last.
type heard struct {
	mu      sync.Mutex
	index   int
	changed chan struct{} // closed by the next set
}

func (h *heard) get() (index int, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.changed == nil {
		h.changed = make(chan struct{})
	}
	return h.index, h.changed
}

func (h *heard) set(index int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.index = index
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

// redirect leads port 53 to the sockets, if that is the server's own task, until leave
// is called. A kernel that can do so for IPv4 only is no error: few servers are asked
// over IPv6.
func (s *Server) redirect(family string) (leave func(), err error) {
	if !s.cfg.Redirect {
		return func() {}, nil
	}
	af := byte(unix.AF_INET)
	if family == "6" {
		af = unix.AF_INET6
	}
	r, err := newRedirect(nft.Dial, gatewayTable(af, s.cfg.Device, s.cfg.Port))
	switch {
	case err == nil:
		return r.Close, nil
	case family == "6":
		s.no6.Do(func() { s.cfg.Log.Warn("questions to servers over IPv6 do not reach the resolver", "error", err) })
		return func() {}, nil
	}
	return nil, err
}

// CanRedirect says why a Server cannot have Config.Redirect here, in the network
// namespace of the calling thread; nil: it can.
func CanRedirect() error {
	t := gatewayTable(unix.AF_INET, "none", DefaultPort)
	t.Name = "grapevine-probe" // an agent that is about to end may have the other
	r, err := newRedirect(nft.Dial, t)
	if err == nil {
		r.Close()
	}
	return err
}

// atGateway completes a question from what its packet says: the source address is
// the asker, since the switch lets no container send with another's.
func (s *Server) atGateway(q *question, client, local netip.AddrPort) {
	q.who = names.Asker{Addr: client.Addr()}
	q.asker = client.Addr().String()
	q.route = func() route { return s.toOriginal(q.network, client, local) }
}

// untilGone returns when the device has gone, or another one has its name: the
// sockets are bound to the one that was. (That is no error worth a word.)
func (s *Server) untilGone(ctx context.Context, dev *net.Interface) error {
	for {
		sleep(ctx, s.look)
		if ctx.Err() != nil {
			return nil
		}
		if index, err := deviceIndex(dev.Name); err != nil || index != dev.Index {
			return errGone
		}
	}
}

// deviceIndex is the index of an interface. Not net.InterfaceByName: that reads all interfaces, one for each
// container; and netlink tells a page about the one.
func deviceIndex(name string) (int, error) {
	r, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	err = unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, r)
	return int(r.Uint32()), err
}

func bindTo(device string) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var err error
		if e := c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), device) }); e != nil {
			return e
		}
		return err
	}
}
