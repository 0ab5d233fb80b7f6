package cluster

import (
	"encoding/hex"
	"fmt"
	"net/netip"
)

// SecureRange is where hosts that encrypt have their VTEPs, inside WireGuard: a local prefix (RFC 4193) that no
// pool and no underlay has.
var SecureRange = netip.MustParsePrefix("fd67:7261:7065:1::/64")

// WireGuardKeySize is the size of a public key of WireGuard, bytes.
const WireGuardKeySize = 32

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

func (n Node) validateWireGuard() error {
	if len(n.WireGuard) != 0 && len(n.WireGuard) != WireGuardKeySize {
		return fmt.Errorf("WireGuard key of %d bytes, not %d", len(n.WireGuard), WireGuardKeySize)
	}
	return unicast("address of WireGuard", n.WireGuardAt.Addr())
}
