package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnits holds that systemd finds nothing wrong with the units (where it can be asked), and that it starts an
// agent again however often that ended.
func TestUnits(t *testing.T) {
	dir := t.TempDir()
	var copies []string
	for _, name := range []string{"grapevine.service", "grapevine-guard.service"} {
		text, err := os.ReadFile("../../scripts/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if name == "grapevine.service" {
			unit, _, _ := strings.Cut(string(text), "[Service]")
			for _, line := range []string{"StartLimitIntervalSec=0", "Before=docker.service"} {
				if !strings.Contains(unit, "\n"+line+"\n") {
					t.Errorf("%s: no line %s in [Unit]", name, line)
				}
			}
		}
		// It wants the program to be there.
		to := filepath.Join(dir, name)
		if err := os.WriteFile(to, []byte(strings.ReplaceAll(string(text), "/usr/local/bin/grapevine", "/bin/true")), 0o600); err != nil {
			t.Fatal(err)
		}
		copies = append(copies, to)
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		return
	}
	if out, err := exec.Command("systemd-analyze", append([]string{"verify", "--man=no"}, copies...)...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v: %s", err, out)
	}
}
