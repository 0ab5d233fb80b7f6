package api

import (
	"context"
	"net/http"
	"time"
)

// MirrorRequest has all packets of a container copied to another one of its host.
type MirrorRequest struct {
	Container string `json:"container"` // as CaptureRequest has it
	To        string `json:"to"`
	// Seconds is for how long; 0: ten minutes.
	Seconds float64 `json:"seconds,omitempty"`
}

// StopMirrorRequest ends mirrors of a container, or All.
type StopMirrorRequest struct {
	Container string `json:"container,omitempty"`
	All       bool   `json:"all,omitempty"`
}

// Mirror is one that runs on this host.
type Mirror struct {
	Container string    `json:"container"`
	To        string    `json:"to"`
	Interface string    `json:"interface"` // inside To
	Since     time.Time `json:"since"`
	Until     time.Time `json:"until"`
	Packets   uint64    `json:"packets"`
	// Lost are packets that were not copied: they came faster than that.
	Lost uint64 `json:"lost"`
}

// MirrorCalls are what an agent is asked and told about mirrors.
type MirrorCalls struct{ agent *Client }

// Mirrors are the calls about mirrors.
func (c *Client) Mirrors() MirrorCalls { return MirrorCalls{c} }

// List lists the mirrors of the host that is asked.
func (c MirrorCalls) List(ctx context.Context) ([]Mirror, error) {
	return call[[]Mirror](ctx, c.agent, http.MethodGet, "mirrors", nil)
}

// Start begins one.
func (c MirrorCalls) Start(ctx context.Context, r MirrorRequest) (Done, error) {
	return call[Done](ctx, c.agent, http.MethodPost, "mirrors/start", r)
}

// Stop ends some.
func (c MirrorCalls) Stop(ctx context.Context, r StopMirrorRequest) (Done, error) {
	return call[Done](ctx, c.agent, http.MethodPost, "mirrors/stop", r)
}

var _ = resource(Handlers.addMirror, func(h Handlers, to *Handlers) { to.Mirrors = h.Mirrors })

func (h Handlers) addMirror(mux *routes) {
	get(mux, "/v1/mirrors", h.Mirrors)
	post(mux, "/v1/mirrors/start", h.StartMirror)
	post(mux, "/v1/mirrors/stop", h.StopMirror)
}
