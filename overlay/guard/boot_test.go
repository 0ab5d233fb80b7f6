package guard

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/host/filter"
)

// The note for the next boot has what is encrypted, and there is none where nothing is.
func TestNoteForBoot(t *testing.T) {
	dir := t.TempDir()
	g := &Guard{cfg: Config{State: dir}, log: slog.New(slog.DiscardHandler)}
	has := func(want string) {
		t.Helper()
		if text, _ := os.ReadFile(filepath.Join(dir, BootFile)); string(text) != want {
			t.Errorf("the note has %q, want %q", text, want)
		}
	}
	blue := filter.Config{Encrypted: "gvwg", Cluster: []netip.Prefix{netip.MustParsePrefix("10.128.1.0/24"), netip.MustParsePrefix("fd42::/64")}}
	g.noteForBoot(filter.Config{})
	has("")
	g.noteForBoot(blue)
	has("10.128.1.0/24\nfd42::/64\n")
	g.noteForBoot(filter.Config{Cluster: blue.Cluster})
	has("")
	if said, err := Boot(dir); err != nil || !strings.Contains(said, "nothing was encrypted") {
		t.Errorf("Boot without a note: %q, %v", said, err)
	}
	if err := os.WriteFile(filepath.Join(dir, BootFile), []byte("10.128.1."), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Boot(dir); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("Boot by a damaged note: %v", err)
	}
	g = &Guard{cfg: Config{State: dir}, log: g.log}
	g.noteForBoot(blue)
	has("10.128.1.0/24\nfd42::/64\n")
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestDamagedNote: what of it can be read is kept.
func TestDamagedNote(t *testing.T) {
	list, err := prefixes("10.128.1.0/24\n10.128.\nfd42::/64\n")
	if want := []netip.Prefix{netip.MustParsePrefix("10.128.1.0/24"), netip.MustParsePrefix("fd42::/64")}; err == nil || !slices.Equal(list, want) {
		t.Errorf("prefixes: %v, %v", list, err)
	}
}
