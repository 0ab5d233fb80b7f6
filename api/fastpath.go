package api

import (
	"context"
	"net/http"
)

// FastPathRequest switches this host's fast path.
type FastPathRequest struct {
	Mode string `json:"mode"` // auto, on, off, look or direct
}

// FastPath switches the fast path of the agent's host until the agent's next start.
func (c *Client) FastPath(ctx context.Context, r FastPathRequest) (Done, error) {
	return call[Done](ctx, c, http.MethodPost, "fastpath", r)
}

var _ = resource(Handlers.addFastPath, root)

func (h Handlers) addFastPath(mux *routes) {
	post(mux, "/v1/fastpath", h.FastPath)
}
