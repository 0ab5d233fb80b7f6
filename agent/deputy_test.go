package agent

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// TestFailedAgentLeavesNoDeputy: an agent that does not get as far as to serve leaves a deputy only where it took one's
// place: a second one, with a socket of its own, would leave one for good.
func TestFailedAgentLeavesNoDeputy(t *testing.T) {
	dir := t.TempDir()
	state := filepath.Join(dir, "state") // a file is no directory
	if err := os.WriteFile(state, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ns := linktest.New(t)
	there := func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	}
	fail := func(name string) (mark string) {
		t.Helper()
		mark = filepath.Join(dir, name)
		cfg := config.Config{PluginSocket: filepath.Join(dir, name+".sock"), Run: dir, State: state}
		if name == "successor" {
			go ns.Do(func() { _ = Deputise(t.Context(), cfg.PluginSocket) })
			for end := time.Now().Add(time.Minute); !there(cfg.PluginSocket); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("there is no deputy")
				}
			}
		}
		if err := Run(t.Context(), cfg, "1", []string{"touch", mark}, slog.New(slog.DiscardHandler)); err == nil {
			t.Fatal("it has begun")
		}
		return mark
	}
	ns.Do(func() {
		port := link.PortName(strings.Repeat("a", 64))
		if out, err := exec.Command("sh", "-c", "ip link add "+port+" type veth peer name p && ip link set "+port+" alias 'grapevine endpoint "+strings.Repeat("a", 64)+"'").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		second, successor := fail("second"), fail("successor")
		for end := time.Now().Add(time.Minute); !there(successor); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("one that took a deputy's place leaves none")
			}
		}
		if there(second) {
			t.Error("an agent that failed at its start left a deputy")
		}
	})
}
