package pcapng

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"net/netip"
	"testing"
	"time"
)

// written is a capture with all that there is in one.
func written() []byte {
	b := Section{Application: "grapevine", OS: "linux", Comment: "why"}.Append(nil)
	b = Interface{Name: "app@host1", Description: "eth0", MAC: []byte{2, 0, 0, 0, 0, 1}, Snap: 262144}.Append(b)
	b = Names{netip.MustParseAddr("10.0.0.1"): "app", netip.MustParseAddr("fd00::1"): "db"}.Append(b)
	b = Packet{At: time.Unix(1_700_000_000, 123456789), Data: []byte{1, 2, 3, 4, 5}, Length: 1500, Out: true}.Append(b)
	b = Packet{At: time.Unix(1_700_000_001, 1), Data: []byte{6}, Length: 1}.Append(b)
	return Statistics{Start: time.Unix(1, 1), Finish: time.Unix(2, 2), Received: 5, Dropped: 2, DroppedByUs: 1}.Append(b)
}

func TestReadBack(t *testing.T) {
	r := NewReader(bytes.NewReader(written()))
	p, err := r.Next()
	if err != nil || !p.At.Equal(time.Unix(1_700_000_000, 123456789)) || !bytes.Equal(p.Data, []byte{1, 2, 3, 4, 5}) || p.Length != 1500 || !p.Out {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err = r.Next(); err != nil || p.Length != 1 || p.Out {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	if i := r.Interfaces; len(i) != 1 || i[0].Name != "app@host1" || i[0].Description != "eth0" || i[0].MAC.String() != "02:00:00:00:00:01" || i[0].Snap != 262144 {
		t.Errorf("%+v", i)
	}
	if want := (Names{netip.MustParseAddr("10.0.0.1"): "app", netip.MustParseAddr("fd00::1"): "db"}); !maps.Equal(r.Names, want) {
		t.Errorf("%v", r.Names)
	}
	if s := r.Statistics; len(s) != 1 || s[0].Received != 5 || s[0].Dropped != 2 || s[0].DroppedByUs != 1 || !s[0].Start.Equal(time.Unix(1, 1)) {
		t.Errorf("%+v", s)
	}
}

// TestWhole: wherever a capture is broken off, and however it comes in parts, what was passed on is whole blocks.
func TestWhole(t *testing.T) {
	all := written()
	for cut := range len(all) {
		for _, part := range []int{1, 7, 1000} {
			var out bytes.Buffer
			w := &Whole{To: &out}
			for i := 0; i < cut; i += part {
				if _, err := w.Write(all[i:min(cut, i+part)]); err != nil {
					t.Fatal(err)
				}
			}
			r, packets := NewReader(&out), uint64(0)
			_, err := r.Next()
			for ; err == nil; _, err = r.Next() {
				packets++
			}
			if !errors.Is(err, io.EOF) || packets != w.Packets {
				t.Fatalf("broken off at %d: %v, %d packets, said %d", cut, err, packets, w.Packets)
			}
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(written())
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(bytes.NewReader(b))
		for range 100 {
			if _, err := r.Next(); err != nil {
				return
			}
		}
		_, _ = (&Whole{To: io.Discard}).Write(b)
	})
}
