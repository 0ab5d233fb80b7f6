package ovs

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestCannotTrack: a kernel without zones of conntrack (User-Mode Linux's) has the rest.
func TestCannotTrack(t *testing.T) {
	const features = `Masked set action: Yes
Max VLAN headers: 2
Recirc: Yes
CT state: Yes
CT zone: No
CT mark: Yes
CT label: Yes
CT state NAT: Yes
CT orig tuple: Yes
`
	if got, want := cannotTrack([]byte(features)), []string{"CT zone", "CT orig tuple for IPv6"}; !slices.Equal(got, want) {
		t.Errorf("it lacks %q, want %q", got, want)
	}
}

// TestAppctlKeepsPidFile: a pid file of a process that is not to be seen, as the host's own from
// within the managed plugin, stays.
func TestAppctlKeepsPidFile(t *testing.T) {
	i := &Instance{RunDir: t.TempDir()}
	pid := filepath.Join(i.RunDir, "ovs-vswitchd.pid")
	if err := os.WriteFile(pid, []byte("199\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := i.Appctl(t.Context(), "version"); err == nil {
		t.Error("nobody is there, and answers")
	}
	if _, err := os.Stat(pid); err != nil {
		t.Error(err)
	}
}
