package cluster

import "errors"

// EgressHolder says which host holds an egress' addresses, since it took them. Its holder writes it; whoever takes
// them over writes over it, and who reads another host's name in it has lost them.
type EgressHolder struct {
	Egress string `cbor:"1,keyasint,omitempty"` // Egress.Name
	Host   NodeID `cbor:"2,keyasint,omitempty"` // "": nobody
	// MAC is that of the interface where the holder has it: who finds it in use, while the holder is silent, knows
	// whether it is the holder's own.
	MAC string `cbor:"3,keyasint,omitempty"`
}

// Key names the record of a holder.
func (h EgressHolder) Key() Key { return Key{KindEgressHolder, h.Egress} }

func (EgressHolder) speaker() NodeID { return "" }

func (h EgressHolder) validate() error {
	err := errors.Join(name("egress", h.Egress), mac(h.MAC))
	if h.Host != "" {
		err = errors.Join(err, host("holder", h.Host))
	}
	return err
}
