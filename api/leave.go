package api

import (
	"context"
	"net/http"
)

// LeaveRequest takes this host out of the cluster. Force does so even though
// containers are attached: they lose their network.
type LeaveRequest struct {
	Force bool `json:"force"`
}

// Leave takes the agent's host out of the cluster; the agent ends after it.
func (c *Client) Leave(ctx context.Context, r LeaveRequest) (Done, error) {
	return call[Done](ctx, c, http.MethodPost, "leave", r)
}

var _ = resource(Handlers.addLeave, root)

func (h Handlers) addLeave(mux *routes) {
	post(mux, "/v1/leave", h.Leave)
}
