package lab_test

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
)

const victimVar = "LAB_TEST_VICTIM"

// A process that is killed takes its hosts with it, and the next lab removes what
// is left.
func TestOwnerKilled(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestVictim$")
	cmd.Env = append(os.Environ(), victimVar+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	name := ""
	for lines := bufio.NewScanner(out); name == "" && lines.Scan(); {
		name, _ = strings.CutPrefix(lines.Text(), "victim ")
		if name == lines.Text() {
			name = ""
		}
	}
	if name == "" {
		t.Fatal("the victim did not start a lab")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if !eventuallyListed(name+" dead, 0 boxes", true) {
		t.Errorf("the lab of a killed process: %q", lab.List())
	}
	if err := lab.Clean(false); err != nil {
		t.Fatal(err)
	}
	if !eventuallyListed(name, false) {
		t.Errorf("after Clean there are %q", lab.List())
	}
}

// eventuallyListed waits until List has an entry that begins so, or has none.
func eventuallyListed(prefix string, want bool) bool {
	for range 100 {
		found := false
		for _, line := range lab.List() {
			found = found || strings.HasPrefix(line, prefix)
		}
		if found == want {
			return true
		}
		time.Sleep(50 * time.Millisecond)
	}
	return false
}

// TestVictim is the process that TestOwnerKilled kills; by itself it only shows
// that a lab can be started and listed.
func TestVictim(t *testing.T) {
	_, l := newLab(t, lab.Options{Hosts: 1})
	if !eventuallyListed(l.ID()+" alive, 3 boxes", true) {
		t.Errorf("the lab is not listed: %q", lab.List())
	}
	if os.Getenv(victimVar) != "" {
		os.Stdout.WriteString("victim " + l.ID() + "\n")
		time.Sleep(time.Minute)
	}
}
