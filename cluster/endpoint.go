package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Endpoint is a container's attachment to a network.
type Endpoint struct {
	ID      string       `cbor:"1,keyasint,omitempty"` // Docker's endpoint ID, 64 hexadecimal digits
	Network string       `cbor:"2,keyasint,omitempty"` // Network.Name
	Addrs   []netip.Addr `cbor:"3,keyasint,omitempty"`
	MAC     string       `cbor:"4,keyasint,omitempty"` // aa:bb:cc:dd:ee:ff
	Host    NodeID       `cbor:"5,keyasint,omitempty"`
	// Container, Name and Aliases are learnt from the Docker API, later than the rest.
	Container string   `cbor:"6,keyasint,omitempty"`
	Name      string   `cbor:"7,keyasint,omitempty"`
	Aliases   []string `cbor:"8,keyasint,omitempty"`
	// LinkLocal are the addresses of --link-local-ip, learnt likewise. They mean something
	// on this network only, and nothing keeps two endpoints from having the same.
	LinkLocal []netip.Addr `cbor:"9,keyasint,omitempty"`
	// Outdated says that it is on what its host's Docker has of the network from before that
	// was made anew.
	Outdated bool `cbor:"10,keyasint,omitempty"`
	// More are further aliases. Agents that do not know of them pass them on, but would refuse a
	// record with as many Aliases.
	More []string `cbor:"11,keyasint,omitempty"`
	// Labels are the container's, those that policies may ask for (package driver). They are known if Labelled
	// says so; else its host has not heard them yet, or they are too large for a record, or its agent is an older one.
	Labels   map[string]string `cbor:"12,keyasint,omitempty"`
	Labelled bool              `cbor:"13,keyasint,omitempty"`
	// Besides says how many of the Addrs, the last ones, the container's user has declared besides Docker's.
	// No name has them: whether the container answers by them is its own business.
	Besides int `cbor:"14,keyasint,omitempty"`
	// Limits are its own; what is 0 its network's options say ([Snapshot.Limits]). Their fields are 15, 16, and 22 to 24.
	Limits
	// Awaited says that the container started before Docker told its labels, which may say who may talk to it: until
	// they are known its host lets nothing through, in either direction.
	Awaited bool `cbor:"17,keyasint,omitempty"`
	// Unready says that it is to get no new connections of services (Service): its container is paused, or being stopped, or its
	// HEALTHCHECK does not say that it is healthy.
	Unready bool `cbor:"18,keyasint,omitempty"`
	// Sick says that it is paused, or that its HEALTHCHECK says that it is not healthy, and does not just start or end: of a
	// service whose replicas all are so, status says that something is wrong. Older agents do not say it.
	Sick bool `cbor:"25,keyasint,omitempty"`
	// Paused says that it is paused. Older agents do not say it.
	Paused bool `cbor:"26,keyasint,omitempty"`
	// Client is the public key of WireGuard of the device that it is; of a container it is empty.
	Client []byte `cbor:"19,keyasint,omitempty"`
	// Made is the Network.Made of a client's network: in one that was made anew it is nobody.
	Made string `cbor:"20,keyasint,omitempty"`
	// Exposing says since when its labels ask for ports of all hosts, by what its host had heard then ([Snapshot.Latest]); 0:
	// they do not, or its agent is an older one.
	Exposing uint64 `cbor:"21,keyasint,omitempty"`
}

// Named are the addresses that the endpoint's names have.
func (e Endpoint) Named() []netip.Addr { return e.Addrs[:max(0, len(e.Addrs)-max(0, e.Besides))] }

// Key names the record of an endpoint.
func (e Endpoint) Key() Key { return Key{KindEndpoint, e.ID} }

func (e Endpoint) speaker() NodeID { return e.Host }

func decodeEndpoint(_ Key, raw []byte) (Body, error) {
	var e Endpoint
	err := decoding.Unmarshal(raw, &e)
	e.Host, e.Network = NodeID(intern(string(e.Host))), intern(e.Network)
	return e, err
}

// AllAliases are Aliases and More.
func (e Endpoint) AllAliases() []string { return slices.Concat(e.Aliases, e.More) }

// maxAliases is what the aliases of an endpoint may take together, bytes: its other texts and
// addresses take less than the rest of a body.
const maxAliases = maxBody - 4*1024 - MaxLabelBytes

// WithAliases returns the endpoint with those of the aliases that a record has room for, taken in
// their order, and the others.
func (e Endpoint) WithAliases(all []string) (with Endpoint, left []string) {
	var kept []string
	size := 0
	for _, a := range all {
		const head = 3 // of a text, in CBOR
		if need := len(a) + head; name("alias", a) == nil && size+need <= maxAliases {
			size += need
			kept = append(kept, a)
		} else {
			left = append(left, a)
		}
	}
	first := min(len(kept), maxEntries)
	e.Aliases, e.More = kept[:first:first], kept[first:]
	return e, left
}

func (e Endpoint) validate() error {
	err := errors.Join(
		name("ID", e.ID), name("network", e.Network), host("host", e.Host),
		optional("container", e.Container), optional("name", e.Name), mac(e.MAC), texts("labels", e.Labels), e.validateClient(),
	)
	if len(e.Addrs) > maxAddrs || len(e.LinkLocal) > maxAddrs || len(e.Aliases) > maxEntries {
		return errors.Join(err, fmt.Errorf("%d addresses, %d link-local ones and %d aliases, at most %d, %d and %d",
			len(e.Addrs), len(e.LinkLocal), len(e.Aliases), maxAddrs, maxAddrs, maxEntries))
	}
	if e.Besides < 0 || e.Besides > 0 && e.Besides >= len(e.Addrs) {
		err = errors.Join(err, fmt.Errorf("%d of %d addresses are said to be besides Docker's", e.Besides, len(e.Addrs)))
	}
	for _, a := range e.LinkLocal {
		if !a.IsLinkLocalUnicast() || a.Is4In6() || a.Zone() != "" {
			err = errors.Join(err, fmt.Errorf("%s is no link-local address", a))
		}
	}
	for _, a := range e.Addrs {
		if !a.IsValid() {
			err = errors.Join(err, errors.New("an empty address"))
		}
		err = errors.Join(err, unicast("address", a))
	}
	for _, a := range e.AllAliases() {
		err = errors.Join(err, name("alias", a))
	}
	return err
}

// MaxLabels is how many labels an endpoint may have, and MaxLabelBytes what they may take together in its record.
const (
	MaxLabels     = 64
	MaxLabelBytes = 4 * 1024
)

// LabelsFit reports whether the labels of a container fit into its endpoint's record.
func LabelsFit(labels map[string]string) bool {
	size := 0
	for k, v := range labels {
		const heads = 6 // of two texts, in CBOR
		size += len(k) + len(v) + heads
	}
	return texts("labels", labels) == nil && len(labels) <= MaxLabels && size <= MaxLabelBytes
}

func (e Endpoint) validateClient() error {
	if len(e.Client) != 0 && len(e.Client) != WireGuardKeySize {
		return fmt.Errorf("a client's key of %d bytes, not %d", len(e.Client), WireGuardKeySize)
	}
	return optional("making", e.Made)
}
