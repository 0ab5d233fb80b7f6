package cluster

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Digest says how much of each writer's writes a host has heard of: all that
// have a Counter up to the given one. "Heard of" means that the host has the
// write, or one that replaced it.
type Digest map[NodeID]uint64

// EncodeDigest returns the wire form: the version byte, then for each writer its
// ID in 8 bytes and its counter as a varint, in the order of the IDs. A thousand
// writers take about 12 kB.
func EncodeDigest(d Digest) []byte { return append([]byte{wireVersion}, packDigest(d)...) }

// DecodeDigest reads what EncodeDigest wrote. Its error is a RefusedError.
func DecodeDigest(b []byte) (Digest, error) {
	switch {
	case len(b) == 0:
		return nil, malformed(errors.New("empty digest"))
	case b[0] > wireVersion:
		return nil, &RefusedError{Reason: ErrVersion, Detail: fmt.Errorf("digest of version %d, this agent knows %d: upgrade it", b[0], wireVersion)}
	case b[0] < wireVersion:
		return nil, malformed(errors.New("digest without version"))
	}
	return unpackDigest(b[1:])
}

func packDigest(d Digest) []byte {
	b := make([]byte, 0, 12*len(d))
	for _, id := range slices.Sorted(maps.Keys(d)) {
		b, _ = hex.AppendDecode(b, []byte(id))
		b = binary.AppendUvarint(b, d[id])
	}
	return b
}

// unpackDigest accepts exactly what packDigest writes, so that there is one form.
func unpackDigest(b []byte) (Digest, error) {
	d := Digest{}
	last := NodeID("")
	for len(b) > 0 {
		if len(b) < 9 || len(d) == maxItems {
			return nil, malformed(errors.New("digest is cut off or too long"))
		}
		id := NodeID(hex.EncodeToString(b[:8]))
		counter, n := binary.Uvarint(b[8:])
		if n <= 0 || counter == 0 || n > 1 && b[8+n-1] == 0 || id <= last {
			return nil, malformed(fmt.Errorf("digest: writer %s: bad counter or order", id))
		}
		d[id], last, b = counter, id, b[8+n:]
	}
	return d, nil
}
