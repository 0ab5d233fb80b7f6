package agent

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/bgp"
	"github.com/grapevine-net/grapevine/bgp/speaker"
	"github.com/grapevine-net/grapevine/egress/hold"
)

// announcer tells routers by BGP which addresses are here. Without routers it does nothing.
type announcer struct {
	agent   *Agent
	speaker *speaker.Speaker
	plan    atomic.Pointer[plan]
}

// plan is what routers are to be told, and what of the settings is not.
type plan struct {
	routes []bgp.Route
	wrong  []bgp.Wrong
}

func newAnnouncer(a *Agent) *announcer {
	return &announcer{agent: a, speaker: speaker.New(speaker.Config{Routers: a.cfg.BGP, ID: routerID(a.underlay.Addr, string(a.self())), Log: a.log.With("room", "bgp")})}
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

// routed says whether routers lead here.
func (b *announcer) routed() (r hold.Routed) {
	for _, s := range b.speaker.Sessions() {
		r.Take = r.Take || s.Up
		r.Keep = r.Keep || s.Up || time.Since(s.Since) < routerless
		if s.Local.IsValid() {
			r.From = append(r.From, s.Local)
		}
	}
	return r
}

// run tells routers until ctx is done, and then says nothing.
func (b *announcer) run(ctx context.Context) error {
	if len(b.agent.cfg.BGP) == 0 {
		return nil
	}
	var all errgroup.Group
	b.look() // before a session begins
	all.Go(func() error { return b.speaker.Run(ctx) })
	all.Go(func() error {
		for {
			changed := b.agent.replica.Watch()
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
func (b *announcer) look() {
	a := b.agent
	own, err := ownAddresses()
	if err != nil {
		a.log.Warn("routers are told what they were", "err", err)
		return
	}
	var p plan
	p.routes, p.wrong = bgp.Case{
		Self: a.self(), Snap: a.replica.Snapshot(), Serves: a.egress.Serves,
		Networks: a.cfg.BGPNetworks, Addresses: a.cfg.BGPAddresses, Has: func(x netip.Addr) bool { return slices.Contains(own, x) },
	}.Plan()
	b.plan.Store(&p)
	b.speaker.Set(p.routes)
}

func (b *announcer) now() plan {
	if p := b.plan.Load(); p != nil {
		return *p
	}
	return plan{}
}

// down is how long a session may be gone before status names it: an agent that begins has none yet.
const down = 10 * time.Second

func (b *announcer) problems() (list []api.Problem) {
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

// show answers GET /v1/bgp.
func (b *announcer) show(context.Context) (api.BGP, error) {
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

// end tells routers that nothing is here any more.
func (b *announcer) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, farewell)
	defer cancel()
	b.speaker.End(ctx)
}
