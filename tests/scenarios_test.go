// Package tests runs the scenarios of tests/scenarios on hosts made of namespaces;
// tests/uml runs the main ones on kernels of their own.
package tests

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
	"github.com/grapevine-net/grapevine/tests/scenario"
	"github.com/grapevine-net/grapevine/tests/turns"
)

var compose = flag.String("compose", "trixie", "the Debian whose Docker Compose the hosts have")

var tree = flag.String("tree", "", "a debootstrapped Debian whose programs the hosts use: another release of Docker")

var env = flag.String("env", "", "settings of all agents, separated by spaces: GRAPEVINE_FASTPATH=on")

// byTurns is for a run of all tests, of which the processors' time is short.
var byTurns = flag.Bool("turns", false, "of the scenarios that are rare, a third: which, takes turns by the hour")

// rare are scenarios of which a run of all tests has one of each row. Behind the row is which others have the core of it in every run.
// Each turn has as much to do as the others.
var rare = [][3]string{
	{"hundred-containers", "moby-networks", "short-lived"},        // one-network, network-command, network-removed
	{"eight-hosts", "encrypted", "ipsec"},                         // one-network, encrypted-network
	{"cut-wire", "forget-after", "addresses-freed"},               // paths-cut, forget, docker-ends
	{"isolation-firewalls", "compose-examples", "ufw-firewalld"},  // isolation, compose, firewalls
	{"mtu", "multicast", "leaked"},                                // paths-cut, fastpath, versions
	{"published-survive", "published-ends", "published-isolated"}, // published-ports, isolation
	{"switch-wiped", "names-survive", "names-isolated"},           // agent-restart, names, names-live
	{"client", "limits", "bgp"},                                   // examples
	{"global-network", "reach", "ipv6-underlay"},                  // network-command, reach-underlay, ipv6
	{"listed-endpoint", "edge-host", "host-reaches"},              // docker-ends, one-network, isolation
	{"published-forms", "underlay-moves", "second-address"},       // published-ports, advertise
	{"policy-cases", "portscan", "bare"},                          // policy, metrics, fastpath
	{"encrypted-removed", "policy-keys", "encrypted-nat"},         // encrypted-gone, policy, advertise
	{"", "", "client-stolen"},                                     // client
}

// rareWithin is by when the rare ones begin in a run of all tests, whose time is short: the others take 8 to 12 minutes, and on a machine
// half as fast 20.
const rareWithin = 15 * time.Minute

func TestMain(m *testing.M) { lab.Main(m) }

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("scenarios/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	turn := map[string]int{}
	for _, row := range rare {
		for i, name := range row {
			if name == "" {
				continue // that turn has enough to do
			}
			file := "scenarios/" + name + ".txtar"
			if _, twice := turn[file]; twice || !slices.Contains(files, file) {
				t.Fatalf("%s is among the rare ones, and is no scenario, or is there twice", name)
			}
			turn[file] = i
		}
	}
	var others []string
	if *byTurns {
		now := turns.Of(len(rare[0]))
		files = slices.DeleteFunc(files, func(file string) bool {
			i, is := turn[file]
			if is && i == now {
				others = append(others, file)
			}
			return is
		})
	}
	script := exec.CommandContext(t.Context(), "../scripts/compose", *compose)
	script.Stderr = os.Stderr
	program, err := script.Output()
	if err != nil {
		t.Fatalf("scripts/compose: %v", err)
	}
	opts := lab.Options{Kind: lab.Namespace, Tree: *tree, Compose: strings.TrimSpace(string(program)), AgentEnv: strings.Fields(*env)}
	scenario.RunBefore(t, opts, files, others, rareWithin)
}
