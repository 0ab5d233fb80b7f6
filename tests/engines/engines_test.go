// Package engines runs scenarios on other releases of Docker and Open vSwitch: those of
// the Debian trees of scripts/tree. docs/operate/engines.md says which they are.
package engines

import (
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/tests/lab"
	"github.com/grapevine-net/grapevine/tests/scenario"
	"github.com/grapevine-net/grapevine/tests/turns"
)

var all = flag.Bool("all", false, "every scenario, with and without live-restore, and on the machine's own Docker too, instead of the core")

// byTurns is for a run of all tests, of which the processors' time is short.
var byTurns = flag.Bool("turns", false, "each scenario of the core on one of the engines: which one, takes turns by the hour")

func TestMain(m *testing.M) { lab.Main(m) }

// core are the scenarios that show what differs most between engines: names, dockerd's restart, its rules of iptables, when it
// tells labels, and its start with containers that wait for the plugin.
var core = map[string][]string{
	"scenarios": {"../scenarios/names.txtar", "../scenarios/docker-restart.txtar", "../scenarios/isolation.txtar", "policies.txtar"},
	"plugin":    {"../plugin/boot.txtar"},
}

// asked is what moby asks of networks, which takes a minute an engine: it is asked of the machine's own in the tier lab, of
// the others once in six hours each, and of all of them with -all.
const asked = "../scenarios/moby-networks.txtar"

// newest are the scenarios for the newest engine: networks of IPv6 alone, which no older one can
// do.
//
// None of them pings a container by its own host name: these engines write that with ::ffff: into /etc/hosts (docs/operate/engines.md).
var newest = []string{"ipv6-alone.txtar"}

// wide is what takes minutes, and is run with -all: what moby asks of containers on networks.
const wide = "moby-containers.txtar"

// plugin is where scripts/build-plugin lays it out.
const plugin = "../../build/plugin"

// TestEngines runs scenarios as TestEngines/ENGINE/scenarios|plugin/live-restore|ending/NAME;
// ending is without live-restore, where containers end with dockerd.
func TestEngines(t *testing.T) {
	engines, ways, files := []string{"trixie", "forky"}, []string{"live-restore"}, core
	if *all {
		engines, ways, files = []string{"machine", "trixie", "forky"}, []string{"live-restore", "ending"}, every(t)
	}
	for i, engine := range engines {
		files := files
		if *byTurns && !*all {
			files = share(files, len(engines), (i+turns.Of(len(engines)))%len(engines))
			hour := turns.Of(rareHours)
			if asksMoby(i, hour) {
				files["scenarios"] = append(files["scenarios"], asked)
			}
			files["scenarios"] = append(files["scenarios"], withFirewalls(i, hour)...)
		}
		t.Run(engine, func(t *testing.T) {
			opts := options(t, engine)
			for _, directory := range slices.Sorted(maps.Keys(files)) {
				for _, way := range ways {
					opts.Swarm = way == "ending"
					of := files[directory]
					if engine == "forky" && directory == "scenarios" {
						of = slices.Compact(slices.Sorted(slices.Values(slices.Concat(of, newest))))
					}
					if *all && directory == "scenarios" {
						of = append(slices.Clone(of), wide)
					}
					if len(of) == 0 {
						continue
					}
					t.Run(directory+"/"+way, func(t *testing.T) { scenario.Run(t, opts, of...) })
				}
			}
		})
	}
}

// rareHours is how often each engine is asked what moby asks, and has each of the scenarios with firewalls.
const rareHours = 6

// firewalls are scenarios with real ufw and firewalld, a minute each. In the tier lab they are on the machine's own engine.
var firewalls = []string{"../scenarios/isolation-firewalls.txtar", "../scenarios/ufw-firewalld.txtar"}

// withFirewalls is the one that the engine of that number has in that hour of rareHours, if it has one: not in those of asksMoby.
func withFirewalls(engine, hour int) []string {
	if hour%3 == 1 || hour%3/2 != engine {
		return nil
	}
	return firewalls[hour/3 : hour/3+1]
}

// asksMoby reports whether the engine of that number is asked in that hour of rareHours.
func asksMoby(engine, hour int) bool { return hour == 1+3*engine }

// share is one of n parts of the scenarios.
func share(files map[string][]string, n, part int) map[string][]string {
	shared := map[string][]string{}
	i := 0
	for _, directory := range slices.Sorted(maps.Keys(files)) {
		list := slices.Sorted(slices.Values(files[directory]))
		shared[directory] = turns.Part(list, n, ((part-i)%n+n)%n)
		i += len(list)
	}
	return shared
}

// TestShare: each scenario of the core is in one part, and each part has some.
func TestShare(t *testing.T) {
	const parts = 2
	seen := map[string]int{}
	for part := range parts {
		n := 0
		for _, files := range share(core, parts, part) {
			for _, file := range files {
				seen[file]++
				n++
			}
		}
		if n == 0 {
			t.Errorf("part %d has nothing", part)
		}
	}
	for _, files := range core {
		for _, file := range files {
			if seen[file] != 1 {
				t.Errorf("%s is in %d parts", file, seen[file])
			}
		}
	}
}

// TestEachHasWhatIsRare: what moby asks and each scenario with firewalls once in six hours, and never two in one.
func TestEachHasWhatIsRare(t *testing.T) {
	var asked [2]int
	var had [2][]string
	for hour := range rareHours {
		now := 0
		for engine := range asked {
			if asksMoby(engine, hour) {
				asked[engine]++
				now++
			}
			files := withFirewalls(engine, hour)
			had[engine] = append(had[engine], files...)
			now += len(files)
		}
		if now > 1 {
			t.Errorf("hour %d has %d of them", hour, now)
		}
	}
	if asked != [2]int{1, 1} {
		t.Errorf("asked %v times", asked)
	}
	for engine, files := range had {
		if slices.Sort(files); !slices.Equal(files, firewalls) {
			t.Errorf("engine %d has %v", engine, files)
		}
	}
}

// every lists all scenarios, by directory.
func every(t *testing.T) map[string][]string {
	t.Helper()
	files := map[string][]string{}
	for directory := range core {
		found, err := filepath.Glob(filepath.Join("..", directory, "*.txtar"))
		if err != nil || len(found) == 0 {
			t.Fatalf("no scenarios in %s: %v", directory, err)
		}
		for _, file := range core[directory] {
			if filepath.Dir(file) == "." { // of this tier alone
				found = append(found, file)
			}
		}
		files[directory] = found
	}
	return files
}

func options(t *testing.T, engine string) lab.Options {
	t.Helper()
	if _, err := os.Stat(filepath.Join(plugin, "config.json")); err != nil {
		t.Fatalf("no plugin to test: %v; run scripts/build-plugin --directory build/plugin", err)
	}
	opts := lab.Options{Kind: lab.Namespace, Plugin: plugin}
	dockerd := exec.CommandContext(t.Context(), "dockerd", "--version")
	switch engine {
	case "machine":
		opts.Compose = script(t, "compose")
	default:
		opts.Tree, opts.Compose = script(t, "tree", engine), script(t, "compose", engine)
		dockerd = exec.CommandContext(t.Context(), "chroot", opts.Tree, "dockerd", "--version")
	}
	version, err := dockerd.Output()
	if err != nil {
		t.Fatalf("%v: %v", dockerd.Args, err)
	}
	t.Logf("%s: %s", engine, version)
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
