package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// Bare says of a host that it may send containers' packets without headers to neighbours that have heard all of this, and takes such
// packets from them: what the headers say of each packet is here once. A host without the record sends none, and is sent none;
// an agent that does not know it has none.
type Bare struct {
	Host NodeID           `cbor:"1,keyasint,omitempty"`
	MAC  net.HardwareAddr `cbor:"2,keyasint,omitempty"` // from which such packets come, and to which they are sent
	// Stamp is another one whenever MAC or Says is: the others repeat it.
	Stamp uint64     `cbor:"3,keyasint,omitempty"`
	Says  []BareSays `cbor:"4,keyasint,omitempty"`
	// Takes are the hosts whose packets it takes, each by the stamp of what it has heard of them.
	Takes []BareTakes `cbor:"5,keyasint,omitempty"`
}

// BareSays says of which network, by its VNID, the host takes its own containers of a subnet to be.
type BareSays struct {
	Prefix netip.Prefix `cbor:"1,keyasint,omitzero"`
	VNID   uint32       `cbor:"2,keyasint,omitempty"`
}

// BareTakes is what a host has heard of another one.
type BareTakes struct {
	Host  NodeID `cbor:"1,keyasint,omitempty"`
	Stamp uint64 `cbor:"2,keyasint,omitempty"`
}

// MaxBareSays is of how many subnets a host says something, and MaxBareTakes from how many hosts it takes packets. The body has room for more.
const (
	MaxBareSays  = 64
	MaxBareTakes = 64
)

// Key names the record of what a host sends and takes without headers.
func (b Bare) Key() Key { return Key{KindBare, string(b.Host)} }

func (b Bare) speaker() NodeID { return b.Host }

func (b Bare) validate() error {
	err := host("host", b.Host)
	if len(b.MAC) != 6 || b.MAC[0]&1 != 0 || bytes.Equal(b.MAC, make([]byte, 6)) {
		err = errors.Join(err, fmt.Errorf("%s is no MAC address of a host", b.MAC))
	}
	for _, s := range b.Says {
		err = errors.Join(err, block("subnet", s.Prefix))
		if s.VNID == 0 || s.VNID > maxVNID {
			err = errors.Join(err, fmt.Errorf("subnet %s: VNID %d is not from 1 to %d", s.Prefix, s.VNID, maxVNID))
		}
	}
	for _, t := range b.Takes {
		err = errors.Join(err, host("host whose packets it takes", t.Host))
	}
	return err
}
