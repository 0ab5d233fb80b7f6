package api

import (
	"context"
	"net/http"
	"net/netip"
)

// Node is a host of the cluster.
type Node struct {
	ID       string         `json:"id"`
	Name     string         `json:"name"`
	VTEP     netip.Addr     `json:"vtep"`
	Address  netip.Addr     `json:"address,omitzero"` // in the underlay, if the VTEP is inside WireGuard
	Gossip   netip.AddrPort `json:"gossip"`
	Alive    bool           `json:"alive"`
	Doubtful bool           `json:"doubtful"` // alive, but silent for a moment: it may be dead
	Self     bool           `json:"self"`
	// Path is whether containers' packets pass to and from it: "ok", what is lost, or empty: it is too early to say,
	// or it does not answer.
	Path     string `json:"path,omitempty"`
	Version  string `json:"version"`
	Datapath string `json:"datapath"`
	MTU      int    `json:"mtu"`
	// VXLANPort is the UDP port of its VTEP.
	VXLANPort uint16 `json:"vxlanPort"`
	// Encap is how what goes to it is wrapped; empty: in VXLAN.
	Encap string `json:"encap,omitempty"`
	// CIDR4 and CIDR6 are its settings of these names; of CIDR6 there need be none.
	CIDR4 netip.Prefix `json:"cidr4,omitzero"`
	CIDR6 netip.Prefix `json:"cidr6,omitzero"`
	// Encrypts says that containers' packets to and from it are encrypted, or not sent and not taken.
	Encrypts bool `json:"encrypts,omitempty"`
	// EncryptsNetworks says that those of encrypted networks are.
	EncryptsNetworks bool `json:"encryptsNetworks,omitempty"`
	// Edge says that it has no Docker, and takes no share of any subnet.
	Edge bool `json:"edge,omitempty"`
}

// Underlay is the host's address in the underlay.
func (n Node) Underlay() netip.Addr {
	if n.Address.IsValid() {
		return n.Address
	}
	return n.VTEP
}

// Nodes lists the hosts of the cluster.
func (c *Client) Nodes(ctx context.Context) ([]Node, error) {
	return call[[]Node](ctx, c, http.MethodGet, "nodes", nil)
}

var _ = resource(Handlers.addNodes, func(h Handlers, to *Handlers) { to.Nodes = h.Nodes })

func (h Handlers) addNodes(mux *routes) {
	get(mux, "/v1/nodes", h.Nodes)
}
