package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRoom: a disk that takes nothing more is known before anything is written to it.
func TestRoom(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=16m"); err != nil {
		t.Fatalf("mount a small file system: %v; the tests run as root", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, 0) })
	look := func(want string, nearly bool) {
		t.Helper()
		err := Room(dir)
		var room *RoomError
		switch {
		case want == "" && err == nil:
		case want == "", !errors.As(err, &room), !strings.Contains(err.Error(), dir+" "+want), room.Nearly != nearly:
			t.Errorf("%v, want %q, nearly %v", err, want, nearly)
		}
	}
	look("", false)
	fill := func(name string, size int) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o600); err != nil && !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
	fill("most", 13<<20)
	look("is nearly full", true)
	fill("rest", 16<<20)
	look("is full", false)
	if err := os.Remove(filepath.Join(dir, "most")); err != nil {
		t.Fatal(err)
	}
	look("", false)
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	look("is read-only", false)
	if err := Room(dir + "/none"); err == nil {
		t.Error("a directory that is not there has room")
	}
}

// TestTight: what statfs(2) says of disks of other kinds.
func TestTight(t *testing.T) {
	roomy := unix.Statfs_t{Bsize: 4096, Bfree: 1 << 20, Files: 100, Ffree: 50}
	for _, tt := range []struct {
		name string
		st   func(*unix.Statfs_t)
		want string
	}{
		{"room", func(*unix.Statfs_t) {}, ""},
		{"what is reserved for root", func(st *unix.Statfs_t) { st.Bavail = 0 }, ""},
		{"btrfs counts no inodes", func(st *unix.Statfs_t) { st.Files, st.Ffree = 0, 0 }, ""},
		{"no inode", func(st *unix.Statfs_t) { st.Ffree = 0 }, "no inode left"},
		{"three blocks", func(st *unix.Statfs_t) { st.Bfree = 3 }, "is full"},
		{"a few", func(st *unix.Statfs_t) { st.Bfree = 100 }, "400 KiB"},
		{"large blocks", func(st *unix.Statfs_t) { st.Bsize, st.Bfree = 1<<20, 10 }, ""},
	} {
		st := roomy
		tt.st(&st)
		if got, _ := tight(st); !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
