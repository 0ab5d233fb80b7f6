package cluster

import (
	"errors"
	"fmt"
	"net/netip"
)

// Listen says which multicast groups a container is a member of, on a network that carries multicast. An agent that does
// not know this record sends nothing to groups, and its containers are members of none.
type Listen struct {
	Endpoint string `cbor:"1,keyasint,omitempty"` // Endpoint.ID
	Host     NodeID `cbor:"2,keyasint,omitempty"`
	// Groups are in order. They are at most MaxGroups; the body has room for more, of hosts to come.
	Groups []netip.Addr `cbor:"3,keyasint,omitempty"`
}

// MaxGroups is how many groups of one container on one network are told, and MaxHostGroups of all containers of a host.
const (
	MaxGroups     = 64
	MaxHostGroups = 1024
)

// Key names the record of an endpoint's groups.
func (l Listen) Key() Key { return Key{KindListen, l.Endpoint + "/" + string(l.Host)} }

func (l Listen) speaker() NodeID { return l.Host }

func (l Listen) validate() error {
	err := errors.Join(name("endpoint", l.Endpoint), host("host", l.Host))
	for _, g := range l.Groups {
		if !g.IsMulticast() || g.Is4In6() || g.Zone() != "" {
			err = errors.Join(err, fmt.Errorf("%s is no multicast group", g))
		}
	}
	return err
}

// MulticastOption is the option (-o) of a network that carries multicast and broadcast.
const MulticastOption = "multicast"

// Multicast reports whether a network carries multicast and broadcast. VNID 0 reaches all networks, and so never does.
func (n Network) Multicast() bool { return n.Options[MulticastOption] == "on" && n.VNID != 0 }
