package bypass

import "bytes"

// answer is what is known of a test.
type answer int

const (
	maybe answer = iota
	yes
	no
)

func (a answer) not() answer {
	switch a {
	case yes:
		return no
	case no:
		return yes
	}
	return maybe
}

func truth(b bool) answer {
	if b {
		return yes
	}
	return no
}

// and is that of two tests both of which have to be passed.
func (a answer) and(b answer) answer {
	switch {
	case a == no || b == no:
		return no
	case a == yes && b == yes:
		return yes
	}
	return maybe
}

// bits is a value of which some bits are not known: those are 1 in u, and 0 in v.
type bits struct{ v, u []byte }

func point(v []byte) bits { return bits{v, make([]byte, len(v))} }

func unknown(length int) bits {
	return bits{make([]byte, length), bytes.Repeat([]byte{0xff}, length)}
}

func (b bits) put(at int, part bits) {
	copy(b.v[at:], part.v)
	copy(b.u[at:], part.u)
}

func (b bits) known() bool {
	return !bytes.ContainsFunc(b.u, func(r rune) bool { return r != 0 })
}

// part is a piece of it; what is beyond is not known.
func (b bits) part(at, length int) bits {
	out := unknown(length)
	if at >= 0 && at < len(b.v) {
		copy(out.v, b.v[at:])
		copy(out.u, b.u[at:])
	}
	return out
}

// bounds are the least and the largest value that it may be.
func (b bits) bounds() (least, most []byte) {
	most = make([]byte, len(b.v))
	for i := range most {
		most[i] = b.v[i] | b.u[i]
	}
	return b.v, most
}

// is says whether it is that value.
func (b bits) is(v []byte) answer {
	if len(v) != len(b.v) {
		return maybe
	}
	for i := range v {
		if (v[i]^b.v[i])&^b.u[i] != 0 {
			return no
		}
	}
	if b.known() {
		return yes
	}
	return maybe
}

// below says whether it is less than v.
func (b bits) below(v []byte) answer {
	if len(v) != len(b.v) {
		return maybe
	}
	least, most := b.bounds()
	switch {
	case bytes.Compare(most, v) < 0:
		return yes
	case bytes.Compare(least, v) >= 0:
		return no
	}
	return maybe
}

// above says whether it is more than v.
func (b bits) above(v []byte) answer {
	if len(v) != len(b.v) {
		return maybe
	}
	least, most := b.bounds()
	switch {
	case bytes.Compare(least, v) > 0:
		return yes
	case bytes.Compare(most, v) <= 0:
		return no
	}
	return maybe
}

// within says whether it lies from one value to another one, both included.
func (b bits) within(from, to []byte) answer {
	return b.below(from).not().and(b.above(to).not())
}

// masked is (b & mask) ^ xor.
func (b bits) masked(mask, xor []byte) bits {
	out := bits{make([]byte, len(b.v)), make([]byte, len(b.v))}
	for i := range b.v {
		if i >= len(mask) || i >= len(xor) {
			out.u[i] = 0xff
			continue
		}
		out.u[i] = b.u[i] & mask[i]
		out.v[i] = (b.v[i]&mask[i] ^ xor[i]) &^ out.u[i]
	}
	return out
}
