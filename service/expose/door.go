package expose

import "net/netip"

// Door is what a host says of a port that it has.
type Door struct {
	// Endpoint is the one for whose container it is published, at To; empty: for none.
	Endpoint string         `cbor:"1,keyasint,omitempty"`
	To       netip.AddrPort `cbor:"2,keyasint,omitempty"`
	// Refuses says why the host does not answer the port, though a service is exposed by it; empty: it does.
	Refuses string `cbor:"3,keyasint,omitempty"`
}
