package api

import (
	"context"
	"net/http"
	"net/netip"
)

// Pool says who owns the addresses of a prefix: a network's, or, with Network
// empty, the cluster's own.
type Pool struct {
	Network string       `json:"network"`
	Prefix  netip.Prefix `json:"prefix"`
	Shares  []Share      `json:"shares"` // in address order of their first block
}

// Share is what one host owns of a pool.
type Share struct {
	Host   string         `json:"host"` // name; the node ID if the name is not known
	Node   string         `json:"node"`
	Blocks []netip.Prefix `json:"blocks"` // in address order
	// Part of the pool, 0 to 1.
	Part float64 `json:"part"`
}

// Ring lists who owns which addresses.
func (c *Client) Ring(ctx context.Context) ([]Pool, error) {
	return call[[]Pool](ctx, c, http.MethodGet, "ring", nil)
}

var _ = resource(Handlers.addRing, func(h Handlers, to *Handlers) { to.Ring = h.Ring })

func (h Handlers) addRing(mux *routes) {
	get(mux, "/v1/ring", h.Ring)
}
