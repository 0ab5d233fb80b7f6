// Package announce tells routers by BGP which addresses are on this host, as they come and go.
package announce

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/bgp"
	"github.com/grapevine-net/grapevine/bgp/speaker"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/egress/hold"
)

// Config of an Announcer.
type Config struct {
	Self     cluster.NodeID
	Settings config.Config
	Underlay netip.Addr
	Source   Source
	Serves   func(egress string) bool     // whether this host holds an egress's address
	Own      func() ([]netip.Addr, error) // this host's addresses
	Log      *slog.Logger
}

// Source is the cluster as the agent knows it. Replica is one.
type Source interface {
	Snapshot() *cluster.Snapshot
	Watch() (changed <-chan struct{})
}

// Announcer tells routers by BGP which addresses are here. Without routers it does nothing.
type Announcer struct {
	cfg     Config
	speaker *speaker.Speaker
	plan    atomic.Pointer[plan]
}

// plan is what routers are to be told, and what of the settings is not.
type plan struct {
	routes []bgp.Route
	wrong  []bgp.Wrong
}

// New makes one; nothing is told before it runs.
func New(cfg Config) *Announcer {
	return &Announcer{cfg: cfg, speaker: speaker.New(speaker.Config{Routers: cfg.Settings.BGP, ID: routerID(cfg.Underlay, string(cfg.Self)), Log: cfg.Log})}
}

// routerID names this host among those that a router hears: its IPv4 address, or a number made of its ID.
func routerID(underlay netip.Addr, self string) netip.Addr {
	if a := underlay.Unmap(); a.Is4() {
		return a
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(self)) // never fails
	sum := h.Sum32() | 1
	return netip.AddrFrom4([4]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})
}

// Times.
const (
	announceTick = time.Second
	// routerless is how long this host keeps an address that only routers lead to, without a session with one: an agent that
	// begins has none, and a router that begins anew is back by then.
	routerless = 20 * time.Second
)

// Routed says whether routers lead here.
func (b *Announcer) Routed() (r hold.Routed) {
	for _, s := range b.speaker.Sessions() {
		r.Take = r.Take || s.Up
		r.Keep = r.Keep || s.Up || time.Since(s.Since) < routerless
		if s.Local.IsValid() {
			r.From = append(r.From, s.Local)
		}
	}
	return r
}

// Run tells routers until ctx is done, and then says nothing.
func (b *Announcer) Run(ctx context.Context) error {
	if len(b.cfg.Settings.BGP) == 0 {
		return nil
	}
	var all errgroup.Group
	b.look() // before a session begins
	all.Go(func() error { return b.speaker.Run(ctx) })
	all.Go(func() error {
		for {
			changed := b.cfg.Source.Watch()
			b.look()
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
				select { // changes come in crowds
				case <-ctx.Done():
					return nil
				case <-time.After(announceTick / 20):
				}
			case <-time.After(announceTick):
			}
		}
	})
	return all.Wait()
}

// look finds out what is to be told.
func (b *Announcer) look() {
	own, err := b.cfg.Own()
	if err != nil {
		b.cfg.Log.Warn("routers are told what they were", "err", err)
		return
	}
	var p plan
	p.routes, p.wrong = bgp.Case{
		Self: b.cfg.Self, Snap: b.cfg.Source.Snapshot(), Serves: b.cfg.Serves,
		Networks: b.cfg.Settings.BGPNetworks, Addresses: b.cfg.Settings.BGPAddresses, Has: func(x netip.Addr) bool { return slices.Contains(own, x) },
	}.Plan()
	b.plan.Store(&p)
	b.speaker.Set(p.routes)
}

func (b *Announcer) now() plan {
	if p := b.plan.Load(); p != nil {
		return *p
	}
	return plan{}
}

// down is how long a session may be gone before status names it: an agent that begins has none yet.
const down = 10 * time.Second

// Problems says which routers are not told what they are to be.
func (b *Announcer) Problems() (list []api.Problem) {
	for _, s := range b.speaker.Sessions() {
		switch {
		case !s.Up && time.Since(s.Since) > down:
			list = append(list, api.Problem{
				Code: api.BGPDown,
				What: fmt.Sprintf("router %v is not told which addresses are here: no session by BGP since %s: %s", s.Router, s.Since.Format(time.TimeOnly), s.Err),
				Do:   "see what the router says of this host, and compare GRAPEVINE_BGP (addresses, AS numbers, password) with its settings",
			})
		default:
			for _, why := range s.Unsaid {
				list = append(list, api.Problem{
					Code: api.BGPUnsaid, What: fmt.Sprintf("router %v is not told all addresses that are here: %s", s.Router, why),
					Do: "have the router's session carry that family, and give the interface an address of it",
				})
			}
		}
	}
	for _, w := range b.now().wrong {
		list = append(list, api.Problem{Code: api.BGPUnsaid, What: w.What, Do: w.Do})
	}
	return list
}

// Show answers GET /v1/bgp.
func (b *Announcer) Show(context.Context) (api.BGP, error) {
	out := api.BGP{Routers: []api.BGPRouter{}, Routes: []api.BGPRoute{}}
	for _, s := range b.speaker.Sessions() {
		out.Routers = append(out.Routers, api.BGPRouter{Router: s.Router.String(), AS: s.Router.AS, LocalAS: s.Router.LocalAS, Up: s.Up, Since: s.Since, Error: s.Err, Keeps: keeps(s), Told: s.Told})
	}
	for _, r := range b.now().routes {
		out.Routes = append(out.Routes, api.BGPRoute{Prefix: r.Prefix, For: r.For})
	}
	return out, nil
}

// keeps is how many seconds a router keeps the routes when the agent is gone.
func keeps(s speaker.Session) int {
	if !s.Keeps {
		return 0
	}
	return int(s.Router.Restart / time.Second)
}

// farewell is how long routers may take to hear that this host leaves.
const farewell = 2 * time.Second

// End tells routers that nothing is here any more.
func (b *Announcer) End(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, farewell)
	defer cancel()
	b.speaker.End(ctx)
}
