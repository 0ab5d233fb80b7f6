package edge

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFirstServer: that another server stands first in resolv.conf is told once the agent did, and a file that is gone is the same.
func TestFirstServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	var f firstServer
	for i, c := range []struct {
		text, first string
		lost        bool
	}{
		{"search a\n#nameserver 127.0.0.79\nnameserver 192.0.2.53\nnameserver 127.0.0.79\n", "192.0.2.53", false},
		{"nameserver 127.0.0.79\nnameserver 192.0.2.53", "127.0.0.79", false},
		{"nameserver 192.0.2.53\n", "192.0.2.53", true},
		{"", "", true},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if first := f.look(file); first != c.first || f.lost(first) != c.lost {
			t.Errorf("%d: %q, lost %t", i, first, f.lost(first))
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if first := f.look(file); first != "" || !f.lost(first) {
		t.Errorf("gone: %q", first)
	}
}
