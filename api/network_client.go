package api

import (
	"context"
	"net/http"
	"net/netip"
	"time"
)

// NetworkClient is a device that comes into a network by WireGuard.
type NetworkClient struct {
	Name    string       `json:"name"`
	Network string       `json:"network"`
	Host    string       `json:"host"` // where it was added, and comes in
	Here    bool         `json:"here"` // that is this host
	Addrs   []netip.Addr `json:"addrs"`
	Key     string       `json:"key"` // its public one
	// Seen is when it was heard last, and At where, if that is known here.
	Seen time.Time      `json:"seen,omitzero"`
	At   netip.AddrPort `json:"at,omitzero"`
	Lost string         `json:"lost,omitempty"` // why it has no network to come into any more
}

// AddClientRequest adds a client. Endpoint is where it finds this host, if not at its own address.
type AddClientRequest struct {
	Name      string `json:"name"`
	Network   string `json:"network"`
	PublicKey string `json:"public_key"`
	Endpoint  string `json:"endpoint,omitempty"`
}

// AddedClient is what the client has to be told.
type AddedClient struct {
	Name     string         `json:"name"`
	Network  string         `json:"network"`
	Addrs    []netip.Prefix `json:"addrs"`
	DNS      []netip.Addr   `json:"dns"`
	MTU      int            `json:"mtu"`
	Key      string         `json:"key"` // the host's public one
	Endpoint string         `json:"endpoint"`
	Allowed  []netip.Prefix `json:"allowed"` // what it reaches by the host
}

// RemoveClientRequest names a client.
type RemoveClientRequest struct {
	Name string `json:"name"`
}

// NetworkClientCalls are what an agent is asked and told about clients.
type NetworkClientCalls struct{ agent *Client }

// NetworkClients are the calls about clients.
func (c *Client) NetworkClients() NetworkClientCalls { return NetworkClientCalls{c} }

// List lists the clients of the cluster.
func (c NetworkClientCalls) List(ctx context.Context) ([]NetworkClient, error) {
	return call[[]NetworkClient](ctx, c.agent, http.MethodGet, "clients", nil)
}

// Add adds a client.
func (c NetworkClientCalls) Add(ctx context.Context, r AddClientRequest) (AddedClient, error) {
	return call[AddedClient](ctx, c.agent, http.MethodPost, "clients/add", r)
}

// Remove removes a client.
func (c NetworkClientCalls) Remove(ctx context.Context, r RemoveClientRequest) (Done, error) {
	return call[Done](ctx, c.agent, http.MethodPost, "clients/remove", r)
}

var _ = resource(Handlers.addClients, func(h Handlers, to *Handlers) { to.Clients = h.Clients })

func (h Handlers) addClients(mux *routes) {
	get(mux, "/v1/clients", h.Clients)
	post(mux, "/v1/clients/add", h.NewClient)
	post(mux, "/v1/clients/remove", h.DropClient)
}
