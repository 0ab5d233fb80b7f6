package lab

import (
	"crypto/rand"
	"path/filepath"
	"testing"
	"time"
)

// TestProcessorsAreCounted: what the processors do in a box is counted, also by what its server starts.
func TestProcessorsAreCounted(t *testing.T) {
	id := "gvlabcpu" + rand.Text()[:6]
	if newMeter(id) == "" {
		t.Skip("no cgroup counts what the processors do")
	}
	dir := filepath.Join(t.TempDir(), id, "box")
	b, err := startBox(dir, boxSpec{Hostname: "box", Net: netSpec{IP: []string{"link set lo up"}}}, boxNamespaces)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.run(t.Context(), request{Argv: []string{"sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"}})
	b.kill()
	got := counted(id)
	if err := removeMeters(id); err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got < 50*time.Millisecond {
		t.Errorf("%s are counted", got)
	}
}
