package cluster

import "errors"

// Use says that a host has containers, running or stopped, on a network.
type Use struct {
	Network string `cbor:"1,keyasint,omitempty"`
	Host    NodeID `cbor:"2,keyasint,omitempty"`
}

// Key names the record of a host's use of a network.
func (u Use) Key() Key { return Key{KindUse, u.Network + "/" + string(u.Host)} }

func (u Use) speaker() NodeID { return u.Host }

func (u Use) validate() error { return errors.Join(name("network", u.Network), host("host", u.Host)) }
