package api

import (
	"context"
	"net/http"
	"net/netip"
)

// Egress is an address from which all that networks send to the outside leaves, by one of several hosts.
type Egress struct {
	Name     string   `json:"name"`
	Networks []string `json:"networks"`
	// Labels are what it asks for of containers' labels: others of its networks do not leave by it. None: all do.
	Labels []string `json:"labels,omitempty"`
	// Containers are those that leave by it, if it asks for labels.
	Containers []EgressContainer `json:"containers,omitempty"`
	Addrs      []netip.Addr      `json:"addrs"`
	Gateways   []EgressGateway   `json:"gateways"` // in the order in which they take it
	Quorum     bool              `json:"quorum,omitempty"`
	// Holder is the name of the host that holds it; "": nobody does, and nothing of its networks leaves.
	Holder string `json:"holder,omitempty"`
	Author string `json:"author"` // the host where it was made
	// Notes say what somebody should know of it.
	Notes []string `json:"notes,omitempty"`
}

// EgressContainer is a container that leaves by an egress that asks for labels.
type EgressContainer struct {
	Name    string `json:"name"`
	Network string `json:"network"`
	Host    string `json:"host"`
	// Also are other egresses that ask for its labels, and come after this one.
	Also []string `json:"also,omitempty"`
}

// EgressGateway is a host that may hold an egress address.
type EgressGateway struct {
	Host  string `json:"host"`
	Known bool   `json:"known"` // there is such a host
	Alive bool   `json:"alive"` // it answers
}

// CreateEgressRequest makes an egress. Without Gateways all hosts are.
type CreateEgressRequest struct {
	Name      string   `json:"name"`
	Networks  []string `json:"networks"`
	Labels    []string `json:"labels,omitempty"` // of containers, one requirement each, as role=mail; none: all containers
	Addresses []string `json:"addresses"`        // one, or one of each family
	Gateways  []string `json:"gateways,omitempty"`
	Quorum    bool     `json:"quorum,omitempty"`
}

// SetEgressRequest changes an egress. What is empty stays as it is.
type SetEgressRequest struct {
	Name        string   `json:"name"`
	Networks    []string `json:"networks,omitempty"`
	Labels      []string `json:"labels,omitempty"`
	Addresses   []string `json:"addresses,omitempty"`
	Gateways    []string `json:"gateways,omitempty"`
	AllGateways bool     `json:"allGateways,omitempty"` // instead of Gateways: all hosts
	Quorum      *bool    `json:"quorum,omitempty"`
}

// RemoveEgressRequest names an egress.
type RemoveEgressRequest struct {
	Name string `json:"name"`
}

// EgressCalls are what an agent is asked and told about egresses.
type EgressCalls struct{ agent *Client }

// Egresses are the calls about egresses.
func (c *Client) Egresses() EgressCalls { return EgressCalls{c} }

// List lists the egresses of the cluster.
func (c EgressCalls) List(ctx context.Context) ([]Egress, error) {
	return call[[]Egress](ctx, c.agent, http.MethodGet, "egresses", nil)
}

// Create makes an egress.
func (c EgressCalls) Create(ctx context.Context, r CreateEgressRequest) (Done, error) {
	return call[Done](ctx, c.agent, http.MethodPost, "egresses/create", r)
}

// Set changes an egress.
func (c EgressCalls) Set(ctx context.Context, r SetEgressRequest) (Done, error) {
	return call[Done](ctx, c.agent, http.MethodPost, "egresses/set", r)
}

// Remove removes an egress.
func (c EgressCalls) Remove(ctx context.Context, r RemoveEgressRequest) (Done, error) {
	return call[Done](ctx, c.agent, http.MethodPost, "egresses/remove", r)
}

var _ = resource(Handlers.addEgress, func(h Handlers, to *Handlers) { to.Egresses = h.Egresses })

func (h Handlers) addEgress(mux *routes) {
	get(mux, "/v1/egresses", h.Egresses)
	post(mux, "/v1/egresses/create", h.NewEgress)
	post(mux, "/v1/egresses/set", h.SetEgress)
	post(mux, "/v1/egresses/remove", h.DropEgress)
}
