package api

import (
	"context"
	"net/http"
)

// JoinCommand has the lines that add a host to the cluster. They contain the
// gossip key.
type JoinCommand struct {
	Plugin  string `json:"plugin"`
	Service string `json:"service"`
}

// JoinCommand returns the lines that add a host; they contain the gossip key.
func (c *Client) JoinCommand(ctx context.Context) (JoinCommand, error) {
	return call[JoinCommand](ctx, c, http.MethodGet, "join-command", nil)
}

var _ = resource(Handlers.addJoinCommand, root)

func (h Handlers) addJoinCommand(mux *routes) {
	get(mux, "/v1/join-command", h.JoinCommand)
}
