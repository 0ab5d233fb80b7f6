package identity

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestLeft: the note outlives the process, and whatever becomes of its bytes, the host stays out.
func TestLeft(t *testing.T) {
	dir := t.TempDir()
	if _, there, err := LoadLeft(dir); there || err != nil {
		t.Fatalf("a new host has left: %v, %v", there, err)
	}
	note := Left{Node: "0123456789abcdef", Since: time.Unix(1, 0).UTC(), Settings: Told("", []string{"10.0.0.1:7947"}, nil)}
	if err := note.Save(dir); err != nil {
		t.Fatal(err)
	}
	if got, there, err := LoadLeft(dir); got != note || !there || err != nil {
		t.Errorf("%+v, %v, %v", got, there, err)
	}
	if err := os.Truncate(filepath.Join(dir, LeftFile), 7); err != nil {
		t.Fatal(err)
	}
	if got, there, err := LoadLeft(dir); got != (Left{}) || !there || err != nil {
		t.Errorf("damaged: %+v, %v, %v", got, there, err)
	}
	for range 2 {
		if err := RemoveLeft(dir); err != nil {
			t.Error(err)
		}
	}
	if _, there, _ := LoadLeft(dir); there {
		t.Error("it is still there")
	}
}

// TestTold: another installation, other hosts to join, or another key.
func TestTold(t *testing.T) {
	seen := map[string]bool{}
	for _, told := range []string{
		Told("", nil, nil), Told("a", nil, nil), Told("", []string{"a"}, nil), Told("", []string{"a", "b"}, nil), Told("", nil, [][]byte{make([]byte, 32)}),
	} {
		if seen[told] {
			t.Errorf("%s twice", told)
		}
		seen[told] = true
	}
}
