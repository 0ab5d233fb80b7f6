package cluster

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// The scopes of policies.
const (
	ScopeNetwork = "network" // a NetworkPolicy, of one network
	ScopeCluster = "cluster" // a ClusterNetworkPolicy, of all
)

// EgressPolicyName is the name of the record of a network's EgressNetworkPolicy, of which it has one at most: no policy
// has it, since theirs are in lower case.
const EgressPolicyName = "EgressNetworkPolicy"

// Policy is a network policy as a user wrote it. Any host may write any.
type Policy struct {
	Scope   string `cbor:"1,keyasint,omitempty"` // ScopeNetwork or ScopeCluster; a newer agent may know others
	Network string `cbor:"2,keyasint,omitempty"` // Network.Name, which need not be there; "" if Scope is not ScopeNetwork
	Name    string `cbor:"3,keyasint,omitempty"`
	// Text is the policy in YAML. It is read by whoever enforces it: an agent may meet one that it cannot read.
	Text string `cbor:"4,keyasint,omitempty"`
	// Author is the name of the host where it was applied, for people.
	Author string `cbor:"5,keyasint,omitempty"`
	// Base has the version of what it replaced there, and of what that had replaced, and so on: the newest first,
	// tombstones included, at most MaxBase. Of an edit that is not among them its author did not know.
	Base []Edit `cbor:"6,keyasint,omitempty"`
}

// Key names the record of a policy.
func (p Policy) Key() Key { return Key{KindPolicy, p.Scope + "/" + p.Network + "/" + p.Name} }

func (Policy) speaker() NodeID { return "" }

// MaxPolicyText is what the text of a policy may take, bytes: the rest of a body is for the others.
const MaxPolicyText = maxBody - 1024

func (p Policy) validate() error {
	err := errors.Join(name("scope", p.Scope), optional("network", p.Network), name("name", p.Name), optional("author", p.Author))
	err = errors.Join(err, edits(p.Base))
	switch {
	case strings.Contains(p.Scope+p.Network+p.Name, "/"):
		err = errors.Join(err, errors.New("its scope, its network and its name have no slashes"))
	case len(p.Key().ID) > maxID:
		err = errors.Join(err, fmt.Errorf("its network and its name have %d bytes, at most %d", len(p.Network)+len(p.Name), maxID-len(p.Scope)-2))
	case p.Scope == ScopeNetwork && p.Network == "" || p.Scope == ScopeCluster && p.Network != "":
		err = errors.Join(err, fmt.Errorf("scope %s with network %q", p.Scope, p.Network))
	}
	if len(p.Text) == 0 || len(p.Text) > MaxPolicyText || !utf8.ValidString(p.Text) {
		err = errors.Join(err, fmt.Errorf("its text has %d bytes, at most %d of UTF-8", len(p.Text), MaxPolicyText))
	}
	return err
}

func (p Policy) base() []Edit { return p.Base }

// Over returns the policy as it is to be written over what a snapshot has under its key. lost are edits of it
// that its author knows to be lost.
func (p Policy) Over(s *Snapshot, lost ...Version) Policy {
	p.Base = over(s, p.Key(), lost)
	return p
}
