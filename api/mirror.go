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

// Mirrors lists the mirrors of the host that is asked.
func Mirrors(ctx context.Context, c *Client) ([]Mirror, error) {
	return call[[]Mirror](ctx, c, http.MethodGet, "mirrors", nil)
}

// StartMirror begins one.
func StartMirror(ctx context.Context, c *Client, r MirrorRequest) (Done, error) {
	return call[Done](ctx, c, http.MethodPost, "mirrors/start", r)
}

// StopMirror ends some.
func StopMirror(ctx context.Context, c *Client, r StopMirrorRequest) (Done, error) {
	return call[Done](ctx, c, http.MethodPost, "mirrors/stop", r)
}

var _ = resource(Handlers.addMirror, func(h Handlers, to *Handlers) { to.Mirrors = h.Mirrors })

func (h Handlers) addMirror(mux *routes) {
	get(mux, "/v1/mirrors", h.Mirrors)
	post(mux, "/v1/mirrors/start", h.StartMirror)
	post(mux, "/v1/mirrors/stop", h.StopMirror)
}
