package identity

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLoadWireGuard(t *testing.T) {
	dir := t.TempDir()
	first, err := LoadWireGuard(dir)
	if err != nil || first == ([32]byte{}) {
		t.Fatal(first, err)
	}
	name := filepath.Join(dir, WireGuardFile)
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
	if again, err := LoadWireGuard(dir); err != nil || again != first {
		t.Fatalf("the second start has another key, %v", err)
	}
	if other, err := LoadWireGuard(t.TempDir()); err != nil || other == first {
		t.Fatalf("another host has the same key, %v", err)
	}
	if err := os.Chmod(name, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadWireGuard(dir); err == nil || !strings.Contains(err.Error(), "can read") {
		t.Errorf("a key that all can read: %v", err)
	}
	for _, text := range []string{"", "AAAA", strings.Repeat("A", 88)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadWireGuard(dir); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
