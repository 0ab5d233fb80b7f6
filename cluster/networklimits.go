package cluster

import (
	"errors"
	"fmt"
	"slices"
)

// NetworkLimits is a person's word on what each container of a network may send and get, in place of what the network was made with.
// Any host may write any. Agents that know of none hold to what it was made with.
type NetworkLimits struct {
	Network string `cbor:"1,keyasint,omitempty"` // Network.Name
	// VNID and Made are those of the network that is meant: a later one of the same name has what it is made with.
	VNID uint32 `cbor:"2,keyasint,omitempty"`
	Made string `cbor:"3,keyasint,omitempty"`
	// Options are those of LimitOptions that it is about, as in Network.Options, or NoLimit.
	Options map[string]string `cbor:"4,keyasint,omitempty"`
	Author  string            `cbor:"5,keyasint,omitempty"` // the name of the host where it was said, for people
}

// NoLimit is said of what is not limited, whatever a network was made with.
const NoLimit = "none"

// Key names the record.
func (l NetworkLimits) Key() Key { return Key{KindNetworkLimits, l.Network} }

func (NetworkLimits) speaker() NodeID { return "" }

func (l NetworkLimits) validate() error {
	err := errors.Join(name("network", l.Network), optional("making", l.Made), optional("author", l.Author), texts("options", l.Options))
	if l.VNID > maxVNID {
		err = errors.Join(err, fmt.Errorf("VNID %d is above %d (24 bits)", l.VNID, maxVNID))
	}
	for option, text := range l.Options {
		if !slices.Contains(LimitOptions(), option) {
			err = errors.Join(err, fmt.Errorf("option %.40q is no limit", option))
		} else if text != NoLimit {
			err = errors.Join(err, new(Limits).Set(option, text))
		}
	}
	return err
}

// Applies reports whether it is about this network, and not one of that name from before.
func (l NetworkLimits) Applies(n Network) bool {
	return l.Network == n.Name && l.VNID == n.VNID && l.Made == n.Made && !n.Provisional()
}
