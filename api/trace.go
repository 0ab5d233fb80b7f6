package api

import (
	"context"
	"net/http"
	"net/netip"
)

// TraceRequest asks what becomes of a connection's packets, there and back. From and To are as ExplainRequest's.
type TraceRequest struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Proto string `json:"proto,omitempty"`
	Port  uint16 `json:"port,omitempty"`
	// Dry: no real packet is sent.
	Dry bool `json:"dry,omitempty"`
	// By is the host by which a packet from outside comes in; empty: that of the container it is for.
	By string `json:"by,omitempty"`
}

// Trace is what the switches and fast paths of both ends' hosts would do with the first packet of a connection, and
// with the answer to it; and what became of a real one.
type Trace struct {
	There []TraceHop `json:"there"`
	// Back is there if the packet arrives.
	Back []TraceHop `json:"back,omitempty"`
	// Packet is a real one; nil: none was asked for.
	Packet *TracePacket `json:"packet,omitempty"`
}

// TracePacket is a packet that was sent from within a container, as a program there would.
type TracePacket struct {
	What string `json:"what"` // "TCP SYN"
	// Error says why none was sent; then there is nothing else.
	Error string `json:"error,omitempty"`
	// Failed says that it was to be sent, and could not be: then it is not known whether it would pass.
	Failed bool `json:"failed,omitempty"`
	// Held says that the container's own kernel refused it, as a rule of a firewall inside of the container does.
	Held bool `json:"held,omitempty"`
	// Stuck says that the container's own kernel took it for no interface: it has no route, or no address, or its interface is down.
	Stuck bool `json:"stuck,omitempty"`
	// NoWay says why the container that it is sent to has no route for the answer; empty: it has one, or its agent does not say.
	NoWay string `json:"noWay,omitempty"`
	// Points are where it was looked for, and then the answer, in the order in which they pass.
	Points []TracePoint `json:"points,omitempty"`
	// To is where it went, if the container's own rules led it elsewhere than it was sent.
	To netip.AddrPort `json:"to,omitzero"`
	// Answer is "open" (TCP: somebody listens), "refused" (nobody does), "echo", "datagram", "unreachable" (somebody
	// says so), or empty: nothing came back.
	Answer       string   `json:"answer,omitempty"`
	Milliseconds float64  `json:"milliseconds,omitempty"` // until the answer
	Notes        []string `json:"notes,omitempty"`
}

// TracePoint is a place where packets were looked for. A packet that was seen further on was here.
type TracePoint struct {
	Host      string `json:"host"`
	Container string `json:"container,omitempty"` // inside its sandbox; empty: where what goes to other hosts leaves and enters the host
	Encap     string `json:"encap,omitempty"`     // how it is wrapped there; empty: in VXLAN, or not at all inside a sandbox
	Place     string `json:"place"`               // the interface
	Back      bool   `json:"back,omitempty"`
	Seen      bool   `json:"seen"`
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
	// Plain says that it carries it to the other host in WireGuard without VXLAN.
	Plain bool `json:"plain,omitempty"`
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

// dryTrace is a trace for who may look and not touch.
func dryTrace[T any](trace func(context.Context, TraceRequest) (T, error)) func(context.Context, TraceRequest) (T, error) {
	if trace == nil {
		return nil
	}
	return func(ctx context.Context, r TraceRequest) (T, error) {
		r.Dry = true
		return trace(ctx, r)
	}
}

var _ = resource(Handlers.addTrace, func(h Handlers, to *Handlers) { to.Trace = dryTrace(h.Trace) })

func (h Handlers) addTrace(mux *routes) { post(mux, "/v1/trace", h.Trace) }
