package gossip

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// The versions that this program speaks, of the envelope, of node meta, and of
// what the State and calls put into them. Hosts that have none in common refuse
// each other by name. A release speaks that of the release before as well, and
// writes it as long as one of the members speaks no newer one (version.go).
//
//	1: never released: records without signatures
//	2: signed records
//	3: beats, and doubt of those who are silent; requests name their epoch
//	4: slow beats, of hosts that need not hurry
const (
	protoMin = 2
	protoMax = 4
)

type kind uint8

// Kinds of message. The numbers are wire format: append only.
const (
	kindDelta    kind = 1 // body: a message for State.Merge
	kindSum      kind = 2 // body: a summary
	kindRequest  kind = 3
	kindResponse kind = 4
	kindBeat     kind = 5 // body: a beat; from version 3 on
	kindDoubt    kind = 6 // body: a suspicion; from version 3 on
	kindSlow     kind = 7 // body: a beat, and the next comes slowBeats times as late; from version 4 on
)

// envelope is the frame of every message:
//
//	version 1 | kind 1 | len(cluster) 1 | cluster | from 8 | body
//
// The version stands first and stays there for ever.
type envelope struct {
	version uint8
	kind    kind
	cluster string
	from    nodeID
	body    []byte
}

// errVersion is in the error of what has a version that this program does not speak.
var errVersion = errors.New("another version")

var errShort = errors.New("message is cut short")

func (e envelope) encode() []byte {
	b := make([]byte, 0, 3+len(e.cluster)+len(e.from)+len(e.body))
	b = append(b, e.version, byte(e.kind))
	b = appendShort(b, e.cluster)
	b = append(b, e.from[:]...)
	return append(b, e.body...)
}

// inVersion writes an envelope, of a kind whose body is the same in all versions that have it, in
// another one; nil: that has no such kind.
func inVersion(version uint8, sealed []byte) []byte {
	switch {
	case !kind(sealed[1]).in(version):
		return nil
	case sealed[0] == version:
		return sealed
	}
	sealed = bytes.Clone(sealed)
	sealed[0] = version
	return sealed
}

// in reports whether a version has a kind.
func (k kind) in(version uint8) bool {
	switch {
	case k >= kindDelta && k <= kindResponse:
		return true
	case k > kindResponse && k <= kindDoubt:
		return version >= protoBeats
	}
	return k == kindSlow && version >= protoSlow
}

// decodeEnvelope reads a frame of a version that is spoken. The body is part of b.
func decodeEnvelope(b []byte, spoken versions) (e envelope, err error) {
	if len(b) < 2 {
		return e, errShort
	}
	if e.version = b[0]; !spoken.meet(versions{e.version, e.version}) {
		return e, fmt.Errorf("%w: message of version %d, this host speaks %v", errVersion, e.version, spoken)
	}
	e.kind = kind(b[1])
	if !e.kind.in(e.version) {
		return e, fmt.Errorf("message of unknown kind %d", e.kind)
	}
	if e.cluster, b, err = takeShort(b[2:]); err != nil {
		return e, err
	}
	if len(e.cluster) > maxLabel {
		return e, fmt.Errorf("cluster ID of %d bytes: at most %d", len(e.cluster), maxLabel)
	}
	if len(b) < len(e.from) {
		return e, errShort
	}
	copy(e.from[:], b)
	if e.body = b[len(e.from):]; len(e.body) > MaxBody+maxHeader {
		return e, fmt.Errorf("message of %d bytes: at most %d", len(e.body), MaxBody+maxHeader)
	}
	return e, nil
}

// maxHeader bounds what a request has before its body.
const maxHeader = 1 << 10

// request is the body of kindRequest:
//
//	id 8 | epoch 8, from version 3 on | timeout 4, ms | len 1, reply "ip:port" | len 1, method | body
type request struct {
	id      uint64
	epoch   uint64        // of the called host, as far as it is known
	timeout time.Duration // that the caller will wait; rounded up
	reply   netip.AddrPort
	method  string
	body    []byte
}

func (r request) encode(version uint8) []byte {
	b := binary.BigEndian.AppendUint64(nil, r.id)
	if version >= protoEpochs {
		b = binary.BigEndian.AppendUint64(b, r.epoch)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(min(max(r.timeout.Milliseconds()+1, 1), 1<<31)))
	b = appendShort(b, r.reply.String())
	b = appendShort(b, r.method)
	return append(b, r.body...)
}

func decodeRequest(version uint8, b []byte) (r request, err error) {
	head := 12
	if version >= protoEpochs {
		head += 8
	}
	if len(b) < head {
		return r, errShort
	}
	r.id = binary.BigEndian.Uint64(b)
	if version >= protoEpochs {
		r.epoch = binary.BigEndian.Uint64(b[8:])
	}
	r.timeout = time.Duration(binary.BigEndian.Uint32(b[head-4:])) * time.Millisecond
	reply, b, err := takeShort(b[head:])
	if err != nil {
		return r, err
	}
	if r.reply, err = netip.ParseAddrPort(reply); err != nil {
		return r, fmt.Errorf("reply address: %w", err)
	}
	if r.method, b, err = takeShort(b); err != nil {
		return r, err
	}
	r.body = b
	return r, nil
}

// status of a response. The numbers are wire format: append only.
type status uint8

const (
	statusOK    status = 0 // body: the result
	statusError status = 1 // body: the error's text
	statusBusy  status = 2 // nothing was done: ask again, in the epoch that the body names, if any
)

// response is the body of kindResponse: id 8 | status 1 | body.
type response struct {
	id     uint64
	status status
	body   []byte
}

func (r response) encode() []byte {
	b := binary.BigEndian.AppendUint64(nil, r.id)
	return append(append(b, byte(r.status)), r.body...)
}

func decodeResponse(b []byte) (r response, err error) {
	if len(b) < 9 {
		return r, errShort
	}
	return response{binary.BigEndian.Uint64(b), status(b[8]), b[9:]}, nil
}

// appendShort appends a string of at most 255 bytes after its length.
func appendShort(b []byte, s string) []byte {
	s = s[:min(len(s), 255)]
	return append(append(b, byte(len(s))), s...)
}

func takeShort(b []byte) (s string, rest []byte, err error) {
	if len(b) < 1 || len(b) < 1+int(b[0]) {
		return "", nil, errShort
	}
	n := 1 + int(b[0])
	return string(b[1:n]), b[n:], nil
}
