package cluster

import (
	"bytes"
	"fmt"
	"slices"
)

// keyTable has the keys of a message's writers, once each.
type keyTable map[NodeID]*PublicKey

// add puts the keys of a record's writer, and of its proofs', into the table and returns by how many
// bytes the message grows.
func (t keyTable) add(r *Record) (size int) {
	for i := range r.proofs {
		size += t.add(&r.proofs[i])
	}
	if r.sig == nil || r.sig.key == nil || t[r.Version.Node] != nil {
		return size
	}
	t[r.Version.Node] = r.sig.key
	return size + len(r.sig.key) + 2
}

func (t keyTable) list() [][]byte {
	var list [][]byte
	for _, k := range t {
		list = append(list, k[:])
	}
	slices.SortFunc(list, bytes.Compare)
	return list
}

// readKeys reads the table of a message.
func readKeys(list [][]byte) (keyTable, error) {
	t := make(keyTable, len(list))
	for _, raw := range list {
		if len(raw) != len(PublicKey{}) {
			return nil, malformed(fmt.Errorf("key of %d bytes", len(raw)))
		}
		key := PublicKey(raw)
		t[HostID(key)] = &key
	}
	return t, nil
}
