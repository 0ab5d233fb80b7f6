package api

import (
	"context"
	"net/http"
	"net/netip"
	"time"
)

// BGP is what routers are told by BGP of the addresses that are here.
type BGP struct {
	Routers []BGPRouter `json:"routers"`
	Routes  []BGPRoute  `json:"routes"`
}

// BGPRouter is the session with a router.
type BGPRouter struct {
	Router  string    `json:"router"`
	AS      uint32    `json:"as"`
	LocalAS uint32    `json:"localAS"`
	Up      bool      `json:"up"`
	Since   time.Time `json:"since"`           // it is up, or down
	Error   string    `json:"error,omitempty"` // why it is down
	Keeps   int       `json:"keeps,omitempty"` // seconds for which the router keeps the routes when the agent is gone
	Told    int       `json:"told"`            // routes
}

// BGPRoute is a route that leads to this host.
type BGPRoute struct {
	Prefix netip.Prefix `json:"prefix"`
	For    string       `json:"for"` // what it leads to, for people
}

// BGP asks what routers are told.
func (c *Client) BGP(ctx context.Context) (BGP, error) {
	return call[BGP](ctx, c, http.MethodGet, "bgp", nil)
}

var _ = resource(Handlers.addBGP, func(h Handlers, to *Handlers) { to.BGP = h.BGP })

func (h Handlers) addBGP(mux *routes) { get(mux, "/v1/bgp", h.BGP) }
