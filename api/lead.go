package api

import (
	"context"
	"net/http"
	"net/netip"
)

// Kinds of a Lead.
const (
	LeadService   = "service"
	LeadExposed   = "exposed"
	LeadPublished = "published"
)

// Lead says where a connection is led before its packets are on their way: from a service's address, or a port of a
// host, to containers; and with which address it leaves for the outside.
type Lead struct {
	// Kind is "service", "exposed", "published", or empty: it is led nowhere else.
	Kind string `json:"kind,omitempty"`
	// Name is what leads it: "service blue/web".
	Name string `json:"name,omitempty"`
	// From and Addr are the ends that the connection has before it is led, as far as the words of a request that stand
	// for an address say.
	From  string     `json:"from,omitempty"`
	Addr  netip.Addr `json:"addr,omitzero"`
	Port  uint16     `json:"port,omitempty"`
	Proto string     `json:"proto,omitempty"`
	By    string     `json:"by,omitempty"` // the host whose port it is
	// Backs are the containers behind it.
	Backs []LeadBack `json:"backs,omitempty"`
	// Wrong says why it leads nowhere, and Do what to do.
	Wrong  string      `json:"wrong,omitempty"`
	Do     string      `json:"do,omitempty"`
	Notes  []string    `json:"notes,omitempty"`
	Egress *LeadEgress `json:"egress,omitempty"`
	// Sent is a real packet to a service's address; its To is where the container's own rules led it.
	Sent *TracePacket `json:"sent,omitempty"`
}

// LeadBack is a container behind what leads.
type LeadBack struct {
	Name    string     `json:"name"`
	Network string     `json:"network"`
	Host    string     `json:"host"`
	Addr    netip.Addr `json:"addr"`
	Port    uint16     `json:"port,omitempty"`
	// In: new connections are led to it. Else Why says why not.
	In  bool   `json:"in"`
	Why string `json:"why,omitempty"`
}

// LeadEgress is the address with which a network's containers reach the outside.
type LeadEgress struct {
	Name    string     `json:"name"`
	Network string     `json:"network"`
	Addr    netip.Addr `json:"addr,omitzero"`
	Holder  string     `json:"holder,omitempty"` // the host that holds it
	// Wrong says why nothing leaves with it, and Do what to do.
	Wrong string `json:"wrong,omitempty"`
	Do    string `json:"do,omitempty"`
}

// Lead asks where a connection is led.
func (c *Client) Lead(ctx context.Context, r TraceRequest) (Lead, error) {
	return call[Lead](ctx, c, http.MethodPost, "trace/lead", r)
}

var _ = resource(Handlers.addLead, func(h Handlers, to *Handlers) { to.Lead = dryTrace(h.Lead) })

func (h Handlers) addLead(mux *routes) { post(mux, "/v1/trace/lead", h.Lead) }
