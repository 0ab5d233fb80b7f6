package cluster

import "encoding/binary"

// The wire form of records and messages, written by hand: the library takes several times
// as long, and a new host reads and writes a hundred thousand. It is the library's to the
// bit (RFC 8949 section 4.2.1), which tests compare; bodies, and what others sent, are the
// library's to write and read.

// Major types of RFC 8949, 3.1.
const (
	cborUint  = 0 << 5
	cborNint  = 1 << 5
	cborBytes = 2 << 5
	cborText  = 3 << 5
	cborArray = 4 << 5
	cborMap   = 5 << 5
	cborTrue  = 7<<5 | 21
)

// appendHead appends a head: a major type and its argument, as short as it goes.
func appendHead(b []byte, major byte, n uint64) []byte {
	switch {
	case n < 24:
		return append(b, major|byte(n))
	case n < 1<<8:
		return append(b, major|24, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, major|25), uint16(n))
	case n < 1<<32:
		return binary.BigEndian.AppendUint32(append(b, major|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(b, major|27), n)
}

// fields writes a map of ascending small numbers, leaving out what is empty.
type fields struct {
	b     []byte
	start int
	count byte
}

func newFields(b []byte) fields { return fields{b: append(b, cborMap), start: len(b)} }

// key begins a field. There are never more than 23.
func (f *fields) key(n byte) {
	f.count++
	f.b = append(f.b, cborUint|n)
	f.b[f.start] = cborMap | f.count
}

func (f *fields) uint(n byte, v uint64) {
	if v != 0 {
		f.key(n)
		f.b = appendHead(f.b, cborUint, v)
	}
}

func (f *fields) text(n byte, s string) {
	if s != "" {
		f.key(n)
		f.b = append(appendHead(f.b, cborText, uint64(len(s))), s...)
	}
}

func (f *fields) bytes(n byte, v []byte) {
	if len(v) > 0 {
		f.key(n)
		f.b = append(appendHead(f.b, cborBytes, uint64(len(v))), v...)
	}
}

func (f *fields) raw(n byte, v []byte) {
	if len(v) > 0 {
		f.key(n)
		f.b = append(f.b, v...)
	}
}

func array[T ~[]byte](f *fields, n byte, list []T, each func(b, v []byte) []byte) {
	if len(list) == 0 {
		return
	}
	f.key(n)
	f.b = appendHead(f.b, cborArray, uint64(len(list)))
	for _, v := range list {
		f.b = each(f.b, v)
	}
}

func appendRaw(b, v []byte) []byte { return append(b, v...) }

func appendBytes(b, v []byte) []byte {
	return append(appendHead(b, cborBytes, uint64(len(v))), v...)
}

// appendWire appends the wire form of w.
func (w *wireRecord) appendWire(b []byte) []byte {
	f := newFields(b)
	f.key(1)
	f.b = appendHead(f.b, cborUint, uint64(w.Kind))
	f.key(2)
	f.b = appendHead(f.b, cborUint, w.Counter)
	f.key(3)
	f.b = append(appendHead(f.b, cborText, uint64(len(w.Node))), w.Node...)
	f.uint(4, w.Prev)
	if w.Deleted < 0 {
		f.key(5)
		f.b = appendHead(f.b, cborNint, uint64(-(w.Deleted + 1)))
	} else {
		f.uint(5, uint64(w.Deleted))
	}
	f.raw(6, w.Body)
	f.text(7, w.ID)
	f.bytes(8, w.Sig)
	f.text(9, string(w.Of))
	array(&f, 10, w.Proofs, appendRaw)
	return f.b
}

// appendWire appends the wire form of w.
func (w *wireMessage) appendWire(b []byte) []byte {
	f := newFields(b)
	array(&f, 1, w.Records, appendRaw)
	f.uint(2, w.Sync)
	f.uint(3, uint64(w.Part))
	if w.Last {
		f.key(4)
		f.b = append(f.b, cborTrue)
	}
	f.bytes(5, w.Complete)
	array(&f, 6, w.Keys, appendBytes)
	return f.b
}
