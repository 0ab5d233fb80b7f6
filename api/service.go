package api

import (
	"context"
	"net/http"
	"net/netip"
)

// Service is a name of a network with addresses of its own, behind which are containers.
type Service struct {
	Network string       `json:"network"`
	Name    string       `json:"name"`
	Addrs   []netip.Addr `json:"addrs"`
	Ports   []string     `json:"ports"` // 80:8080/tcp
	// Select is a name that its replicas have, Labels what they all have.
	Select   string            `json:"select,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Affinity bool              `json:"affinity,omitempty"`
	// Exposed are ports of all hosts that lead to it, as Ports: the hosts' port, and the service's.
	Exposed  []string  `json:"exposed,omitempty"`
	Author   string    `json:"author"` // the host where it was made
	Replicas []Replica `json:"replicas"`
	// Notes say what somebody should know of it.
	Notes []string `json:"notes,omitempty"`
}

// String is the service as commands name it.
func (s Service) String() string { return s.Network + "/" + s.Name }

// Replica is a container behind a service.
type Replica struct {
	Endpoint string       `json:"endpoint"`
	Name     string       `json:"name"`
	Host     string       `json:"host"`
	Addrs    []netip.Addr `json:"addrs"`
	// In: it gets new connections. Else Why says why not.
	In  bool   `json:"in"`
	Why string `json:"why,omitempty"`
}

// CreateServiceRequest makes a service. Without Select and Labels its replicas are those that have its name.
type CreateServiceRequest struct {
	Network  string            `json:"network"`
	Name     string            `json:"name"`
	Ports    []string          `json:"ports"`
	Select   string            `json:"select,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Affinity bool              `json:"affinity,omitempty"`
	// Replace has one that is there be as this says, with its addresses and the ports of hosts that lead to it.
	Replace bool `json:"replace,omitempty"`
}

// RemoveServiceRequest names a service, by NETWORK/NAME, or NAME if one network only has it.
type RemoveServiceRequest struct {
	Name string `json:"name"`
}

// ExposeRequest has all hosts of the cluster lead ports of theirs to a service, or no more (Not; without ports: none).
type ExposeRequest struct {
	Name  string   `json:"name"`
	Ports []string `json:"ports"` // 443, 8443:443, 53/udp: the hosts' port, and the service's if it is another one
	Not   bool     `json:"not,omitempty"`
}

// ServiceCalls are what an agent is asked and told about services.
type ServiceCalls struct{ agent *Client }

// Services are the calls about services.
func (c *Client) Services() ServiceCalls { return ServiceCalls{c} }

// Expose exposes ports of a service, or takes that back.
func (c ServiceCalls) Expose(ctx context.Context, r ExposeRequest) (Done, error) {
	return call[Done](ctx, c.agent, http.MethodPost, "services/expose", r)
}

// List lists the services of the cluster.
func (c ServiceCalls) List(ctx context.Context) ([]Service, error) {
	return call[[]Service](ctx, c.agent, http.MethodGet, "services", nil)
}

// Create makes a service.
func (c ServiceCalls) Create(ctx context.Context, r CreateServiceRequest) (Done, error) {
	return call[Done](ctx, c.agent, http.MethodPost, "services/create", r)
}

// Remove removes a service.
func (c ServiceCalls) Remove(ctx context.Context, r RemoveServiceRequest) (Done, error) {
	return call[Done](ctx, c.agent, http.MethodPost, "services/remove", r)
}

var _ = resource(Handlers.addService, func(h Handlers, to *Handlers) { to.Services = h.Services })

func (h Handlers) addService(mux *routes) {
	get(mux, "/v1/services", h.Services)
	post(mux, "/v1/services/create", h.NewService)
	post(mux, "/v1/services/remove", h.DropService)
	post(mux, "/v1/services/expose", h.Expose)
}
