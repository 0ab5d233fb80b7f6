// Package pcapng writes and reads captures of packets in the form that Wireshark and tcpdump read: pcapng
// (draft-ietf-opsawg-pcapng). It is pure, and knows the blocks and options that grapevine uses.
package pcapng

import (
	"encoding/binary"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Types of blocks.
const (
	blockSection    = 0x0a0d0d0a
	blockInterface  = 1
	blockNames      = 4
	blockStatistics = 5
	blockPacket     = 6
)

// Options of blocks.
const (
	optEnd           = 0
	optComment       = 1
	optOS            = 3 // of a section
	optApplication   = 4
	optName          = 2 // of an interface
	optDescription   = 3
	optMAC           = 6
	optResolution    = 9
	optFlags         = 2 // of a packet
	optStart         = 2 // of statistics
	optFinish        = 3
	optReceived      = 4
	optDropped       = 5
	optDroppedByUs   = 7
	magic            = 0x1a2b3c4d
	ethernet         = 1
	nanoseconds      = 9
	inbound          = 1
	outbound         = 2
	recordIPv4       = 1
	recordIPv6       = 2
	unknownLength    = ^uint64(0)
	maxOption        = 1<<16 - 1
	smallest         = 12 // bytes of a block
	largest          = 16 << 20
	lengthOfALength  = 4
	lengthOfAHeader  = 8
	lengthOfAPacket  = 20 // what stands before a packet's data
	lengthOfAnOption = 4
)

// order is what is written; any may be read.
var order = binary.LittleEndian

// Section begins a capture.
type Section struct {
	Application, OS, Comment string
}

// Interface is where packets were captured. The first one of a capture has number 0.
type Interface struct {
	Name, Description string
	MAC               net.HardwareAddr
	Snap              uint32 // bytes of a packet at most
}

// Packet is one packet.
type Packet struct {
	Interface uint32
	At        time.Time
	Data      []byte
	Length    int // bytes that there were
	Out       bool
}

// Statistics are what is known of an interface at the end.
type Statistics struct {
	Interface         uint32
	Start, Finish     time.Time
	Received, Dropped uint64 // that the filter let pass; of those, that the kernel had no room for
	DroppedByUs       uint64 // and we
}

// Append adds the block to b.
func (s Section) Append(b []byte) []byte {
	return block(b, blockSection, func(b []byte) []byte {
		b = order.AppendUint32(b, magic)
		b = order.AppendUint16(b, 1) // version 1.0
		b = order.AppendUint16(b, 0)
		b = order.AppendUint64(b, unknownLength)
		return options(b, text(optApplication, s.Application), text(optOS, s.OS), text(optComment, s.Comment))
	})
}

// Append adds the block to b.
func (i Interface) Append(b []byte) []byte {
	return block(b, blockInterface, func(b []byte) []byte {
		b = order.AppendUint16(b, ethernet)
		b = order.AppendUint16(b, 0)
		b = order.AppendUint32(b, i.Snap)
		mac := option{}
		if len(i.MAC) == 6 {
			mac = option{optMAC, i.MAC}
		}
		return options(b, text(optName, i.Name), text(optDescription, i.Description), mac, option{optResolution, []byte{nanoseconds}})
	})
}

// Names are addresses and what they are called.
type Names map[netip.Addr]string

// Append adds blocks to b, several if one has no room for all.
func (n Names) Append(b []byte) []byte {
	const some = 1000
	for part := range slices.Chunk(slices.SortedFunc(maps.Keys(n), netip.Addr.Compare), some) {
		b = block(b, blockNames, func(b []byte) []byte {
			for _, a := range part {
				kind := uint16(recordIPv4)
				if a.Is6() {
					kind = recordIPv6
				}
				name := strings.ReplaceAll(n[a], "\x00", "")
				name = name[:min(len(name), 255)]
				b = value(b, kind, append(a.AsSlice(), name+"\x00"...))
			}
			return value(b, 0, nil)
		})
	}
	return b
}

// Size is the bytes that Append adds.
func (p Packet) Size() int {
	return smallest + lengthOfAPacket + padded(len(p.Data)) + 2*lengthOfAnOption + 4
}

// Append adds the block to b.
func (p Packet) Append(b []byte) []byte {
	return block(b, blockPacket, func(b []byte) []byte {
		b = order.AppendUint32(b, p.Interface)
		b = stamp(b, p.At)
		b = order.AppendUint32(b, uint32(len(p.Data)))
		b = order.AppendUint32(b, uint32(p.Length))
		b = pad(append(b, p.Data...), len(p.Data))
		way := uint32(inbound)
		if p.Out {
			way = outbound
		}
		return options(b, option{optFlags, order.AppendUint32(nil, way)})
	})
}

// Append adds the block to b.
func (s Statistics) Append(b []byte) []byte {
	number := func(code uint16, n uint64) option { return option{code, order.AppendUint64(nil, n)} }
	return block(b, blockStatistics, func(b []byte) []byte {
		b = order.AppendUint32(b, s.Interface)
		b = stamp(b, s.Finish)
		return options(b, option{optStart, stamp(nil, s.Start)}, option{optFinish, stamp(nil, s.Finish)},
			number(optReceived, s.Received), number(optDropped, s.Dropped), number(optDroppedByUs, s.DroppedByUs))
	})
}

// block writes a block around its body: its length stands in front and behind.
func block(b []byte, kind uint32, body func([]byte) []byte) []byte {
	start := len(b)
	b = order.AppendUint32(b, kind)
	b = order.AppendUint32(b, 0)
	b = body(b)
	length := uint32(len(b) - start + lengthOfALength)
	order.PutUint32(b[start+4:], length)
	return order.AppendUint32(b, length)
}

type option struct {
	code  uint16
	value []byte
}

func text(code uint16, s string) option { return option{code, []byte(s[:min(len(s), maxOption)])} }

// options writes those that have a value, and their end.
func options(b []byte, list ...option) []byte {
	for _, o := range list {
		if len(o.value) > 0 {
			b = value(b, o.code, o.value)
		}
	}
	return value(b, optEnd, nil)
}

func value(b []byte, code uint16, v []byte) []byte {
	b = order.AppendUint16(b, code)
	b = order.AppendUint16(b, uint16(len(v)))
	return pad(append(b, v...), len(v))
}

// stamp writes a time as pcapng has it: the upper half first, whatever the order of bytes.
func stamp(b []byte, t time.Time) []byte {
	n := uint64(t.UnixNano())
	b = order.AppendUint32(b, uint32(n>>32))
	return order.AppendUint32(b, uint32(n))
}

func padded(n int) int { return (n + 3) &^ 3 }

func pad(b []byte, n int) []byte { return append(b, make([]byte, padded(n)-n)...) }
