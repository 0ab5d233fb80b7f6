package door

import (
	"net/netip"
	"testing"
)

// TestKnownStay: who is known is not sent away for one that is not, nor is who comes alone.
func TestKnownStay(t *testing.T) {
	const most = 32
	d := New(nil, most)
	come := func(source string, known bool) (v, goes *visitor) {
		v = &visitor{door: d, source: netip.MustParseAddr(source), known: known}
		return v, d.enter(v)
	}
	for range most - 3 {
		come("10.0.0.1", true)
	}
	alone, _ := come("10.0.0.2", false)
	first, _ := come("10.0.0.3", false)
	second, _ := come("10.0.0.3", false)
	if _, goes := come("10.0.0.4", false); goes != first {
		t.Errorf("%+v goes", goes)
	}
	if _, goes := come("10.0.0.3", false); goes != second {
		t.Errorf("%+v goes", goes)
	}
	if _, goes := come("10.0.0.5", false); goes != alone {
		t.Errorf("of those that have one each, %+v goes", goes)
	}
}
