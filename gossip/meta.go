package gossip

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// nodeMeta is what a host tells of itself in memberlist's node meta:
//
//	format 1 | flags 1 | min 1 | max 1 | node 8 | len 1, cluster | len 1, name | epoch 8 | what later versions add
//
// min and max are the envelope versions the host speaks, the epoch that of calls of it, if it
// speaks a version that has them. It may be another one by now.
type nodeMeta struct {
	leaving bool
	speaks  versions
	node    nodeID
	cluster string
	name    string
	epoch   uint64
}

const (
	metaFormat  = 1
	flagLeaving = 1 // for hosts of version 2, which believe it
)

func (m nodeMeta) encode() []byte {
	var flags byte
	if m.leaving {
		flags |= flagLeaving
	}
	b := append([]byte{metaFormat, flags, m.speaks.min, m.speaks.max}, m.node[:]...)
	b = appendShort(b, m.cluster)
	b = appendShort(b, m.name)
	if m.speaks.max >= protoEpochs {
		b = binary.BigEndian.AppendUint64(b, m.epoch)
	}
	return b
}

// decodeMeta reads the meta of the host that memberlist calls name.
func decodeMeta(b []byte, name string) (m nodeMeta, err error) {
	if len(b) < 12 {
		return m, errors.New("node meta is cut short: not a grapevine host")
	}
	if b[0] != metaFormat {
		return m, fmt.Errorf("%w: node meta of format %d, this host reads %d", errVersion, b[0], metaFormat)
	}
	m.leaving, m.speaks = b[1]&flagLeaving != 0, versions{b[2], b[3]}
	copy(m.node[:], b[4:])
	if m.node.String() != name {
		return m, fmt.Errorf("node meta of %v under the name %.64q", m.node, name)
	}
	if m.cluster, b, err = takeShort(b[12:]); err != nil {
		return m, fmt.Errorf("node meta: %w", err)
	}
	if m.name, b, err = takeShort(b); err != nil {
		return m, fmt.Errorf("node meta: %w", err)
	}
	if len(m.cluster) > maxLabel {
		return m, fmt.Errorf("node meta: cluster ID of %d bytes: at most %d", len(m.cluster), maxLabel)
	}
	if m.speaks.max >= protoEpochs {
		if len(b) < 8 {
			return m, errors.New("node meta without an epoch")
		}
		m.epoch = binary.BigEndian.Uint64(b)
	}
	return m, nil
}
