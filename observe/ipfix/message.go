// Package ipfix tells a collector who talks to whom, by IPFIX (RFC 7011, 7012) over UDP.
package ipfix

import (
	"encoding/binary"
	"net/netip"
	"time"
)

// Flow is one direction of a connection, or what is new of it.
type Flow struct {
	Src, Dst         netip.Addr
	SrcPort, DstPort uint16
	Proto, Flags     uint8
	// Packets and Bytes are those between Start and End. Totals are not told: nfcapd takes them for what is new.
	Packets, Bytes uint64
	Start, End     time.Time
	Reason         uint8
	VNID           uint32
	From, To       Place
}

// Place is an end of a flow: a container, or nothing.
type Place struct{ Network, Container, Host string }

// Reasons for which a flow is told (flowEndReason).
const (
	Idle   = 1
	Active = 2 // it goes on
	Ended  = 3
)

// antrea is the private enterprise number of Antrea's elements.
const antrea = 56506

// field is an element of a template. Length 65535: it varies.
type field struct {
	id, length uint16
	enterprise uint32
	put        func([]byte, Flow) []byte
}

const (
	varies = 65535

	template4, template6 = 256, 257
)

// fields are those of a template, in order. The two templates differ in the addresses.
func fields(six bool) []field {
	u8 := func(of func(Flow) uint8) func([]byte, Flow) []byte {
		return func(b []byte, f Flow) []byte { return append(b, of(f)) }
	}
	u16 := func(of func(Flow) uint16) func([]byte, Flow) []byte {
		return func(b []byte, f Flow) []byte { return binary.BigEndian.AppendUint16(b, of(f)) }
	}
	u64 := func(of func(Flow) uint64) func([]byte, Flow) []byte {
		return func(b []byte, f Flow) []byte { return binary.BigEndian.AppendUint64(b, of(f)) }
	}
	seconds := func(of func(Flow) time.Time) func([]byte, Flow) []byte {
		return func(b []byte, f Flow) []byte { return binary.BigEndian.AppendUint32(b, uint32(of(f).Unix())) }
	}
	millis := func(of func(Flow) time.Time) func([]byte, Flow) []byte {
		return u64(func(f Flow) uint64 { return uint64(of(f).UnixMilli()) })
	}
	addr := func(of func(Flow) netip.Addr) func([]byte, Flow) []byte {
		return func(b []byte, f Flow) []byte { return append(b, of(f).AsSlice()...) }
	}
	text := func(id uint16, of func(Flow) string) field {
		return field{id, varies, antrea, func(b []byte, f Flow) []byte {
			s := of(f)
			s = s[:min(len(s), 254)]
			return append(append(b, byte(len(s))), s...)
		}}
	}
	src, dst, size := uint16(8), uint16(12), uint16(4)
	if six {
		src, dst, size = 27, 28, 16
	}
	start, end := func(f Flow) time.Time { return f.Start }, func(f Flow) time.Time { return f.End }
	return []field{
		{150, 4, 0, seconds(start)}, {151, 4, 0, seconds(end)},
		{152, 8, 0, millis(start)}, {153, 8, 0, millis(end)}, // some collectors know these alone
		{src, size, 0, addr(func(f Flow) netip.Addr { return f.Src })}, {dst, size, 0, addr(func(f Flow) netip.Addr { return f.Dst })},
		{7, 2, 0, u16(func(f Flow) uint16 { return f.SrcPort })}, {11, 2, 0, u16(func(f Flow) uint16 { return f.DstPort })},
		{4, 1, 0, u8(func(f Flow) uint8 { return f.Proto })}, {6, 1, 0, u8(func(f Flow) uint8 { return f.Flags })}, // shorter, as RFC 7125 lets: nfacctd takes the first byte of two
		{2, 8, 0, u64(func(f Flow) uint64 { return f.Packets })}, {1, 8, 0, u64(func(f Flow) uint64 { return f.Bytes })},
		{136, 1, 0, u8(func(f Flow) uint8 { return f.Reason })},
		{351, 8, 0, u64(func(f Flow) uint64 { return 1<<56 | uint64(f.VNID) })}, // layer2SegmentId: VXLAN
		text(100, func(f Flow) string { return f.From.Network }), text(101, func(f Flow) string { return f.From.Container }),
		text(102, func(f Flow) string { return f.To.Network }), text(103, func(f Flow) string { return f.To.Container }),
		text(104, func(f Flow) string { return f.From.Host }), text(105, func(f Flow) string { return f.To.Host }),
		{137, 1, antrea, u8(kind)},
	}
}

// kind is Antrea's flowType: within a host, between hosts, to the outside, from there.
func kind(f Flow) uint8 {
	switch {
	case f.From.Host == "":
		return 4
	case f.To.Host == "":
		return 3
	case f.From.Host != f.To.Host:
		return 2
	}
	return 1
}

// Encoder makes messages of one observation domain.
type Encoder struct {
	Domain    uint32
	Once      bool   // templates are sent once: nothing is lost on the way
	sequence  uint32 // data records sent before the next message
	templated time.Time
}

const (
	version = 10
	header  = 16
	// largest is what a message has at most: it is not to be fragmented.
	largest = 1400
	// again is how often templates are sent: a collector that begins later, or lost one, is to know them soon.
	again = time.Minute
)

// Messages are the flows, behind the templates if those are due.
func (e *Encoder) Messages(flows []Flow, now time.Time) (list [][]byte) {
	if e.templated.IsZero() || !e.Once && now.Sub(e.templated) >= again {
		e.templated = now
		set := template(template(nil, template4, fields(false)), template6, fields(true))
		list = append(list, e.message(now, 2, set, 0))
	}
	for _, six := range []bool{false, true} {
		id, of := uint16(template4), fields(six)
		if six {
			id = template6
		}
		var set []byte
		records := 0
		for _, f := range flows {
			if f.Src.Is6() != six || f.Dst.Is6() != six {
				continue
			}
			var record []byte
			for _, x := range of {
				record = x.put(record, f)
			}
			if records > 0 && header+4+len(set)+len(record) > largest {
				list = append(list, e.message(now, id, set, records))
				set, records = nil, 0
			}
			set, records = append(set, record...), records+1
		}
		if records > 0 {
			list = append(list, e.message(now, id, set, records))
		}
	}
	return list
}

// message is one with a set, and counts its data records, which the next message's sequence number says.
func (e *Encoder) message(now time.Time, id uint16, set []byte, records int) []byte {
	b := binary.BigEndian.AppendUint16(make([]byte, 0, header+4+len(set)), version)
	b = binary.BigEndian.AppendUint16(b, uint16(header+4+len(set)))
	b = binary.BigEndian.AppendUint32(b, uint32(now.Unix()))
	b = binary.BigEndian.AppendUint32(b, e.sequence)
	b = binary.BigEndian.AppendUint32(b, e.Domain)
	b = binary.BigEndian.AppendUint16(b, id)
	b = binary.BigEndian.AppendUint16(b, uint16(4+len(set)))
	e.sequence += uint32(records)
	return append(b, set...)
}

func template(b []byte, id uint16, of []field) []byte {
	b = binary.BigEndian.AppendUint16(b, id)
	b = binary.BigEndian.AppendUint16(b, uint16(len(of)))
	for _, f := range of {
		if f.enterprise == 0 {
			b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, f.id), f.length)
			continue
		}
		b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, f.id|0x8000), f.length)
		b = binary.BigEndian.AppendUint32(b, f.enterprise)
	}
	return b
}
