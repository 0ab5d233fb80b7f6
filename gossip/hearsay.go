package gossip

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
)

// Memberlist believes at once whoever says that a host is dead. A host that was cut off takes all others for dead, and says so
// when it is back: for a moment all take each other for dead then, who have heard each other all the while. So a death that somebody
// else tells is taken for a suspicion: who lives denies it, and who is dead is so when the suspicions of whoever hears of it have run
// out, which they do at about the same time. What a host says of itself, as one that leaves does, is not changed.

// Kinds of memberlist's packets.
const (
	suspectPacket  = 3
	deadPacket     = 5
	compoundPacket = 7 // behind it come their number 1, the length 2 of each, and they
)

// soften changes deaths in a packet, which is open, into suspicions, and reports whether there were any.
func soften(plain []byte) bool {
	if len(plain) >= 5 && plain[0] == checkedPacket {
		if crc32.ChecksumIEEE(plain[5:]) != binary.BigEndian.Uint32(plain[1:]) || !softenAll(plain[5:]) {
			return false
		}
		binary.BigEndian.PutUint32(plain[1:], crc32.ChecksumIEEE(plain[5:]))
		return true
	}
	return softenAll(plain)
}

func softenAll(b []byte) (changed bool) {
	if len(b) < 2 || b[0] != compoundPacket {
		return softenOne(b)
	}
	number := int(b[1])
	lengths, rest := b[2:], b[2:]
	if len(lengths) < 2*number {
		return false
	}
	rest = rest[2*number:]
	for i := range number {
		n := int(binary.BigEndian.Uint16(lengths[2*i:]))
		if n > len(rest) {
			break
		}
		if softenOne(rest[:n]) {
			changed = true
		}
		rest = rest[n:]
	}
	return changed
}

// softenOne changes a message that is a death. Both have the same fields.
func softenOne(b []byte) bool {
	if len(b) == 0 || b[0] != deadPacket {
		return false
	}
	host, from := named(b, "Node"), named(b, "From")
	if host == nil || from == nil || bytes.Equal(host, from) {
		return false
	}
	b[0] = suspectPacket
	return true
}

// named is a field of a message, which is the ID of a host (MessagePack: a short text is one byte, and itself).
func named(b []byte, field string) []byte {
	const short, idLen = 0xa0, 2 * len(nodeID{})
	head := append(append([]byte{short | byte(len(field))}, field...), byte(short|idLen))
	at := bytes.Index(b, head)
	if at < 0 || at+len(head)+idLen > len(b) {
		return nil
	}
	return b[at+len(head):][:idLen]
}
