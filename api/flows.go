package api

import (
	"context"
	"net/http"
)

// Flow is an OpenFlow flow of this host's switch, with its counters.
type Flow struct {
	Table    uint8  `json:"table"`
	Stage    string `json:"stage"`
	Priority uint16 `json:"priority"`
	Match    string `json:"match"`
	Actions  string `json:"actions"`
	Object   string `json:"object"` // what the flow is there for; empty: its stage
	Cookie   uint64 `json:"cookie"`
	Packets  uint64 `json:"packets"`
	Bytes    uint64 `json:"bytes"`
}

// Flows lists the flows of the agent's switch.
func (c *Client) Flows(ctx context.Context) ([]Flow, error) {
	return call[[]Flow](ctx, c, http.MethodGet, "flows", nil)
}

var _ = resource(Handlers.addFlows, func(h Handlers, to *Handlers) { to.Flows = h.Flows })

func (h Handlers) addFlows(mux *routes) {
	get(mux, "/v1/flows", h.Flows)
}
