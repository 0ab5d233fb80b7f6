package cluster

import "fmt"

// Through says of which hosts a host takes packets by WireGuard without VXLAN, each by a number of all that it is to know for that
// (package overlay/secure). A host without the record takes none; an agent that does not know it has none.
type Through struct {
	Host  NodeID   `cbor:"1,keyasint,omitempty"`
	Takes []uint64 `cbor:"2,keyasint,omitempty"`
}

// MaxThrough is of how many hosts one takes such packets: so much fits into one broadcast. The body has room for more.
const MaxThrough = 100

// Key names the record.
func (t Through) Key() Key { return Key{KindThrough, string(t.Host)} }

func (t Through) speaker() NodeID { return t.Host }

func (t Through) validate() error {
	if err := host("host", t.Host); err != nil {
		return err
	}
	if len(t.Takes) > maxEntries {
		return fmt.Errorf("packets of %d hosts, at most %d", len(t.Takes), maxEntries)
	}
	return nil
}
