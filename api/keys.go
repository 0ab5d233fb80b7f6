package api

import (
	"context"
	"net/http"
)

// Key is a gossip key that some hosts have.
type Key struct {
	ID    string `json:"id"`    // a fingerprint: it does not give the key away
	On    int    `json:"on"`    // hosts that have it
	Using int    `json:"using"` // hosts that encrypt with it
	Hosts int    `json:"hosts"` // all hosts, those that do not answer as well
}

// KeysRequest changes the gossip keys of all hosts. Key is a fingerprint or the
// key itself; empty, with install, a new one is made.
type KeysRequest struct {
	Verb string `json:"verb"` // "install", "use" or "remove"; or KeysWireGuard
	Key  string `json:"key,omitempty"`
}

// KeysWireGuard is the verb that changes the keys of WireGuard of all hosts.
const KeysWireGuard = "wireguard"

// Keys lists the gossip keys of all hosts.
func (c *Client) Keys(ctx context.Context) ([]Key, error) {
	return call[[]Key](ctx, c, http.MethodGet, "keys", nil)
}

// ChangeKeys changes the gossip keys of all hosts.
func (c *Client) ChangeKeys(ctx context.Context, r KeysRequest) (Done, error) {
	return call[Done](ctx, c, http.MethodPost, "keys", r)
}

var _ = resource(Handlers.addKeys, root)

func (h Handlers) addKeys(mux *routes) {
	get(mux, "/v1/keys", h.Keys)
	post(mux, "/v1/keys", h.ChangeKeys)
}
