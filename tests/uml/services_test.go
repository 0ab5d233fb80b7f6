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

// TestServices has a service's rules lead on Linux 6.1, which Debian bookworm has, and prints how many connections a second go by them
// and by IPVS, in turns. It is run by hand, as TestEncryption is: Debian's User-Mode Linux has no nf_tables for IP without those modules.
// It takes the package ipvsadm.
func TestServices(t *testing.T) {
	if *modules == "" {
		t.Skip(`by hand: -modules "$(scripts/kernel-modules)"`)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	program := filepath.Join(t.TempDir(), "inside.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", program, "../../service/inside")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the tests: %v: %s", err, out)
	}
	l, err := lab.New(ctx, lab.Options{Hosts: 1, Kind: lab.UML, Modules: *modules, Progress: func(line string) { t.Log(line) }})
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
	out, err := l.Hosts[0].Exec(ctx, "sh", "-c", "uname -r; modprobe ip_vs; modprobe ip_vs_rr; CI=1 "+there+" -ipvs -test.v -test.run='^Test(IPVS|Balance|Change)$'")
	t.Log(out)
	if err != nil || !strings.HasPrefix(out, "6.1.") || !strings.Contains(out, "--- PASS: TestIPVS") {
		t.Errorf("services on a kernel of bookworm: %v", err)
	}
}
