package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/encap"
)

// Node describes a host.
type Node struct {
	ID   NodeID `cbor:"1,keyasint,omitempty"`
	Name string `cbor:"2,keyasint,omitempty"` // host name, for people
	// VTEP is the underlay address that VXLAN packets to this host are sent to in the clear. A host that encrypts
	// has none: agents that do not know WireGuard send it nothing. See Tunnel.
	VTEP netip.Addr `cbor:"3,keyasint,omitzero"`
	// Gossip is where the host's memberlist answers.
	Gossip netip.AddrPort `cbor:"4,keyasint,omitzero"`
	// VXLANPort is the UDP port of the VTEP; the same in the whole cluster.
	VXLANPort uint16 `cbor:"5,keyasint,omitempty"`
	// MTU of the underlay, bytes.
	MTU int `cbor:"6,keyasint,omitempty"`
	// Agent is the version of the agent's program.
	Agent string `cbor:"7,keyasint,omitempty"`
	// Datapath is "kernel" or "userspace".
	Datapath string `cbor:"8,keyasint,omitempty"`
	// Reaches are what the host reaches by itself, and so what none of its subnets may overlap
	// there (package reach): of much, what matters most.
	Reaches []Reach `cbor:"9,keyasint,omitempty"`
	// Hellos says that the host sends hellos through the tunnel to all others, and how
	// (package diagnose/probe): 0, not at all; 1; 2, sealed.
	Hellos uint8 `cbor:"13,keyasint,omitempty"`
	// CIDR4 and CIDR6 are what the host's settings say that networks get their prefixes from, to be
	// the same on all hosts; CIDR6 is invalid where no setting says it.
	CIDR4 netip.Prefix `cbor:"14,keyasint,omitzero"`
	CIDR6 netip.Prefix `cbor:"15,keyasint,omitzero"`
	// Bind is the host's own address, where what is sent to VTEP and Gossip arrives, if it is another
	// one, as behind NAT. Who reaches it without NAT must not send there in a host's name.
	Bind netip.Addr `cbor:"16,keyasint,omitzero"`
	// Enforces is up to which level the host enforces policies: 0, none; EnforcesV1 to EnforcesV4.
	Enforces uint8 `cbor:"17,keyasint,omitempty"`
	// HelloRun is a random number of this run of the agent: hellos from it and to it are sealed with that, so
	// that those of an earlier one are none.
	HelloRun uint64 `cbor:"18,keyasint,omitempty"`
	// WireGuard is the host's public key, 32 bytes: packets to it are encrypted by that, or not sent. Empty: it does
	// not encrypt. WireGuardAt is where it takes them (UDP).
	WireGuard   []byte         `cbor:"19,keyasint,omitempty"`
	WireGuardAt netip.AddrPort `cbor:"20,keyasint,omitzero"`
	// Realms says that the agent knows which networks are one (Realm). One that does not keeps them apart.
	Realms bool `cbor:"21,keyasint,omitempty"`
	// NetworksKey is the key of a host that encrypts what encrypted networks send, and nothing else: it has a VTEP as
	// well. See SecureKey. KnowsEncrypted says that its agent knows of such networks, whether it can encrypt or not.
	NetworksKey    []byte `cbor:"23,keyasint,omitempty"`
	KnowsEncrypted bool   `cbor:"22,keyasint,omitempty"`
	// Edge says that the host has no Docker, and is not to be given numbers while others are there.
	Edge bool `cbor:"24,keyasint,omitempty"`
	// Turn is where the host is in changing its keys of WireGuard; see KeyTurn.
	Turn KeyTurn `cbor:"25,keyasint,omitzero"`
	// Exposes says that the host's containers answer who comes from outside by another host, by that host (Service.Exposed):
	// its agent knows how, and its switch tracks connections.
	Exposes bool `cbor:"26,keyasint,omitempty"`
	// HoldsIPv6 says that the host's agent can hold an egress' IPv6 address.
	HoldsIPv6 bool `cbor:"27,keyasint,omitempty"`
	// LabelEgress says that the host's agent knows of egresses of some containers (LabelEgress).
	LabelEgress bool `cbor:"28,keyasint,omitempty"`
	// Encap is how what containers send to the host is wrapped, if not in VXLAN (encap.Of). Nothing goes between hosts that
	// do it otherwise. An agent that does not know of this sends VXLAN to VXLANPort, where the host takes none.
	Encap string `cbor:"29,keyasint,omitempty"`
	// IPsec is the host's public key for IPsec (ECDSA, SubjectPublicKeyInfo of RFC 5280): the others' strongSwan knows it by
	// that. Empty: its policies and keys are somebody else's, or it has none.
	IPsec []byte `cbor:"30,keyasint,omitempty"`
	// KeyProof shows that the host has SecureKey's private half (wireguard.Key.Prove, of ID). Empty: an older agent.
	KeyProof []byte `cbor:"33,keyasint,omitempty"`
	// PolicyKeys are of the operators' keys by which the host goes (KeyPrints). Empty: it enforces policies whoever wrote them.
	PolicyKeys []byte `cbor:"34,keyasint,omitempty"`
	// Labels are those of the host's Docker engine (`dockerd --label`), KEY=VALUE, in order: an egress may ask for gateways by them
	// ([EngineLabels]).
	Labels []string `cbor:"35,keyasint,omitempty"`
}

// maxEngineLabels is what a Node's labels may take together, bytes.
const maxEngineLabels = 2048

// EngineLabels returns those of a Docker engine's labels that a Node says: each is KEY=VALUE, and they are in order, each once. What has
// no place is left out.
func EngineLabels(all []string) (list []string) {
	size := 0
	for _, l := range slices.Compact(slices.Sorted(slices.Values(all))) {
		key, _, has := strings.Cut(l, "=")
		if has && key != "" && name("label", l) == nil && size+len(l) <= maxEngineLabels && len(list) < maxEntries {
			size += len(l)
			list = append(list, l)
		}
	}
	return list
}

func engineLabels(list []string) (err error) {
	size := 0
	for _, l := range list {
		size += len(l)
		err = errors.Join(err, name("label", l))
	}
	if len(list) > maxEntries || size > maxEngineLabels {
		err = errors.Join(err, fmt.Errorf("%d labels of %d bytes, at most %d of %d", len(list), size, maxEntries, maxEngineLabels))
	}
	return err
}

// The levels. A host of EnforcesV1 enforces NetworkPolicy and ClusterNetworkPolicy, open connections included; one of
// EnforcesV2 what networks' option isolate and containers' labels say as well; one of EnforcesV3 EgressNetworkPolicy, which
// the others take for one that isolates the network; one of EnforcesV4 what operators have signed.
const (
	EnforcesV1 = 1
	EnforcesV2 = 2
	EnforcesV3 = 3
	EnforcesV4 = 4
)

// Reach is something that a host reaches by itself: a LAN, a route, a network of Docker.
type Reach struct {
	Prefix netip.Prefix `cbor:"1,keyasint,omitzero"`
	// Kind is one of package reach; those that are not known yet count as the host's LANs.
	Kind uint8 `cbor:"2,keyasint,omitempty"`
	// Name says for people by what: an interface, a router, a network's name.
	Name string `cbor:"3,keyasint,omitempty"`
}

// Limits of what a Node says that it reaches: so much fits into one broadcast.
const (
	MaxReaches   = 24
	MaxReachName = 40
)

// Encapsulation is how what containers send to the host is wrapped, VXLAN if that is not known here.
func (n Node) Encapsulation() encap.Kind {
	k, _ := encap.Of(n.Encap)
	return k
}

// Key names the record of a host.
func (n Node) Key() Key { return Key{KindNode, string(n.ID)} }

func (n Node) speaker() NodeID { return n.ID }

func (n Node) validate() error {
	return errors.Join(
		host("ID", n.ID),
		optional("name", n.Name),
		unicast("VTEP", n.VTEP),
		unicast("gossip address", n.Gossip.Addr()),
		unicast("own address", n.Bind),
		mtu(n.MTU),
		optional("agent version", n.Agent),
		optional("datapath", n.Datapath),
		optional("encapsulation", n.Encap),
		reaches(n.Reaches),
		n.validateWireGuard(),
		n.validateIPsec(),
		prints(n.PolicyKeys),
		engineLabels(n.Labels),
	)
}

func reaches(list []Reach) (err error) {
	if len(list) > maxEntries { // more than is written: who writes more is to be understood
		return fmt.Errorf("%d things that the host reaches, at most %d", len(list), maxEntries)
	}
	for _, r := range list {
		err = errors.Join(err, block("prefix that the host reaches", r.Prefix), optional("name of what the host reaches", r.Name))
	}
	return err
}

// maxTurn is more than hosts come to by changing keys: one that means harm cannot have the others' turns overflow.
const maxTurn = 1 << 40

func (n Node) validateWireGuard() error {
	for _, key := range [][]byte{n.WireGuard, n.NetworksKey, n.Turn.Second} {
		if len(key) != 0 && len(key) != WireGuardKeySize {
			return fmt.Errorf("WireGuard key of %d bytes, not %d", len(key), WireGuardKeySize)
		}
	}
	for _, proof := range [][]byte{n.KeyProof, n.Turn.SecondProof} {
		if len(proof) != 0 && len(proof) != keyProofSize {
			return fmt.Errorf("proof of a WireGuard key of %d bytes, not %d", len(proof), keyProofSize)
		}
	}
	if n.Turn.At > maxTurn {
		return fmt.Errorf("turn %d of WireGuard keys, at most %d", n.Turn.At, uint64(maxTurn))
	}
	return errors.Join(unicast("address of WireGuard", n.WireGuardAt.Addr()), unicast("second address of WireGuard", n.Turn.SecondAt.Addr()))
}

// maxIPsec is more than a public key takes that a host gives.
const maxIPsec = 200

func (n Node) validateIPsec() error {
	if len(n.IPsec) > maxIPsec {
		return fmt.Errorf("IPsec key of %d bytes, at most %d", len(n.IPsec), maxIPsec)
	}
	return nil
}
