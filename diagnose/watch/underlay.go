package watch

import (
	"context"
	"errors"
	"time"

	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/diagnose/doctor"
	"github.com/grapevine-net/grapevine/encap"
	"github.com/grapevine-net/grapevine/host/link"
)

// underlayPatience is how long a host that boots may take to get its address.
const underlayPatience = 30 * time.Second

// WaitForUnderlay returns the underlay as soon as there is one, or an error when it has waited long enough.
func WaitForUnderlay(ctx context.Context, cfg config.Config) (link.Underlay, error) {
	ctx, cancel := context.WithTimeout(ctx, underlayPatience)
	defer cancel()
	for {
		u, err := findUnderlay(cfg)
		if err == nil {
			return u, nil
		}
		select {
		case <-ctx.Done():
			return u, err
		case <-time.After(time.Second):
		}
	}
}

func findUnderlay(cfg config.Config) (link.Underlay, error) {
	u, err := link.FindUnderlay(doctor.WantedUnderlay(cfg))
	return carrying(cfg, u), err
}

// carrying is the underlay with the MTU that VXLAN has there.
func carrying(cfg config.Config, u link.Underlay) link.Underlay {
	if cfg.MTU != 0 {
		u.MTU = cfg.MTU
	}
	if cfg.NeedsIPsec() {
		u.MTU -= encap.IPsec
	}
	return u
}

// ErrMoved ends the agent's tasks: this host has another underlay address, interface or
// MTU than when they began.
var ErrMoved = errors.New("the underlay has changed")

// lookAtUnderlay is how often the underlay is looked at: a list of addresses and one of
// routes.
const lookAtUnderlay = 2 * time.Second

// stays reports whether the underlay that was is kept, though another one would be found now:
// its address is still there, on the same interface, which is up and has carrier. The default
// route finds an underlay, and is no reason to leave one: the other hosts know this one by its
// address, which a VPN, a second uplink or a router that is started anew does not take away.
// Of several addresses, as IPv6 makes new ones every day, the first is not always the same.
func stays(cfg config.Config, was, is link.Underlay) bool {
	here, err := link.FindUnderlay(link.Want{Addr: was.Addr})
	if err != nil || carrying(cfg, here) != was {
		return false
	}
	return is.Interface == was.Interface || link.Trouble(was.Interface, was.Addr) == ""
}

// Moves looks whether this host's underlay is another one now.
type Moves struct {
	Host
	Depart func(context.Context) error // tells the others that this host moves
}

// Run returns ErrMoved when the underlay has changed. A host without one (a NIC
// that is down, a lease that is over) keeps the one it had: it may come back.
func (w Moves) Run(ctx context.Context) error {
	news := link.NewNews(link.LinkChange, link.AddrChange, link.RouteChange)
	defer news.Close()
	return every(ctx, lookAtUnderlay, func() error {
		if !news.Any(time.Now()) {
			return nil
		}
		now, err := findUnderlay(w.Settings)
		if err != nil || now == w.Underlay || stays(w.Settings, w.Underlay, now) {
			return nil //nolint:nilerr // none now: the one that was stays
		}
		w.Log.Warn("the underlay has changed: beginning anew with it", "was", w.Underlay, "is", now)
		if now.Addr != w.Underlay.Addr {
			if err := w.Depart(ctx); err != nil {
				w.Log.Debug("tell the others that this host moves", "err", err)
			}
		}
		return ErrMoved
	})
}
