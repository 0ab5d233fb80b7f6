package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Service is a name of a network with addresses of its own, behind which are containers. Any host may write any.
//
// The record is what holds the addresses: no host hands out an address that a service has (package ipam).
type Service struct {
	Network string        `cbor:"1,keyasint,omitempty"` // Network.Name
	Name    string        `cbor:"2,keyasint,omitempty"`
	Addrs   []netip.Addr  `cbor:"3,keyasint,omitempty"` // one for each family that its network has
	Ports   []ServicePort `cbor:"4,keyasint,omitempty"`
	// Select is a name that its replicas have on the network: a container's, an alias, a Compose service. "": those
	// with all of Labels.
	Select string            `cbor:"5,keyasint,omitempty"`
	Labels map[string]string `cbor:"6,keyasint,omitempty"`
	// Affinity has each container stay with one replica.
	Affinity bool `cbor:"7,keyasint,omitempty"`
	// Author is the name of the host where it was made, for people.
	Author string `cbor:"8,keyasint,omitempty"`
	// Exposed are ports of all hosts, which lead to ports of its addresses (Target), also from outside.
	Exposed []ServicePort `cbor:"9,keyasint,omitempty"`
}

// ServicePort leads a port of a service's addresses to one of its replicas.
type ServicePort struct {
	_      struct{} `cbor:",toarray"`
	Proto  string   // tcp or udp; a newer agent may know others
	Port   uint16
	Target uint16
}

// Key names the record of a service.
func (s Service) Key() Key { return Key{KindService, s.Network + "/" + s.Name} }

func (Service) speaker() NodeID { return "" }

// MaxServicePorts is how many ports a service may have.
const MaxServicePorts = 64

func (s Service) validate() error {
	err := errors.Join(name("network", s.Network), name("name", s.Name), optional("name of its replicas", s.Select),
		optional("author", s.Author), texts("labels", s.Labels))
	switch {
	case strings.Contains(s.Network+s.Name, "/"):
		err = errors.Join(err, errors.New("its network and its name have no slashes"))
	case len(s.Key().ID) > maxID:
		err = errors.Join(err, fmt.Errorf("its network and its name have %d bytes, at most %d", len(s.Network)+len(s.Name), maxID-1))
	}
	if s.Select == "" && len(s.Labels) == 0 {
		err = errors.Join(err, errors.New("it does not say which containers its replicas are"))
	}
	if len(s.Addrs) == 0 || len(s.Addrs) > maxAddrs {
		err = errors.Join(err, fmt.Errorf("%d addresses, from 1 to %d", len(s.Addrs), maxAddrs))
	}
	for _, a := range s.Addrs {
		if !a.IsValid() {
			err = errors.Join(err, errors.New("an empty address"))
		}
		err = errors.Join(err, unicast("address", a))
	}
	if len(s.Ports) == 0 || len(s.Ports) > MaxServicePorts {
		err = errors.Join(err, fmt.Errorf("%d ports, from 1 to %d", len(s.Ports), MaxServicePorts))
	}
	if len(s.Exposed) > MaxServicePorts {
		err = errors.Join(err, fmt.Errorf("%d exposed ports, at most %d", len(s.Exposed), MaxServicePorts))
	}
	for _, p := range slices.Concat(s.Ports, s.Exposed) {
		err = errors.Join(err, name("protocol", p.Proto))
		if p.Port == 0 || p.Target == 0 {
			err = errors.Join(err, fmt.Errorf("port %d to %d: a port is from 1 to 65535", p.Port, p.Target))
		}
	}
	return err
}

// ServiceAt returns the service that has an address, and whether there is one.
func (s *Snapshot) ServiceAt(a netip.Addr) (Service, bool) {
	for svc := range All[Service](s) {
		for _, at := range svc.Addrs {
			if at == a {
				return svc, true
			}
		}
	}
	return Service{}, false
}
