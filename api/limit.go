package api

import (
	"context"
	"net/http"
)

// LimitRequest changes what a container, or each one of a network, may send and get while it runs.
type LimitRequest struct {
	Container string `json:"container,omitempty"` // as CaptureRequest has it; "": the network's own are meant
	// Network is the one on which; "": on all of the container's.
	Network string `json:"network,omitempty"`
	// Egress and Ingress are rates (10mbit), or "none": no limit of its own. "": that stays. "made": what the network was made with.
	Egress  string `json:"egress,omitempty"`
	Ingress string `json:"ingress,omitempty"`
	// Delay and Jitter are times (50ms), and Loss is a share of packets (1%), of what it sends; or none.
	Delay  string `json:"delay,omitempty"`
	Jitter string `json:"jitter,omitempty"`
	Loss   string `json:"loss,omitempty"`
}

// Limit changes limits of a container of the host that is asked, or of a network on all hosts.
func (c *Client) Limit(ctx context.Context, r LimitRequest) (Done, error) {
	return call[Done](ctx, c, http.MethodPost, "limit", r)
}

var _ = resource(Handlers.addLimit, root)

func (h Handlers) addLimit(mux *routes) {
	post(mux, "/v1/limit", h.Limit)
}
