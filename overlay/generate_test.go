package overlay

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestObjectsAreCurrent: the committed objects of the tc programs are what the compiler
// makes of the committed sources.
func TestObjectsAreCurrent(t *testing.T) {
	if _, err := exec.LookPath("clang-14"); err != nil && os.Getenv("CI") == "" {
		t.Skip("clang-14 is not installed (scripts/setup test installs it)")
	}
	for dir, objects := range map[string]int{"fastpath": 4, "tunnel": 2, "counter": 2} {
		made := t.TempDir()
		cmd := exec.CommandContext(t.Context(), "go", "generate", ".")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GENERATED="+made)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go generate ./overlay/%s: %v\n%s", dir, err, out)
		}
		files, err := filepath.Glob(filepath.Join(made, "*.o"))
		if err != nil || len(files) != objects {
			t.Fatalf("go generate ./overlay/%s made %d objects, %v; want %d", dir, len(files), err, objects)
		}
		files, err = filepath.Glob(filepath.Join(made, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			have, err := os.ReadFile(filepath.Join(dir, filepath.Base(file)))
			if err != nil || !bytes.Equal(have, want) {
				t.Errorf("overlay/%s/%s is not what its source compiles to (%v): run `make generate` on Debian bookworm, and commit", dir, filepath.Base(file), err)
			}
		}
	}
}
