package agent

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/grapevine-net/grapevine/host/docker"
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
	g := &guard{memory: filepath.Join(t.TempDir(), bridgesNote)}
	if all := g.remembered(); all != nil {
		t.Errorf("before: %v", all)
	}
	if err := g.remember(got); err != nil {
		t.Fatal(err)
	}
	if all := g.remembered(); !slices.Equal(all, want) {
		t.Errorf("%v, want %v", all, want)
	}
}
