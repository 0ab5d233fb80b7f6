package api

import (
	"context"
	"fmt"
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
	// Signer is the fingerprint of the operator's key with which it was signed, and Serial the number that its signer gave it.
	Signer string `json:"signer,omitempty"`
	Serial uint64 `json:"serial,omitempty"`
	// Mode is ModeTry of a policy that is only tried, and ModeIgnored of one that the agent's host does not enforce, as Notes
	// say; one of the same name may be in force beside it.
	Mode string `json:"mode"`
	// Selects is how many endpoints it is about, and MaySelect how many of unknown labels it may be about.
	Selects   int `json:"selects"`
	MaySelect int `json:"maySelect,omitempty"`
	// Notes say what somebody should know of it: that its network is not there, ...
	Notes []string `json:"notes,omitempty"`
	// Counted is what its rules counted on the agent's host; none: none of them is in force there.
	Counted *PolicyCount `json:"counted,omitempty"`
	// Lost are edits in whose place this one is, and of which its author did not know.
	Lost []LostEdit `json:"lost,omitempty"`
}

// The modes of policies.
const (
	ModeEnforce = "enforce"
	ModeTry     = "try"
	ModeIgnored = "ignored"
)

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
	// Tried is what would be if the policies that are only tried were in force; none: there are none.
	Tried *TriedVerdict `json:"tried,omitempty"`
}

// TriedVerdict is what would be of a connection if policies that are only tried were in force, and which rules would deny it.
type TriedVerdict struct {
	Policies []string     `json:"policies"`
	Allowed  bool         `json:"allowed"`
	Rules    []PolicyRule `json:"rules,omitempty"`
	Unknown  []string     `json:"unknown,omitempty"`
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
	// Counted is what these rules have counted on the container's host.
	Counted []RuleCount `json:"counted,omitempty"`
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
	Rule string `json:"rule,omitempty"` // shop/db ingress[0]
	// Also are equal rules of other policies, which count together with it: Rule has +1 behind it for each.
	Also   []string `json:"also,omitempty"`
	Action string   `json:"action"` // Accept or Deny; WouldDeny of a policy that is only tried
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

// Of reports whether a policy, as commands name it, is the rule's or that of an equal one, or is one of those that isolate.
func (r RuleCount) Of(policy string) bool { return slices.Contains(r.AllPolicies(), policy) }

// AllPolicies are those whose rule it is, or that isolate, each once.
func (r RuleCount) AllPolicies() (list []string) {
	list = slices.Clone(r.Policies)
	for _, rule := range append([]string{r.Rule}, r.Also...) { // some are an option's, or a label's
		name, rest, _ := strings.Cut(rule, " ")
		if (strings.HasPrefix(rest, "ingress") || strings.HasPrefix(rest, "egress")) && !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

// First is the rule itself, of those that count together.
func (r RuleCount) First() string {
	if len(r.Also) == 0 {
		return r.Rule
	}
	return strings.TrimSuffix(r.Rule, fmt.Sprintf(" +%d", len(r.Also)))
}

// Decides reports whether a rule is one of those that decided about a container in a direction (ingress or egress).
func (r RuleCount) Decides(d Decision, about Peer, direction string) bool {
	if r.Action == WouldDeny {
		return false
	}
	if r.Container != "" {
		return !d.Allowed && r.Container == about.Name && r.Network == about.Network && r.Direction == direction
	}
	return slices.ContainsFunc(d.Rules, func(one PolicyRule) bool {
		return one.Rule == r.First() || slices.Contains(r.Also, one.Rule)
	})
}

// PolicyCount is what the rules of a policy let through and denied.
type PolicyCount struct {
	Connections uint64 `json:"connections"` // that they let begin, with
	Packets     uint64 `json:"packets"`     // both ways
	Bytes       uint64 `json:"bytes"`
	// What its rules denied, and what no rule let through to and from containers that it isolates.
	DeniedPackets uint64 `json:"deniedPackets"`
	DeniedBytes   uint64 `json:"deniedBytes"`
	// WouldDeny are connections that it would have denied, while it is only tried.
	WouldDeny uint64 `json:"wouldDeny"`
}

// WouldDeny is the action of a rule of a policy that is only tried.
const WouldDeny = "WouldDeny"

// ByPolicy adds up what rules counted, by policies as commands name them. What several have in common is in each one's.
func (c RuleCounts) ByPolicy() map[string]PolicyCount {
	by := map[string]PolicyCount{}
	for _, r := range c.Rules {
		for _, name := range r.AllPolicies() {
			n := by[name]
			switch r.Action {
			case "Accept":
				n.Connections, n.Packets, n.Bytes = n.Connections+r.Connections, n.Packets+r.Packets, n.Bytes+r.Bytes
			case WouldDeny:
				n.WouldDeny += r.Connections
			default:
				n.DeniedPackets, n.DeniedBytes = n.DeniedPackets+r.Packets, n.DeniedBytes+r.Bytes
			}
			by[name] = n
		}
	}
	return by
}

// PolicyCalls are what an agent is asked and told about policies.
type PolicyCalls struct{ agent *Client }

// Policies are the calls about policies.
func (c *Client) Policies() PolicyCalls { return PolicyCalls{c} }

// Counts says what the rules of policies counted on the agent's host, or on all.
func (c PolicyCalls) Counts(ctx context.Context, all bool) (RuleCounts, error) {
	return call[RuleCounts](ctx, c.agent, http.MethodGet, "policies/counts?"+url.Values{"all": {strconv.FormatBool(all)}}.Encode(), nil)
}

// List lists the policies of the cluster.
func (c PolicyCalls) List(ctx context.Context) (Policies, error) {
	return call[Policies](ctx, c.agent, http.MethodGet, "policies", nil)
}

// Apply writes policies.
func (c PolicyCalls) Apply(ctx context.Context, r ApplyRequest) (Done, error) {
	return call[Done](ctx, c.agent, http.MethodPost, "policies/apply", r)
}

// Try says what would change if policies were applied.
func (c PolicyCalls) Try(ctx context.Context, r ApplyRequest) (Trial, error) {
	return call[Trial](ctx, c.agent, http.MethodPost, "policies/try", r)
}

// Allow writes a policy that allows one thing.
func (c PolicyCalls) Allow(ctx context.Context, r AllowRequest) (Done, error) {
	return call[Done](ctx, c.agent, http.MethodPost, "policies/allow", r)
}

// Delete deletes a policy.
func (c PolicyCalls) Delete(ctx context.Context, r DeletePolicyRequest) (Done, error) {
	return call[Done](ctx, c.agent, http.MethodPost, "policies/delete", r)
}

// Explain says whether policies let a connection through.
func (c PolicyCalls) Explain(ctx context.Context, r ExplainRequest) (Explanation, error) {
	return call[Explanation](ctx, c.agent, http.MethodPost, "policies/explain", r)
}

// Learned are policies that let through what was seen, and nothing else.
type Learned struct {
	Text     string   `json:"text"` // YAML, with the notes as comments; no policy if nothing was seen
	Policies int      `json:"policies"`
	Seen     int      `json:"seen"` // connections that they let through
	Notes    []string `json:"notes,omitempty"`
}

// Learn makes policies of what was seen on a network, on all hosts.
func (c PolicyCalls) Learn(ctx context.Context, network string) (Learned, error) {
	return call[Learned](ctx, c.agent, http.MethodGet, "policies/learn?"+url.Values{"network": {network}}.Encode(), nil)
}

var _ = resource(Handlers.addPolicy, func(h Handlers, to *Handlers) {
	to.Policies, to.RuleCounts, to.Explain, to.Learn = h.Policies, h.RuleCounts, h.Explain, h.Learn
})

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
