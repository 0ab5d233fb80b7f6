package paths

import "math/bits"

const (
	// looked is how many of a host's last hellos are looked at, and much how many of them are much if they are lost, with
	// still some of the recent ones: a path that is whole again is well soon.
	looked, much  = 60, 10
	recent, still = 15, 2
	// outage is how many are lost in a row when a way carried nothing for a while: that is another verdict's matter, or over.
	outage = 5
)

// losses knows which of a host's hellos are lost, by their count.
type losses struct {
	last    uint32
	missing uint64 // a bit for each, the last one's the lowest
	known   int
}

func (t *losses) hear(count uint32) {
	behind := t.last - count
	switch {
	case t.last == 0 || count <= t.last && behind >= 64: // its agent has begun anew
		*t = losses{last: count, known: 1}
		return
	case count <= t.last: // passed by others on its way
		t.missing &^= 1 << behind
		return
	}
	lost := count - t.last - 1
	if lost >= outage {
		lost = 0
	}
	t.missing = (t.missing<<lost | 1<<lost - 1) << 1
	t.known = min(t.known+int(lost)+1, 64)
	t.last = count
}

// lost is how many of a hundred are lost, if that is much.
func (t *losses) lost() int {
	n := bits.OnesCount64(t.missing & (1<<looked - 1))
	if t.known < looked || n < much || bits.OnesCount64(t.missing&(1<<recent-1)) < still {
		return 0
	}
	return n * 100 / looked
}
