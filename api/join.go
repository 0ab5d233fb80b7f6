package api

import (
	"context"
	"net/http"
)

// JoinRequest brings a host back that has left.
type JoinRequest struct{}

// Join brings the agent's host back into a cluster, after it has left.
func (c *Client) Join(ctx context.Context) (Done, error) {
	return call[Done](ctx, c, http.MethodPost, "join", JoinRequest{})
}

// join takes no settings yet.
func (h Handlers) join() func(context.Context, JoinRequest) (Done, error) {
	if h.Join == nil {
		return nil
	}
	return func(ctx context.Context, _ JoinRequest) (Done, error) { return h.Join(ctx) }
}

var _ = resource(Handlers.addJoin, root)

func (h Handlers) addJoin(mux *routes) {
	post(mux, "/v1/join", h.join())
}
