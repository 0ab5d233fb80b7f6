// Package probe finds out what packets really pass between this host and another
// one, in both directions: datagrams to the gossip port, which may not be fragmented,
// and frames through the tunnel, from one gateway port to the other by way of both
// switches (pipeline.ProbeEtherType). Calls between the agents say what arrived; a
// probe from a stranger does nothing. Only an echo is answered by a packet: by one of the same size, to
// the host that has opened its session.
//
// # A probe
//
//	"gvprobe1" | session 8 | kind 1 | size 2 | zeros
//
// Size is that of the IP packet in bytes, or, in the tunnel, of what the frame holds:
// the two that an MTU bounds. The session is a random number that the receiving agent
// has been told before; others are not noted.
package probe

import (
	"encoding/binary"
)

// Kind is a way for a probe.
type Kind uint8

// The kinds. The numbers are wire format.
const (
	Gossip Kind = 1 // UDP to the gossip port
	Tunnel Kind = 2 // VXLAN
	// The same two ways, there and back: an echo, and its answer.
	gossipEcho, gossipBack Kind = 3, 4
	tunnelEcho, tunnelBack Kind = 5, 6
)

// way is that of a kind; 0: no kind.
func (k Kind) way() Kind {
	switch k {
	case Gossip, gossipEcho, gossipBack:
		return Gossip
	case Tunnel, tunnelEcho, tunnelBack:
		return Tunnel
	}
	return 0
}

const (
	magic  = "gvprobe1"
	header = len(magic) + 8 + 1 + 2
	// smallest is what every path lets through (RFC 791: 68 bytes, RFC 8200: 1280).
	smallest = 68
	largest  = 65535
)

// encode makes a probe of length bytes.
func encode(session uint64, kind Kind, size, length int) []byte {
	b := make([]byte, 0, max(length, header))
	b = binary.BigEndian.AppendUint64(append(b, magic...), session)
	b = binary.BigEndian.AppendUint16(append(b, byte(kind)), uint16(size))
	return b[:cap(b)]
}

func decode(b []byte) (session uint64, kind Kind, size int, ok bool) {
	if len(b) < header || string(b[:len(magic)]) != magic {
		return 0, 0, 0, false
	}
	b = b[len(magic):]
	return binary.BigEndian.Uint64(b), Kind(b[8]), int(binary.BigEndian.Uint16(b[9:])), true
}
