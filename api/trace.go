package api

import (
	"context"
	"net/http"
)

// TraceRequest asks what becomes of a connection's packets, there and back. From and To are as ExplainRequest's.
type TraceRequest struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Proto string `json:"proto,omitempty"`
	Port  uint16 `json:"port,omitempty"`
}

// Trace is what the switches and fast paths of both ends' hosts would do with the first packet of a connection, and
// with the answer to it.
type Trace struct {
	There []TraceHop `json:"there"`
	// Back is there if the packet arrives.
	Back []TraceHop `json:"back,omitempty"`
}

// TraceHop is a packet's way through a host.
type TraceHop struct {
	Host string `json:"host"`
	// Error says why the host could not be asked; then there is nothing else.
	Error string      `json:"error,omitempty"`
	Steps []TraceStep `json:"steps,omitempty"`
	// End is where it goes: "container", "host" (to another one), "outside" (to this host's own network, by the
	// gateway), "dropped" or "other"; Where names it.
	End   string `json:"end,omitempty"`
	Where string `json:"where,omitempty"`
	// FastPath is "carries" (it takes the packet the same way), "leaves" (to the switch), "off" or "differs"; FastTo
	// says how it differs.
	FastPath string `json:"fastPath,omitempty"`
	FastTo   string `json:"fastTo,omitempty"`
}

// TraceStep is a flow of the switch that matches.
type TraceStep struct {
	Stage  string `json:"stage"`
	Object string `json:"object,omitempty"` // what it is there for
	Flow   string `json:"flow"`
}

// Trace asks the hosts of both ends.
func (c *Client) Trace(ctx context.Context, r TraceRequest) (Trace, error) {
	return call[Trace](ctx, c, http.MethodPost, "trace", r)
}

func (h Handlers) addTrace(mux *routes) { post(mux, "/v1/trace", h.Trace) }
