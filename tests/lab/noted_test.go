package lab

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestRemoveNoted: of the labs that are kept on this machine only those go whose names were noted.
func TestRemoveNoted(t *testing.T) {
	note := filepath.Join(t.TempDir(), "build", "kept")
	if gone, err := RemoveNoted(note); gone != nil || err != nil {
		t.Errorf("with nothing noted: %v, %v", gone, err)
	}
	made := func(state string) *Lab {
		if err := os.MkdirAll(base, 0o755); err != nil {
			t.Fatal(err)
		}
		dir, err := os.MkdirTemp(base, "noted-*")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		if err := os.WriteFile(filepath.Join(dir, ownerFile), []byte(state+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return &Lab{id: filepath.Base(dir)}
	}
	mine, others := made(keptMark), made(keptMark)
	running := made("")
	if err := register(filepath.Join(base, running.id)); err != nil {
		t.Fatal(err)
	}
	for _, l := range []*Lab{mine, running} {
		if err := l.Note(note); err != nil {
			t.Fatal(err)
		}
	}
	gone, err := RemoveNoted(note)
	if err != nil || !slices.Equal(gone, []string{mine.id}) {
		t.Errorf("%v, %v", gone, err)
	}
	for _, l := range []*Lab{others, running} {
		if _, err := os.Stat(filepath.Join(base, l.id)); err != nil {
			t.Errorf("another's: %v", err)
		}
	}
	if _, err := os.Stat(filepath.Join(base, mine.id)); err == nil {
		t.Error("the noted one is still there")
	}
}
