package api

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
)

// Endpoint is a container's place in a network.
type Endpoint struct {
	ID        string       `json:"id"`
	Network   string       `json:"network"`
	Name      string       `json:"name"`      // container's name, empty until learnt
	Container string       `json:"container"` // container's ID, empty until learnt
	Addrs     []netip.Addr `json:"addrs"`
	LinkLocal []netip.Addr `json:"link_local,omitempty"` // those of --link-local-ip
	MAC       string       `json:"mac"`
	Host      string       `json:"host"` // name of the host
	Here      bool         `json:"here"` // on the host that is asked
	// Paused says that its container is paused, as far as its host's agent says so: its kernel answers, and no program in it runs.
	Paused bool `json:"paused,omitempty"`
	// Egress and Ingress limit what it sends and gets, as in 10mbit; empty: nothing does.
	Egress  string `json:"egress,omitempty"`
	Ingress string `json:"ingress,omitempty"`
	// Each packet that it sends is later by Delay (50ms), more or less by Jitter at random, and of them Loss (1%) are lost.
	Delay  string `json:"delay,omitempty"`
	Jitter string `json:"jitter,omitempty"`
	Loss   string `json:"loss,omitempty"`
	// Ports are those published for it, as far as they are of the host that is asked.
	Ports []Port `json:"ports,omitempty"`
	// Aliases are the names that it answers to beside its own.
	Aliases []string `json:"aliases,omitempty"`
	// Shared are the names of this endpoint that containers of other hosts answer to as well.
	Shared []string `json:"shared,omitempty"`
}

// Port is a published port.
type Port struct {
	Proto string `json:"proto"` // "tcp", "udp" or "sctp"
	// Host is what is connected to; of the unspecified address, any of the host's.
	Host      netip.AddrPort `json:"host"`
	Container uint16         `json:"container"`
	// More ports behind the two lead there as well.
	More uint16 `json:"more,omitempty"`
}

// String is the port as `docker ps` shows it: "0.0.0.0:8080->80/tcp", or
// "0.0.0.0:8080-8089->80-89/tcp".
func (p Port) String() string {
	if p.More == 0 {
		return fmt.Sprintf("%s->%d/%s", p.Host, p.Container, p.Proto)
	}
	return fmt.Sprintf("%s-%d->%d-%d/%s", p.Host, p.Host.Port()+p.More, p.Container, p.Container+p.More, p.Proto)
}

// Endpoints lists the containers' places in networks.
func (c *Client) Endpoints(ctx context.Context) ([]Endpoint, error) {
	return call[[]Endpoint](ctx, c, http.MethodGet, "endpoints", nil)
}

var _ = resource(Handlers.addEndpoints, func(h Handlers, to *Handlers) { to.Endpoints = h.Endpoints })

func (h Handlers) addEndpoints(mux *routes) {
	get(mux, "/v1/endpoints", h.Endpoints)
}
