// Package sign is what an operator signs: policies as they will be written, with what was signed before them. It is done where
// the key is: nothing that a host says of a policy is signed, but how often it was signed, and that is checked.
package sign

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/policy"
	"github.com/grapevine-net/grapevine/policy/k8s"
	"github.com/grapevine-net/grapevine/policy/worlds"
	"github.com/grapevine-net/grapevine/sshkey"
)

// Purpose is the namespace of the signatures, as ssh-keygen calls it.
const Purpose = cluster.SigningPurpose

// Read reads policies as they are to be signed, in YAML.
func Read(text string) (list []api.SignedPolicy, err error) {
	all, err := k8s.Parse([]byte(text))
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if p.Try {
			return nil, fmt.Errorf("%s %s is only tried, and denies nothing: apply it without a key", p.Kind, p.Key)
		}
		one := named(p.Key)
		one.Text = string(k8s.Format(p))
		if slices.ContainsFunc(list, func(o api.SignedPolicy) bool { return ID(o) == ID(one) }) {
			return nil, fmt.Errorf("%s %s is in it twice", p.Kind, p.Key)
		}
		list = append(list, one)
	}
	return list, nil
}

// Deletion is that of a policy, as it is to be signed.
func Deletion(kind, network, name string) (api.SignedPolicy, error) {
	k, err := k8s.KindOf(kind)
	if err != nil {
		return api.SignedPolicy{}, err
	}
	switch key := (policy.Key{Kind: k, Network: network, Name: name}); {
	case k != policy.ClusterNetworkPolicy && network == "":
		return api.SignedPolicy{}, fmt.Errorf("a policy of this kind is named NETWORK/NAME: %.80q has no network", name)
	case k == policy.ClusterNetworkPolicy && network != "":
		return api.SignedPolicy{}, fmt.Errorf("a ClusterNetworkPolicy is of no network: name it %.80q", name)
	default:
		return named(key), nil
	}
}

func named(k policy.Key) api.SignedPolicy {
	rec := worlds.RecordOf(k)
	return api.SignedPolicy{Scope: rec.Scope, Network: rec.Network, Name: rec.Name}
}

// ID names a policy, as api.SigningRequest does.
func ID(p api.SignedPolicy) string { return like(p).Policy().Key().ID }

// incredible is a serial that nobody gets to by counting. A host that is somebody else's could say it, so that none is left.
const incredible = 1 << 40

// Next is the policy with its key, and with the serial behind all that is known to be signed: by the key, and by those that the host goes by.
func Next(p api.SignedPolicy, key sshkey.Key, known api.Signing) (api.SignedPolicy, error) {
	var last cluster.SignedPolicy
	for _, one := range known.Policies {
		rec, err := Record(one)
		if err != nil || ID(one) != ID(p) || cluster.Validate(rec) != nil {
			return p, fmt.Errorf("the host says that %s was signed, and it was not: ask another host, and look after this one", ID(one))
		}
		own := bytes.Equal(rec.Signer, key[:])
		if !own && !slices.Contains(known.Keys, one.Key) {
			continue
		}
		if !own && rec.Serial >= incredible {
			return p, fmt.Errorf("%s is signed with %s, and has the serial %d: nobody gets there by counting; take this key out of GRAPEVINE_POLICY_KEYS on all hosts", ID(one), sshkey.Fingerprint(sshkey.Key(rec.Signer)), rec.Serial)
		}
		if rec.Serial > last.Serial || rec.Serial == last.Serial && rec.Text > last.Text {
			last = rec
		}
	}
	p.Key, p.Serial, p.Over = sshkey.Line(key), last.Serial+1, nil
	if last.Serial > 0 {
		for _, e := range last.Before() {
			p.Over = append(p.Over, api.SignedEdit{Serial: e.Serial, Sum: e.Sum})
		}
	}
	return p, nil
}

// Message is what is signed.
func Message(p api.SignedPolicy) []byte { return like(p).Message() }

// Signed is the policy with a signature, if it is that of its key.
func Signed(p api.SignedPolicy, signature []byte) (api.SignedPolicy, error) {
	p.Signature = signature
	rec, err := Record(p)
	if err == nil {
		err = cluster.Validate(rec)
	}
	return p, err
}

// Record is the record of a signed policy. Whether the signature is right cluster.Validate says.
func Record(p api.SignedPolicy) (cluster.SignedPolicy, error) {
	key, err := sshkey.Parse(p.Key)
	if err != nil {
		return cluster.SignedPolicy{}, fmt.Errorf("its key: %w", err)
	}
	if sshkey.Line(key) != p.Key {
		return cluster.SignedPolicy{}, errors.New("its key has more on its line")
	}
	rec := like(p)
	rec.Signer = key[:]
	return rec, nil
}

func like(p api.SignedPolicy) cluster.SignedPolicy {
	rec := cluster.SignedPolicy{Scope: p.Scope, Network: p.Network, Name: p.Name, Serial: p.Serial, Text: p.Text, Signature: p.Signature}
	for _, e := range p.Over {
		rec.Over = append(rec.Over, cluster.SignedEdit{Serial: e.Serial, Sum: e.Sum})
	}
	return rec
}

// Of is what a record says.
func Of(rec cluster.SignedPolicy) api.SignedPolicy {
	p := api.SignedPolicy{Scope: rec.Scope, Network: rec.Network, Name: rec.Name, Key: sshkey.Line(sshkey.Key(rec.Signer)), Serial: rec.Serial, Text: rec.Text, Signature: rec.Signature}
	for _, e := range rec.Over {
		p.Over = append(p.Over, api.SignedEdit{Serial: e.Serial, Sum: e.Sum})
	}
	return p
}
