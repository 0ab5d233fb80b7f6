package sockets

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/grapevine-net/grapevine/config"
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
