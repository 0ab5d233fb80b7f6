package api

import (
	"context"
	"net/http"
	"net/netip"
)

// Network is a network of the cluster.
type Network struct {
	Name      string   `json:"name"`
	VNID      uint32   `json:"vnid"`
	Subnets   []Subnet `json:"subnets"`
	Hosts     []string `json:"hosts"` // names of the hosts with containers on it
	Endpoints int      `json:"endpoints"`
	Internal  bool     `json:"internal"`
	Encrypted bool     `json:"encrypted,omitempty"` // between hosts, or not sent and not taken
	// Encryption is by what this host encrypts what of it goes to other hosts, and since when, or why not; empty: it goes in the clear.
	Encryption string `json:"encryption,omitempty"`
	MTU        int    `json:"mtu,omitempty"` // of its containers, 0: from the underlay
	Removed    bool   `json:"removed"`       // goes when no host uses it any more
	Here       bool   `json:"here"`          // this host's Docker has it, as the cluster does
	// With are the networks that it is one with (`grapevine network join`). Global: it reaches all, and they reach it
	// (`grapevine network global`), whatever its VNID.
	With   []string `json:"with,omitempty"`
	Global bool     `json:"global,omitempty"`
	// Notes say which hosts cannot take its subnets, and why.
	Notes []string `json:"notes,omitempty"`
}

// Subnet is a prefix of a network.
type Subnet struct {
	Prefix  netip.Prefix `json:"prefix"`
	Gateway netip.Addr   `json:"gateway"`
}

// Networks lists the networks of the cluster.
func (c *Client) Networks(ctx context.Context) ([]Network, error) {
	return call[[]Network](ctx, c, http.MethodGet, "networks", nil)
}

// What can be done with networks.
const (
	RealmJoin    = "join"    // they become one with each other, and with what one of them was one with
	RealmIsolate = "isolate" // each is by itself
	RealmGlobal  = "global"  // each reaches all networks, and they reach it
)

// RealmRequest says which networks are one from now on.
type RealmRequest struct {
	Do       string   `json:"do"`
	Networks []string `json:"networks"`
}

// ChangeRealm says which networks are one.
func (c *Client) ChangeRealm(ctx context.Context, r RealmRequest) (Done, error) {
	return call[Done](ctx, c, http.MethodPost, "networks/realm", r)
}

var _ = resource(Handlers.addNetworks, func(h Handlers, to *Handlers) { to.Networks = h.Networks })

func (h Handlers) addNetworks(mux *routes) {
	get(mux, "/v1/networks", h.Networks)
	post(mux, "/v1/networks/realm", h.Realm)
}
