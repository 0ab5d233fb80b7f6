// Package engines runs scenarios on other releases of Docker and Open vSwitch: those of
// the Debian trees of scripts/tree. docs/engines.md says which they are.
package engines

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/tests/lab"
	"github.com/grapevine-net/grapevine/tests/scenario"
)

var all = flag.Bool("all", false, "every scenario, with and without live-restore, and on the machine's own Docker too, instead of the core")

func TestMain(m *testing.M) { lab.Main(m) }

// core are the scenarios that show what differs most between engines: names, networks of
// IPv6 alone, dockerd's restart, and its start with containers that wait for the plugin.
var core = []string{
	"../scenarios/names.txtar", "../scenarios/docker-restart.txtar", "../scenarios/ipv6-alone.txtar", "../plugin/boot.txtar",
}

// plugin is where scripts/build-plugin lays it out.
const plugin = "../../build/plugin"

func TestCore(t *testing.T) {
	if *all {
		t.Skip("-all has these too")
	}
	for _, suite := range []string{"trixie", "forky"} {
		t.Run(suite, func(t *testing.T) { scenario.Run(t, options(t, suite), core...) })
	}
}

func TestAll(t *testing.T) {
	if !*all {
		t.Skip("without -all only the core is run")
	}
	for _, suite := range []string{"machine", "trixie", "forky"} {
		t.Run(suite, func(t *testing.T) {
			for _, files := range []string{"scenarios", "plugin"} {
				t.Run(files, func(t *testing.T) { both(t, suite, filepath.Join("..", files, "*.txtar")) })
			}
		})
	}
}

// both runs scenarios with and without live-restore.
func both(t *testing.T, suite, pattern string) {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	opts := options(t, suite)
	t.Run("live-restore", func(t *testing.T) { scenario.Run(t, opts, files...) })
	opts.Swarm = true
	t.Run("ending", func(t *testing.T) { scenario.Run(t, opts, files...) })
}

func options(t *testing.T, suite string) lab.Options {
	t.Helper()
	if _, err := os.Stat(filepath.Join(plugin, "config.json")); err != nil {
		t.Fatalf("no plugin to test: %v; run scripts/build-plugin --directory build/plugin", err)
	}
	opts := lab.Options{Kind: lab.Namespace, Plugin: plugin}
	dockerd := exec.CommandContext(t.Context(), "dockerd", "--version")
	switch suite {
	case "machine":
		opts.Compose = script(t, "compose")
	default:
		opts.Tree, opts.Compose = script(t, "tree", suite), script(t, "compose", suite)
		dockerd = exec.CommandContext(t.Context(), "chroot", opts.Tree, "dockerd", "--version")
	}
	version, err := dockerd.Output()
	if err != nil {
		t.Fatalf("%v: %v", dockerd.Args, err)
	}
	t.Logf("%s: %s", suite, version)
	return opts
}

// script runs one of scripts/ that prints a path.
func script(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join("../../scripts", name), args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("scripts/%s %v: %v", name, args, err)
	}
	return strings.TrimSpace(string(out))
}
