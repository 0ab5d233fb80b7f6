package guard

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// TestBridges: which bridges are Docker's, and which of internal networks, the next agent
// knows before Docker has told it.
func TestBridges(t *testing.T) {
	networks := []docker.Network{
		{ID: "0123456789abcdef", Driver: "bridge"},
		{ID: "1123456789abcdef", Driver: "bridge", Internal: true},
		{ID: "2123456789abcdef", Driver: "bridge", Options: map[string]string{"com.docker.network.bridge.name": "mine"}},
		{ID: "3123456789abcdef", Driver: "overlay"},
	}
	want := []bridge{{"br-0123456789ab", false}, {"br-1123456789ab", true}, {"mine", false}}
	got := bridgesOf(networks)
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	run := filepath.Join(t.TempDir(), "run")
	g := &Guard{notes: notesIn(run)}
	if all := g.remembered(); all != nil {
		t.Errorf("before: %v", all)
	}
	if err := g.remember(got); err != nil {
		t.Fatal(err)
	}
	// Somebody empties the run directory: the next agent reads it all the same.
	if err := os.RemoveAll(run); err != nil {
		t.Fatal(err)
	}
	if err := g.notes.keep(); err != nil {
		t.Fatal(err)
	}
	if all := (&Guard{notes: notesIn(run)}).remembered(); !slices.Equal(all, want) {
		t.Errorf("%v, want %v", all, want)
	}
	if got, err := os.ReadDir(run); err != nil || len(got) != 1 {
		t.Errorf("the run directory has %v, %v: notes that were never made", got, err)
	}
	if err := g.memory.set(""); err != nil {
		t.Fatal(err)
	}
	if err := g.memory.keep(); err != nil {
		t.Fatal(err)
	}
	if all := (&Guard{notes: notesIn(run)}).remembered(); all != nil {
		t.Errorf("after it was taken back: %v", all)
	}
}

// TestIsDockers: while the rules are being set, which may wait for iptables' lock, nobody waits to be told which bridges
// are Docker's.
func TestIsDockers(t *testing.T) {
	linktest.New(t).Do(func() {
		g := New(Config{Run: t.TempDir()})
		g.knows([]bridge{{name: "mine"}})
		g.mu.Lock()
		defer g.mu.Unlock()
		for name, want := range map[string]bool{"mine": true, "docker0": true, "br-0123456789ab": true, "other": false} {
			if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}); err != nil {
				t.Fatal(err)
			}
			l, err := netlink.LinkByName(name)
			if err != nil {
				t.Fatal(err)
			}
			if got := g.IsDockers(l.Attrs().Index); got != want {
				t.Errorf("%s is Docker's: %v", name, got)
			}
		}
		if g.IsDockers(999999) {
			t.Error("an interface that is not there is Docker's")
		}
	})
}
