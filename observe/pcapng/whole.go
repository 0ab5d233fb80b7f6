package pcapng

import (
	"fmt"
	"io"
)

// Whole passes a capture on block by block: wherever it is broken off, what was passed on can be read.
type Whole struct {
	To      io.Writer
	Packets uint64 // that were passed on
	rest    []byte
}

// Write keeps a block until it is whole.
func (w *Whole) Write(b []byte) (int, error) {
	w.rest = append(w.rest, b...)
	whole := 0
	packets := uint64(0)
	for len(w.rest)-whole >= lengthOfAHeader {
		at := w.rest[whole:]
		length := order.Uint32(at[4:])
		if length < smallest || length > largest || length%4 != 0 {
			return 0, fmt.Errorf("pass the capture on: a block of %d bytes", length)
		}
		if uint64(len(at)) < uint64(length) {
			break
		}
		if order.Uint32(at) == blockPacket {
			packets++
		}
		whole += int(length)
	}
	if whole == 0 {
		return len(b), nil
	}
	if _, err := w.To.Write(w.rest[:whole]); err != nil {
		return 0, err
	}
	w.Packets += packets
	w.rest = append(w.rest[:0], w.rest[whole:]...)
	return len(b), nil
}
