package pcapng

import (
	"fmt"
	"io"
	"net/netip"
	"time"
)

// Reader reads what this package writes.
type Reader struct {
	from io.Reader
	// Names and Interfaces are those of the blocks that were read so far.
	Names      Names
	Interfaces []Interface
	// Statistics are those of interfaces that have ended.
	Statistics []Statistics
}

// NewReader reads nothing yet.
func NewReader(from io.Reader) *Reader { return &Reader{from: from, Names: Names{}} }

// Next is the next packet; io.EOF: there is none, and the capture is whole.
func (r *Reader) Next() (Packet, error) {
	for {
		kind, body, err := r.block()
		if err != nil {
			return Packet{}, err
		}
		switch kind {
		case blockInterface:
			r.Interfaces = append(r.Interfaces, interfaceOf(body))
		case blockNames:
			r.addNames(body)
		case blockStatistics:
			if len(body) >= lengthOfAPacket-8 {
				r.Statistics = append(r.Statistics, statisticsOf(body))
			}
		case blockPacket:
			return packetOf(body)
		}
	}
}

// block reads a block, and returns what is between its lengths.
func (r *Reader) block() (kind uint32, body []byte, err error) {
	head := make([]byte, lengthOfAHeader)
	if _, err := io.ReadFull(r.from, head); err != nil {
		return 0, nil, err
	}
	length := order.Uint32(head[4:])
	if length < smallest || length > largest || length%4 != 0 {
		return 0, nil, fmt.Errorf("read the capture: a block of %d bytes", length)
	}
	body = make([]byte, length-lengthOfAHeader)
	if _, err := io.ReadFull(r.from, body); err != nil {
		return 0, nil, fmt.Errorf("read the capture: it ends within a block: %w", io.ErrUnexpectedEOF)
	}
	return order.Uint32(head), body[:len(body)-lengthOfALength], nil
}

// each calls f for each value of a list, until its end.
func each(b []byte, f func(code uint16, value []byte)) {
	for len(b) >= lengthOfAnOption {
		code, n := order.Uint16(b), int(order.Uint16(b[2:]))
		b = b[lengthOfAnOption:]
		if code == optEnd || n > len(b) {
			return
		}
		f(code, b[:n])
		b = b[min(len(b), padded(n)):]
	}
}

func interfaceOf(b []byte) (i Interface) {
	if len(b) < 8 {
		return i
	}
	i.Snap = order.Uint32(b[4:])
	each(b[8:], func(code uint16, v []byte) {
		switch code {
		case optName:
			i.Name = string(v)
		case optDescription:
			i.Description = string(v)
		case optMAC:
			i.MAC = append(i.MAC, v...)
		}
	})
	return i
}

func (r *Reader) addNames(b []byte) {
	each(b, func(code uint16, v []byte) {
		n := 4
		if code == recordIPv6 {
			n = 16
		}
		if len(v) <= n {
			return
		}
		if a, ok := netip.AddrFromSlice(v[:n]); ok {
			r.Names[a] = string(v[n : len(v)-1])
		}
	})
}

func packetOf(b []byte) (p Packet, err error) {
	if len(b) < lengthOfAPacket {
		return p, fmt.Errorf("read the capture: a packet's block of %d bytes", len(b))
	}
	p.Interface, p.At, p.Length = order.Uint32(b), when(b[4:]), int(order.Uint32(b[16:]))
	n := order.Uint32(b[12:])
	b = b[lengthOfAPacket:]
	if int64(n) > int64(len(b)) {
		return p, fmt.Errorf("read the capture: a packet of %d bytes in a block of %d", n, len(b))
	}
	p.Data = b[:n]
	each(b[min(len(b), padded(int(n))):], func(code uint16, v []byte) {
		if code == optFlags && len(v) == 4 {
			p.Out = order.Uint32(v)&3 == outbound
		}
	})
	return p, nil
}

func statisticsOf(b []byte) (s Statistics) {
	s.Interface = order.Uint32(b)
	each(b[12:], func(code uint16, v []byte) {
		if len(v) != 8 {
			return
		}
		switch n := order.Uint64(v); code {
		case optStart:
			s.Start = when(v)
		case optFinish:
			s.Finish = when(v)
		case optReceived:
			s.Received = n
		case optDropped:
			s.Dropped = n
		case optDroppedByUs:
			s.DroppedByUs = n
		}
	})
	return s
}

func when(b []byte) time.Time {
	return time.Unix(0, int64(uint64(order.Uint32(b))<<32|uint64(order.Uint32(b[4:]))))
}
