package uml

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// The fast path's programs pass the checks of Linux 6.1, which Debian bookworm has: newer kernels follow more of what a compiler
// makes, and take what that one refuses. Where they are refused a host is without its fast path.
func TestPrograms(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	program := filepath.Join(t.TempDir(), "fastpath.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", program, "../../overlay/fastpath")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the fast path's tests: %v: %s", err, out)
	}
	l, err := lab.New(ctx, lab.Options{Hosts: 1, Kind: lab.UML, Progress: func(line string) { t.Log(line) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	there, err := l.Share(program)
	if err != nil {
		t.Fatal(err)
	}
	out, err := l.Hosts[0].Exec(ctx, "sh", "-c", "uname -r; CI=1 "+there+" -test.v -test.run='^TestVerified$'")
	t.Log(out)
	if err != nil || !strings.HasPrefix(out, "6.1.") || !strings.Contains(out, "--- PASS: TestVerified") {
		t.Errorf("the fast path's programs on a kernel of bookworm: %v", err)
	}
}
