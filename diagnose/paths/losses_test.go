package paths

import (
	"math/rand/v2"
	"testing"
)

// TestTally: losses by chance are found and over soon, and what is lost in a row, of an agent that begins anew, or out of
// order is none.
func TestTally(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var y losses
	count := uint32(0)
	run := func(n int, lossy float64) (worst, last int) {
		for range n {
			count++
			if r.Float64() >= lossy {
				y.hear(count)
			}
			last = y.lost()
			worst = max(worst, last)
		}
		return worst, last
	}
	if worst, _ := run(10000, 0.01); worst != 0 {
		t.Errorf("of one in a hundred %d are said to be lost", worst)
	}
	if worst, _ := run(120, 0.3); worst < 16 || worst > 50 {
		t.Errorf("of thirty in a hundred %d are said to be lost", worst)
	}
	if _, last := run(20, 0); last != 0 {
		t.Errorf("20 after the end of it %d are said to be lost", last)
	}
	run(100, 0)
	for range 8 { // a cut of some seconds, again and again
		count += outage
		if worst, _ := run(10, 0); worst != 0 {
			t.Errorf("after an outage %d are said to be lost", worst)
		}
	}
	for range 100 { // each two in the wrong order
		y.hear(count + 2)
		y.hear(count + 1)
		if count += 2; y.lost() != 0 {
			t.Fatalf("%d are lost that were passed by others", y.lost())
		}
	}
	count = 0 // its agent begins anew
	if worst, _ := run(200, 0); worst != 0 {
		t.Errorf("%d are said to be lost of an agent that began anew", worst)
	}
}
