package installed

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/host/docker"
)

func TestPluginCommand(t *testing.T) {
	for _, tt := range []struct {
		self docker.Plugin
		want string
	}{
		{docker.Plugin{}, "docker plugin install --grant-all-permissions --alias grapevine grapevine/grapevine X=1"},
		{docker.Plugin{Name: "gv:latest", Reference: "r:5000/g/g:2"}, "docker plugin install --grant-all-permissions --alias gv r:5000/g/g:2 X=1"},
		{docker.Plugin{Name: "g/g:2"}, "scripts/build-plugin g/g:2 && docker plugin set g/g:2 X=1 && docker plugin enable g/g:2"},
	} {
		if got := pluginCommand(tt.self, "X=1"); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.self, got, tt.want)
		}
	}
}

// TestOffer copies a program, leaves the same one alone, and replaces another one
// by a new file, as the old one may be running.
func TestOffer(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "bin/to")
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var before os.FileInfo
	for _, step := range []struct {
		text string
		same bool
	}{{"one", false}, {"one", true}, {"two", false}} {
		put(from, step.text)
		if err := offer(from, to); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(to)
		info, statErr := os.Stat(to)
		if err != nil || statErr != nil || string(text) != step.text || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: %q, %v, %v, %v", step.text, text, info, err, statErr)
		}
		if os.SameFile(before, info) != step.same {
			t.Errorf("%s: the same file: %v", step.text, !step.same)
		}
		before = info
	}
	if list, err := os.ReadDir(filepath.Join(dir, "bin")); err != nil || len(list) != 1 {
		t.Errorf("beside it: %v, %v", list, err)
	}
	if err := offer(filepath.Join(dir, "none"), to); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("no program: %v", err)
	}
}
