package api

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
)

// Ping is what came back from another host, each way once.
type Ping struct {
	Host string     `json:"host"`
	VTEP netip.Addr `json:"vtep"`
	// Error says why the host could not be asked to answer; then there is nothing else.
	Error    string `json:"error,omitempty"`
	Underlay Echo   `json:"underlay"` // UDP between the agents
	Tunnel   Echo   `json:"tunnel"`   // a small packet, the way that containers' packets go
	Full     Echo   `json:"full"`     // the largest that containers send
	// Encrypted says which way what encrypted networks send is lost; "": none is known to be.
	Encrypted string `json:"encrypted,omitempty"`
}

// Echo is a packet there and back.
type Echo struct {
	Bytes        int     `json:"bytes"`
	Milliseconds float64 `json:"milliseconds,omitempty"`
	// Lost says what is known of one that did not come back.
	Lost string `json:"lost,omitempty"`
}

// Ping sends another host, by its name, ID or address, an echo each way.
func (c *Client) Ping(ctx context.Context, host string) (Ping, error) {
	return call[Ping](ctx, c, http.MethodGet, "ping?host="+url.QueryEscape(host), nil)
}

var _ = resource(Handlers.addPing, func(h Handlers, to *Handlers) { to.Ping = h.Ping })

func (h Handlers) addPing(mux *routes) {
	mux.handle("GET /v1/ping", func(w http.ResponseWriter, r *http.Request) {
		if h.Ping == nil {
			mux.none(w, r)
			return
		}
		value, err := h.Ping(r.Context(), r.URL.Query().Get("host"))
		reply(w, value, err)
	})
}
