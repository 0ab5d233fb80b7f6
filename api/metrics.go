package api

import (
	"context"
	"io"
	"net/http"
)

// Metrics writes what Prometheus would read to w.
func (c *Client) Metrics(ctx context.Context, w io.Writer) error {
	return c.stream(ctx, w, "metrics")
}

var _ = resource(Handlers.addMetrics, func(h Handlers, to *Handlers) { to.Metrics = h.Metrics })

func (h Handlers) addMetrics(mux *routes) {
	mux.handle("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if h.Metrics == nil {
			mux.none(w, r)
			return
		}
		h.Metrics.ServeHTTP(w, r)
	})
}
