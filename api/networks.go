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
	MTU       int      `json:"mtu,omitempty"` // of its containers, 0: from the underlay
	Removed   bool     `json:"removed"`       // goes when no host uses it any more
	Here      bool     `json:"here"`          // this host's Docker has it, as the cluster does
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

func (h Handlers) addNetworks(mux *routes) {
	get(mux, "/v1/networks", h.Networks)
}
