package cluster

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Digest says what a host has heard of.
type Digest struct {
	// Marks has for each writer the counter up to which everything that it wrote
	// has been heard of: the host has the write, or one that replaced it.
	Marks map[NodeID]uint64
	// Early is a hash of the versions above the marks, which came before others
	// that are missing; 0 if there are none. It makes digests differ wherever the
	// records do, so that hosts see that they have something to exchange even if
	// the writer that could close the gap is gone.
	Early uint64
}

// EncodeDigest returns the wire form: the version byte, Early in 8 bytes, then for
// each writer its ID in 8 bytes and its counter as a varint, in the order of the
// IDs. A thousand writers take about 12 kB. Equal digests have equal forms.
func EncodeDigest(d Digest) []byte {
	b := beginDigest(d.Early, len(d.Marks))
	for _, id := range slices.Sorted(maps.Keys(d.Marks)) {
		b = appendMark(b, id, d.Marks[id])
	}
	return b
}

func beginDigest(early uint64, marks int) []byte {
	return binary.BigEndian.AppendUint64(append(make([]byte, 0, 9+12*marks), wireVersion), early)
}

func appendMark(b []byte, id NodeID, counter uint64) []byte {
	b, _ = hex.AppendDecode(b, []byte(id))
	return binary.AppendUvarint(b, counter)
}

// DecodeDigest reads what EncodeDigest wrote. Its error is a RefusedError.
func DecodeDigest(b []byte) (Digest, error) {
	switch {
	case len(b) == 0:
		return Digest{}, malformed(errors.New("empty digest"))
	case b[0] > wireVersion:
		return Digest{}, &RefusedError{Reason: ErrVersion, Detail: fmt.Errorf("digest of version %d, this agent knows %d: upgrade it", b[0], wireVersion)}
	case b[0] < wireVersion:
		return Digest{}, malformed(errors.New("digest without version"))
	}
	return unpackDigest(b[1:])
}

// packDigest is EncodeDigest without the version, as messages have it.
func packDigest(d Digest) []byte { return EncodeDigest(d)[1:] }

// unpackDigest accepts exactly what packDigest writes, so that there is one form.
func unpackDigest(b []byte) (Digest, error) {
	if len(b) < 8 {
		return Digest{}, malformed(errors.New("digest is cut off"))
	}
	d := Digest{Early: binary.BigEndian.Uint64(b), Marks: map[NodeID]uint64{}}
	last := NodeID("")
	for b = b[8:]; len(b) > 0; {
		if len(b) < 9 || len(d.Marks) == maxMarks {
			return Digest{}, malformed(errors.New("digest is cut off or too long"))
		}
		id := NodeID(hex.EncodeToString(b[:8]))
		counter, n := binary.Uvarint(b[8:])
		if n <= 0 || counter == 0 || n > 1 && b[8+n-1] == 0 || id <= last {
			return Digest{}, malformed(fmt.Errorf("digest: writer %s: bad counter or order", id))
		}
		d.Marks[id], last, b = counter, id, b[8+n:]
	}
	return d, nil
}
