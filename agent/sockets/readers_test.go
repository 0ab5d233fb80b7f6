package sockets

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/membership/identity"
)

func TestReaders(t *testing.T) {
	path := filepath.Join(t.TempDir(), "docker.sock")
	cfg := config.Default()
	cfg.Docker = "unix://" + path
	want := func(group int) {
		t.Helper()
		if got, err := readers(cfg); err != nil || got != group {
			t.Errorf("%d, %v; want %d", got, err, group)
		}
	}
	want(0) // Docker is not there yet
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chown(path, -1, 4711); err != nil && os.Getenv("CI") != "" {
		t.Fatal(err)
	} else if err != nil {
		t.Skipf("only root may give a socket away: %v", err)
	}
	for mode, group := range map[os.FileMode]int{0o660: 4711, 0o600: 0, 0o640: 0} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		want(group)
	}
	for name, group := range map[string]int{"root": 0, "12": 12} {
		cfg.Group = name
		want(group)
	}
	cfg.Group = "no-such-group"
	if _, err := readers(cfg); err == nil {
		t.Error("a group that there is not")
	}
}

// TestSweep: of a host that has left the directory of sockets goes, through a link as well; of another one, and with what is not
// the agent's in it, it stays.
func TestSweep(t *testing.T) {
	for _, c := range []struct {
		left, other, stays bool
	}{{false, false, true}, {true, false, false}, {true, true, true}} {
		dir := t.TempDir()
		real, run := filepath.Join(dir, "real"), filepath.Join(dir, "run")
		if err := errors.Join(os.Mkdir(real, 0o700), os.Symlink(real, run)); err != nil {
			t.Fatal(err)
		}
		if c.left {
			if err := (identity.Left{}).Save(dir); err != nil {
				t.Fatal(err)
			}
		}
		if c.other {
			if err := os.WriteFile(filepath.Join(real, "a"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		Sweep(config.Config{State: dir, Run: run})
		if _, err := os.Stat(real); (err == nil) != c.stays {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
