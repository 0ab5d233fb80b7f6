package api

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// PolicyLog is what a host has logged of late of what policies say of connections.
type PolicyLog struct {
	Wanted bool `json:"wanted"` // a policy wants that something is logged
	// Last is the number of the last line, and Lost how many connections and packets were not judged since the agent started:
	// there were too many.
	Last uint64 `json:"last"`
	Lost uint64 `json:"lost"`
	// Error says why nothing is logged.
	Error       string             `json:"error,omitempty"`
	Connections []LoggedConnection `json:"connections"`
}

// LoggedConnection is a connection that began, and what policies say of it.
type LoggedConnection struct {
	Number  uint64     `json:"number"`
	Time    time.Time  `json:"time"`
	From    TrafficEnd `json:"from"`
	To      TrafficEnd `json:"to"`
	Proto   string     `json:"proto"`
	Allowed bool       `json:"allowed"`
	// Tried says that it passed, and that the rules would have denied it: their policies are only tried.
	Tried bool `json:"tried,omitempty"`
	// Rules are those that decided, and Unknown what was not known and had a part in it.
	Rules   []PolicyRule `json:"rules"`
	Unknown []string     `json:"unknown,omitempty"`
}

// RuleNames are the rules in a line.
func (c LoggedConnection) RuleNames() string {
	var names []string
	for _, r := range c.Rules {
		names = append(names, r.Rule+" ("+r.Action+")")
	}
	return strings.Join(names, ", ")
}

// Log returns what the agent's host has logged after the line of a number; 0: all that it still has.
func (c PolicyCalls) Log(ctx context.Context, number uint64) (PolicyLog, error) {
	return call[PolicyLog](ctx, c.agent, http.MethodGet, "policies/log?"+url.Values{"since": {strconv.FormatUint(number, 10)}}.Encode(), nil)
}

var _ = resource(Handlers.addPolicyLog, func(h Handlers, to *Handlers) { to.PolicyLog = h.PolicyLog })

func (h Handlers) addPolicyLog(mux *routes) {
	mux.handle("GET /v1/policies/log", func(w http.ResponseWriter, r *http.Request) {
		if h.PolicyLog == nil {
			mux.none(w, r)
			return
		}
		since, _ := strconv.ParseUint(r.URL.Query().Get("since"), 10, 64) // else all
		value, err := h.PolicyLog(r.Context(), since)
		reply(w, value, err)
	})
}
