package cluster

// Trial is a policy that is only tried: every host counts what it would deny, and none enforces it. It stands beside the
// Policy of the same key that is in force, if there is one. It is a record of its own, since agents before it keep records
// that they cannot read, and a Policy they would enforce.
type Trial struct {
	Scope   string `cbor:"1,keyasint,omitempty"` // this and the others as of a Policy
	Network string `cbor:"2,keyasint,omitempty"`
	Name    string `cbor:"3,keyasint,omitempty"`
	Text    string `cbor:"4,keyasint,omitempty"`
	Author  string `cbor:"5,keyasint,omitempty"`
}

// Policy is what is tried.
func (t Trial) Policy() Policy {
	return Policy{Scope: t.Scope, Network: t.Network, Name: t.Name, Text: t.Text, Author: t.Author}
}

// TrialOf is the trial of a policy.
func TrialOf(p Policy) Trial {
	return Trial{Scope: p.Scope, Network: p.Network, Name: p.Name, Text: p.Text, Author: p.Author}
}

// Key names the record of a trial: as that of the policy in force.
func (t Trial) Key() Key { return Key{KindTrial, t.Policy().Key().ID} }

func (Trial) speaker() NodeID { return "" }

func (t Trial) validate() error { return t.Policy().validate() }
