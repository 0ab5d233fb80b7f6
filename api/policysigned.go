package api

import (
	"context"
	"net/http"
)

// SignedPolicy is a policy that an operator signs: what the signature is over (package policy/sign), and it.
type SignedPolicy struct {
	Scope   string `json:"scope"`
	Network string `json:"network,omitempty"`
	Name    string `json:"name"`
	Key     string `json:"key"` // ssh-ed25519 AAAA...
	Serial  uint64 `json:"serial"`
	Text    string `json:"text,omitempty"` // YAML; empty: it is deleted
	// Over are those over which it was made.
	Over      []SignedEdit `json:"over,omitempty"`
	Signature []byte       `json:"signature,omitempty"`
}

// SignedEdit names what was signed before, by its serial and the beginning of its text's SHA-256.
type SignedEdit struct {
	Serial uint64 `json:"serial"`
	Sum    []byte `json:"sum"`
}

// SigningRequest asks for what somebody has to know who is to sign policies: their names are SCOPE/NETWORK/NAME.
type SigningRequest struct {
	Policies []string `json:"policies"`
	Key      string   `json:"key"` // whose signatures are wanted besides those of the keys that the host goes by
}

// Signing is what was signed under these names. The signatures are there to be checked.
type Signing struct {
	Keys     []string       `json:"keys"` // that the host goes by; none: it enforces policies whoever wrote them
	Policies []SignedPolicy `json:"policies"`
}

// SignedRequest has signed policies: all of them are written, or none.
type SignedRequest struct {
	Policies []SignedPolicy `json:"policies"`
}

// Signing asks for what somebody has to know who is to sign policies.
func (c PolicyCalls) Signing(ctx context.Context, r SigningRequest) (Signing, error) {
	return call[Signing](ctx, c.agent, http.MethodPost, "policies/signing", r)
}

// ApplySigned writes policies that were signed.
func (c PolicyCalls) ApplySigned(ctx context.Context, r SignedRequest) (Done, error) {
	return call[Done](ctx, c.agent, http.MethodPost, "policies/signed", r)
}

var _ = resource(Handlers.addPolicySigned, root)

func (h Handlers) addPolicySigned(mux *routes) {
	post(mux, "/v1/policies/signing", h.Signing)
	post(mux, "/v1/policies/signed", h.ApplySigned)
}
