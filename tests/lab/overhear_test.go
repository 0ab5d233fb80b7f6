package lab

import (
	"encoding/hex"
	"strings"
	"testing"
	"time"
)

// A frame with the marker says by which way it went: VXLAN with what is in it, and where it was read.
func TestTell(t *testing.T) {
	frame, err := hex.DecodeString(strings.ReplaceAll("02005e005301"+"02005e005002"+"0800"+
		"45000056000000004011b69ec0000201c0000202"+"c000"+"12b5"+"00420000"+"0800000000000100"+
		"020100000000020100000000"+"0800"+
		"4500002400000000401100000a8000020a800201"+"c001"+"0009"+"00100000"+"7365637265740a00", " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	got := tell(time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC), "host1", true, frame)
	for _, want := range []string{"marked 03:04:05.006 host1 out", "192.0.2.1", "192.0.2.2", "4789", "with", "10.128.0.2", "10.128.2.1", "to 02:00:5e:00:53:01", "02005e0053010200"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in: %s", want, got)
		}
	}
	o, err := heard("the wire", "listens\n"+got+"\n12 frames, 1 with the marker, 0 lost\n")
	if err != nil || o.Marked != 1 || len(o.Seen) != 1 || !strings.HasPrefix(o.Seen[0], "03:04:05.006") {
		t.Errorf("heard: %+v, %v", o, err)
	}
}
