package cluster

import (
	"bytes"
	"encoding/hex"
	"net/netip"
)

// SecureRange is where hosts that encrypt have their VTEPs, inside WireGuard: a local prefix (RFC 4193) that no
// pool and no underlay has.
var SecureRange = netip.MustParsePrefix("fd67:7261:7065:1::/64")

// WireGuardKeySize is the size of a public key of WireGuard, bytes.
const WireGuardKeySize = 32

// keyProofSize is that of a proof that a host has the private half of such a key.
const keyProofSize = 64

// SecureVTEP is the VTEP of a host that encrypts. It follows from the host's ID, and that from the key that the
// host signs with: no two hosts have one, and none can take another's. Invalid: that is no host's ID.
func SecureVTEP(id NodeID) netip.Addr {
	raw, err := hex.DecodeString(string(id))
	if err != nil || len(raw) != 8 {
		return netip.Addr{}
	}
	a := SecureRange.Addr().As16()
	copy(a[8:], raw)
	return netip.AddrFrom16(a)
}

// Encrypts says that the host takes and sends nothing of containers in the clear.
func (n Node) Encrypts() bool { return len(n.WireGuard) > 0 }

// Tunnel is where VXLAN packets to the host are sent to: inside WireGuard, if it encrypts.
func (n Node) Tunnel() netip.Addr {
	if n.Encrypts() {
		return SecureVTEP(n.ID)
	}
	return n.VTEP
}

// Address is the host's address in the underlay.
func (n Node) Address() netip.Addr {
	if n.Encrypts() {
		return n.WireGuardAt.Addr()
	}
	return n.VTEP
}

// SecureKey is the host's public key of WireGuard, nil if it has none: of one that encrypts all, or only what encrypted
// networks send.
func (n Node) SecureKey() []byte {
	key := n.WireGuard
	if len(key) == 0 {
		key = n.NetworksKey
	}
	if len(key) != WireGuardKeySize {
		return nil
	}
	return key
}

// KeyTurn is where a host is in changing its keys of WireGuard, which all hosts do together (package overlay/secure). Its
// zero value is that of an agent that does not know how.
type KeyTurn struct {
	At uint64 `cbor:"1,keyasint,omitempty"` // counts the steps
	// Second is the public key of the device that stands in, empty: there is none; SecondAt is where it takes packets (UDP).
	Second   []byte         `cbor:"2,keyasint,omitempty"`
	SecondAt netip.AddrPort `cbor:"3,keyasint,omitzero"`
	// SecondProof is for Second what Node.KeyProof is for SecureKey.
	SecondProof []byte `cbor:"4,keyasint,omitempty"`
}

// Equal reports whether two say the same.
func (t KeyTurn) Equal(o KeyTurn) bool {
	return t.At == o.At && t.SecondAt == o.SecondAt && bytes.Equal(t.Second, o.Second) && bytes.Equal(t.SecondProof, o.SecondProof)
}

// EncryptedOption is the option (-o) of a network that is encrypted, in Docker's spelling for overlay networks.
const EncryptedOption = "encrypted"

// Encrypted reports whether nothing that the network's containers and others send each other is on a wire in the clear,
// or taken from there. As with Docker's overlay, that the option is there says it, whatever its value.
func (n Network) Encrypted() bool {
	_, there := n.Options[EncryptedOption]
	return there
}

// Encrypted reports whether the cluster has a network that is encrypted.
func (s *Snapshot) Encrypted() bool {
	for n := range All[Network](s) {
		if n.Encrypted() {
			return true
		}
	}
	return false
}
