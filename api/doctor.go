package api

import (
	"context"
	"net/http"
)

// Diagnosis is what `grapevine doctor` found: what is wrong comes first.
type Diagnosis struct {
	Version string  `json:"version"`
	Name    string  `json:"name"`  // of the host that was asked
	Agent   bool    `json:"agent"` // it runs: the other hosts have been asked too
	Checks  []Check `json:"checks"`
}

// Verdict is what came of a check.
type Verdict string

// The verdicts. Unknown: it could not be found out, and What says why.
const (
	OK      Verdict = "ok"
	Wrong   Verdict = "wrong"
	Unknown Verdict = "unknown"
)

// Check is one thing that was looked at.
type Check struct {
	Subject string  `json:"check"` // "encap", "firewall", ...
	Verdict Verdict `json:"verdict"`
	// Code is that of the problem, if status names it as well.
	Code Code   `json:"code,omitempty"`
	What string `json:"what"`
	// Do is what to do; with OK it is advice.
	Do string `json:"do,omitempty"`
}

// Doctor looks for what is wrong, which takes seconds where packets are lost.
func (c *Client) Doctor(ctx context.Context) (Diagnosis, error) {
	return call[Diagnosis](ctx, c, http.MethodGet, "doctor", nil)
}

var _ = resource(Handlers.addDoctor, func(h Handlers, to *Handlers) { to.Doctor = h.Doctor })

func (h Handlers) addDoctor(mux *routes) {
	get(mux, "/v1/doctor", h.Doctor)
}
