package link

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestReadAgain: a file is read whole, and an error is os.ReadFile's.
func TestReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, size := range []int{0, 1, 511, 512, 513, 100_000} {
		want := bytes.Repeat([]byte{'x'}, size)
		if err := os.WriteFile(path, want, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadAgain(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("of %d bytes %d are read: %v", size, len(got), err)
		}
	}
	if got, err := ReadAgain("/proc/filesystems"); err != nil || !bytes.Contains(got, []byte("proc\n")) {
		t.Errorf("/proc/filesystems: %q, %v", got, err)
	}
	if _, err := ReadAgain(path + ".none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := ReadAgain(t.TempDir()); !errors.Is(err, unix.EISDIR) {
		t.Errorf("a directory: %v", err)
	}
}

// TestHeld: a file is as it is now, whatever becomes of the interface that it is of.
func TestHeld(t *testing.T) {
	runtime.LockOSThread() // and for good: the thread ends with this goroutine, and its namespace with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("a network namespace: %v", err)
	}
	path := "/proc/sys/net/ipv4/conf/held0/arp_ignore"
	h := NewHeld(path)
	defer h.Close()
	is := func(want string) {
		t.Helper()
		for range 2 {
			got, err := h.Read()
			if want == "" && !errors.Is(err, fs.ErrNotExist) || want != "" && (err != nil || string(got) != want) {
				t.Errorf("%q, %v, want %q", got, err, want)
			}
		}
	}
	set := func(to string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(to), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	is("")
	for range 2 {
		pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "held0"}, PeerName: "held1"}
		if err := netlink.LinkAdd(pair); err != nil {
			t.Fatal(err)
		}
		is("0\n")
		set("1")
		is("1\n")
		if err := netlink.LinkDel(pair); err != nil {
			t.Fatal(err)
		}
		is("")
	}
	big := filepath.Join(t.TempDir(), "file")
	for _, size := range []int{0, 511, 512, 513, 100_000} {
		want := bytes.Repeat([]byte{'x'}, size)
		if err := os.WriteFile(big, want, 0o600); err != nil {
			t.Fatal(err)
		}
		b := NewHeld(big)
		for range 2 {
			if got, err := b.Read(); err != nil || !bytes.Equal(got, want) {
				t.Errorf("of %d bytes %d are read: %v", size, len(got), err)
			}
		}
		b.Close()
	}
}

// TestNews: it is worth looking first of all, after each change, after more changes than the kernel keeps, and now and then.
func TestNews(t *testing.T) {
	runtime.LockOSThread() // and for good: the thread ends with this goroutine, and its namespace with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("a network namespace: %v", err)
	}
	n := NewNews(LinkChange, AddrChange, RouteChange)
	defer n.Close()
	now := time.Now()
	ask := func(want bool, when string) {
		t.Helper()
		if got := n.Any(now); got != want {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	ask(true, "first")
	ask(false, "nothing has changed")
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	ask(false, "somebody has looked")
	if err := netlink.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	ask(true, "an interface is up")
	ask(false, "nothing has changed since")
	for i := range 3000 {
		if err := netlink.LinkSetMTU(lo, 9000+i); err != nil {
			t.Fatal(err)
		}
	}
	ask(true, "more than there is room for")
	ask(false, "nothing has changed since that")
	now = now.Add(newsAtLatest)
	ask(true, "after a while")
	ask(false, "just behind that")
	n.Close()
	ask(true, "closed, and begun anew")
}
