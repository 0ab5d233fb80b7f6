package api

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Policies are all policies of the cluster.
type Policies struct {
	Policies []Policy `json:"policies"`
	// Notes say which hosts do not enforce them, and why.
	Notes []string `json:"notes,omitempty"`
}

// Policy is a policy as it was applied last.
type Policy struct {
	Kind    string `json:"kind"` // NetworkPolicy, ClusterNetworkPolicy or EgressNetworkPolicy
	Network string `json:"network,omitempty"`
	Name    string `json:"name"`
	Text    string `json:"text"`   // YAML
	Author  string `json:"author"` // the host where it was applied
	Version uint64 `json:"version"`
	// Selects is how many endpoints it is about, and MaySelect how many of unknown labels it may be about.
	Selects   int `json:"selects"`
	MaySelect int `json:"maySelect,omitempty"`
	// Notes say what somebody should know of it: that its network is not there, ...
	Notes []string `json:"notes,omitempty"`
	// Lost are edits in whose place this one is, and of which its author did not know.
	Lost []LostEdit `json:"lost,omitempty"`
}

// LostEdit is an edit of a policy that was lost to one made at the same time. Without a Text it was a deletion.
type LostEdit struct {
	Author  string `json:"author"`
	Version uint64 `json:"version"`
	Text    string `json:"text,omitempty"`
}

// String is the policy as commands name it: NETWORK/NAME, or NAME of one of the cluster.
func (p Policy) String() string {
	if p.Network == "" {
		return p.Name
	}
	return p.Network + "/" + p.Name
}

// ApplyRequest has policies in YAML: all of them are applied, or none.
type ApplyRequest struct {
	Text string `json:"text"`
}

// DeletePolicyRequest names a policy. Kind is as in YAML, in any case, and with short forms.
type DeletePolicyRequest struct {
	Kind    string `json:"kind"`
	Network string `json:"network,omitempty"`
	Name    string `json:"name"`
}

// AllowRequest lets From call To, a container or a Compose service that is there: NAME[:PORT[/PROTOCOL]], or
// NETWORK/NAME[...]. From is as in the label grapevine.from, without a port.
type AllowRequest struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// ExplainRequest asks whether policies let a connection through. From and To are containers (NAME or NETWORK/NAME),
// endpoints' IDs or addresses; To may be a name of DNS as well.
type ExplainRequest struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Proto is tcp, udp, sctp or icmp; empty with Port 0: icmp, an echo request.
	Proto string `json:"proto,omitempty"`
	Port  uint16 `json:"port,omitempty"`
}

// Explanation says whether policies let a connection through, and why. It does not say whether anybody answers.
type Explanation struct {
	From    Peer     `json:"from"`
	To      Peer     `json:"to"`
	What    string   `json:"what"` // 5432/tcp
	Allowed bool     `json:"allowed"`
	Egress  Decision `json:"egress"`
	Ingress Decision `json:"ingress"`
	// Notes say what else keeps it from passing, or lets it pass all the same.
	Notes []string `json:"notes,omitempty"`
}

// Peer is an end of a connection: an endpoint, or an address outside.
type Peer struct {
	Name    string     `json:"name,omitempty"`
	Network string     `json:"network,omitempty"`
	Host    string     `json:"host,omitempty"`
	Addr    netip.Addr `json:"addr"`
}

// Decision is that of one direction.
type Decision struct {
	Allowed bool   `json:"allowed"`
	Why     string `json:"why"`
	// Rules are those that decided: "shop/db ingress[0]".
	Rules []PolicyRule `json:"rules,omitempty"`
	// Passed are Pass rules by which it came there.
	Passed []PolicyRule `json:"passed,omitempty"`
	// Unknown is what is not known, and counts as whatever is denied.
	Unknown []string `json:"unknown,omitempty"`
	// Told are the names that the container was told the address for, by which a rule lets it there.
	Told []ToldName `json:"told,omitempty"`
}

// ToldName is a name that a container asked for. Until Until it may begin connections to the address.
type ToldName struct {
	Name  string    `json:"name"`
	Asked time.Time `json:"asked"`
	Until time.Time `json:"until"`
}

// Trial is what would change if policies were applied.
type Trial struct {
	Changes []TrialChange `json:"changes"`
	Asked   int           `json:"asked"` // connections that were asked for
	Notes   []string      `json:"notes,omitempty"`
	// Seen is what would have become of connections that were seen, on all hosts; an older agent does not say.
	Seen *Replay `json:"seen,omitempty"`
}

// Replay is what would change for connections that were seen: those that are open, and those that have ended of late.
type Replay struct {
	Judged  int            `json:"judged"`         // connections
	Gone    int            `json:"gone,omitempty"` // left out: one of their containers has gone, or is another one now
	Left    int            `json:"left,omitempty"` // left out: there were too many
	Changes []ReplayChange `json:"changes"`
	// Notes say since when which host counts, and what is not in it.
	Notes []string `json:"notes,omitempty"`
}

// ReplayChange are the connections of two ends at one port that would be cut, or (Allowed) that nothing came of and that
// would pass.
type ReplayChange struct {
	From        Peer   `json:"from"`
	To          Peer   `json:"to"`
	What        string `json:"what"` // port 5432/tcp, ping
	Connections int    `json:"connections"`
	Open        int    `json:"open"` // of these
	Allowed     bool   `json:"allowed"`
	// Unless are names by which it would pass: for which name the address was asked is not known.
	Unless []string     `json:"unless,omitempty"`
	Rules  []PolicyRule `json:"rules,omitempty"`
}

// TrialChange is what would pass, or not pass any more, between two ends.
type TrialChange struct {
	From    Peer     `json:"from"`
	To      Peer     `json:"to"`
	What    []string `json:"what"` // port 5432/tcp, other ports, ping
	Allowed bool     `json:"allowed"`
	// Rules are those that would decide so.
	Rules []PolicyRule `json:"rules,omitempty"`
}

// PolicyRule is a rule of a policy, or the policy itself.
type PolicyRule struct {
	Rule    string `json:"rule"`
	Action  string `json:"action"`
	Author  string `json:"author"`
	Version string `json:"version"`
}

// RuleCounts are what the rules of policies let through and denied.
type RuleCounts struct {
	Rules []RuleCount `json:"rules"`
	// Notes say which hosts are not counted, and why.
	Notes []string `json:"notes,omitempty"`
}

// RuleCount is what one rule let through or denied, on one host or several; or, with a Container, what no rule let it
// send or be sent.
type RuleCount struct {
	Rule   string `json:"rule,omitempty"` // shop/db ingress[0]
	Action string `json:"action"`         // Accept or Deny
	// Direction, Network and Container are of what no rule lets through, and Policies are those that isolate it.
	Direction string   `json:"direction,omitempty"`
	Network   string   `json:"network,omitempty"`
	Container string   `json:"container,omitempty"`
	Policies  []string `json:"policies,omitempty"`
	Hosts     int      `json:"hosts"` // that count it
	// Packets and Bytes are of all that went over connections that the rule let begin, both ways, Ethernet headers
	// included; or of what was denied.
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
	// Connections that the rule let begin.
	Connections uint64 `json:"connections"`
}

// Of reports whether a policy, as commands name it, is the rule's, or is one of those that isolate.
func (r RuleCount) Of(policy string) bool {
	return strings.HasPrefix(r.Rule, policy+" ") || slices.Contains(r.Policies, policy)
}

// CountRules says what the rules of policies counted on the agent's host, or on all.
func CountRules(ctx context.Context, c *Client, all bool) (RuleCounts, error) {
	return call[RuleCounts](ctx, c, http.MethodGet, "policies/counts?"+url.Values{"all": {strconv.FormatBool(all)}}.Encode(), nil)
}

// Policies lists the policies of the cluster.
func (c *Client) Policies(ctx context.Context) (Policies, error) {
	return call[Policies](ctx, c, http.MethodGet, "policies", nil)
}

// Apply writes policies.
func (c *Client) Apply(ctx context.Context, r ApplyRequest) (Done, error) {
	return call[Done](ctx, c, http.MethodPost, "policies/apply", r)
}

// Try says what would change if policies were applied.
func (c *Client) Try(ctx context.Context, r ApplyRequest) (Trial, error) {
	return call[Trial](ctx, c, http.MethodPost, "policies/try", r)
}

// Allow writes a policy that allows one thing.
func (c *Client) Allow(ctx context.Context, r AllowRequest) (Done, error) {
	return call[Done](ctx, c, http.MethodPost, "policies/allow", r)
}

// DeletePolicy deletes a policy.
func (c *Client) DeletePolicy(ctx context.Context, r DeletePolicyRequest) (Done, error) {
	return call[Done](ctx, c, http.MethodPost, "policies/delete", r)
}

// Explain says whether policies let a connection through.
func (c *Client) Explain(ctx context.Context, r ExplainRequest) (Explanation, error) {
	return call[Explanation](ctx, c, http.MethodPost, "policies/explain", r)
}

// Learned are policies that let through what was seen, and nothing else.
type Learned struct {
	Text     string   `json:"text"` // YAML, with the notes as comments; no policy if nothing was seen
	Policies int      `json:"policies"`
	Seen     int      `json:"seen"` // connections that they let through
	Notes    []string `json:"notes,omitempty"`
}

// Learn makes policies of what was seen on a network, on all hosts.
func (c *Client) Learn(ctx context.Context, network string) (Learned, error) {
	return call[Learned](ctx, c, http.MethodGet, "policies/learn?"+url.Values{"network": {network}}.Encode(), nil)
}

func (h Handlers) addPolicy(mux *routes) {
	mux.handle("GET /v1/policies/learn", func(w http.ResponseWriter, r *http.Request) {
		if h.Learn == nil {
			mux.none(w, r)
			return
		}
		value, err := h.Learn(r.Context(), r.URL.Query().Get("network"))
		reply(w, value, err)
	})
	mux.handle("GET /v1/policies/counts", func(w http.ResponseWriter, r *http.Request) {
		if h.RuleCounts == nil {
			mux.none(w, r)
			return
		}
		value, err := h.RuleCounts(r.Context(), r.URL.Query().Get("all") == "true")
		reply(w, value, err)
	})
	get(mux, "/v1/policies", h.Policies)
	post(mux, "/v1/policies/apply", h.Apply)
	post(mux, "/v1/policies/try", h.Try)
	post(mux, "/v1/policies/allow", h.Allow)
	post(mux, "/v1/policies/delete", h.DeletePolicy)
	post(mux, "/v1/policies/explain", h.Explain)
}
