package cluster

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// ProvisionalPrefix begins the names of networks whose names are not known yet.
const ProvisionalPrefix = "provisional/"

// Network is a network of the cluster: its name is its identity.
type Network struct {
	// Name as Docker knows it on every host. A network whose name is not yet
	// known is provisional and has the name "provisional/" + its Docker ID.
	Name string `cbor:"1,keyasint,omitempty"`
	// VNID isolates the network: 0 is privileged, 1 .. 2^24-1 otherwise.
	VNID uint32 `cbor:"2,keyasint,omitempty"`
	// Options are the driver options (-o) and Labels the labels it was created with.
	Options  map[string]string `cbor:"3,keyasint,omitempty"`
	Labels   map[string]string `cbor:"4,keyasint,omitempty"`
	Internal bool              `cbor:"5,keyasint,omitempty"`
	// MTU of the containers' interfaces in bytes, 0: from the underlay.
	MTU int `cbor:"6,keyasint,omitempty"`
	// Removed is set when a user removed the network somewhere: it goes
	// everywhere as soon as no host has a container on it.
	Removed bool `cbor:"7,keyasint,omitempty"`
	// Made changes each time that a user makes the network anew: a host whose Docker has one
	// from before is to have this one instead. Empty: an older agent made it.
	Made string `cbor:"8,keyasint,omitempty"`
	// Old are subnets from before it was made anew last, which containers had then, or have
	// come to have since: each goes when none has an address of it any more.
	Old []netip.Prefix `cbor:"9,keyasint,omitempty"`
	// Attachable is Docker's word (--attachable), which means nothing here, and is told again.
	Attachable bool `cbor:"10,keyasint,omitempty"`
	// Labelled says that a container on it had a label that says who may talk to whom: so one whose labels are not known
	// may have one. It stays. An older agent that writes the record leaves it out.
	Labelled bool `cbor:"11,keyasint,omitempty"`
}

// IsolateOption is the option (-o) of a network whose members reach only those that are marked open.
const IsolateOption = "isolate"

// Isolated reports whether members reach only those that are marked open. What is not understood isolates.
func (n Network) Isolated() bool {
	v, there := n.Options[IsolateOption]
	return there && v != "false"
}

// Provisional reports whether the network's name is not known yet.
func (n Network) Provisional() bool { return strings.HasPrefix(n.Name, ProvisionalPrefix) }

// Key names the record of a network.
func (n Network) Key() Key { return Key{KindNetwork, n.Name} }

func (Network) speaker() NodeID { return "" }

// TellableName reports why a name can be no network's in the cluster: Docker takes any text, line breaks too.
func TellableName(s string) error { return name("network", s) }

func (n Network) validate() error {
	err := errors.Join(name("name", n.Name), mtu(n.MTU), texts("options", n.Options), texts("labels", n.Labels), optional("making", n.Made))
	if len(n.Old) > maxEntries {
		err = errors.Join(err, fmt.Errorf("%d old subnets, at most %d", len(n.Old), maxEntries))
	}
	for _, p := range n.Old {
		err = errors.Join(err, block("old subnet", p))
	}
	if n.VNID > maxVNID {
		err = errors.Join(err, fmt.Errorf("VNID %d is above %d (24 bits)", n.VNID, maxVNID))
	}
	return err
}

// maxLabels is what the labels of a network may take together, bytes: the rest of a body is
// for the others.
const maxLabels = maxBody / 2

// FitLabels returns those of a network's labels that a record has room for, taken in the order of
// their names, and the names of the others.
func FitLabels(labels map[string]string) (kept map[string]string, left []string) {
	size := 0
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		one := map[string]string{k: labels[k]}
		const heads = 6 // of two texts, in CBOR
		if need := len(k) + len(labels[k]) + heads; texts("labels", one) == nil && len(kept) < maxEntries && size+need <= maxLabels {
			size += need
			if kept == nil {
				kept = map[string]string{}
			}
			kept[k] = labels[k]
		} else {
			left = append(left, k)
		}
	}
	return kept, left
}
