package api

import (
	"context"
	"net/http"
)

// ForgetRequest names dead hosts (by name or node ID) whose addresses this host
// takes over.
type ForgetRequest struct {
	Hosts []string `json:"hosts"`
}

// Forget takes over what a dead host owns.
func (c *Client) Forget(ctx context.Context, r ForgetRequest) (Done, error) {
	return call[Done](ctx, c, http.MethodPost, "forget", r)
}

var _ = resource(Handlers.addForget, root)

func (h Handlers) addForget(mux *routes) {
	post(mux, "/v1/forget", h.Forget)
}
