package plugin

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// shared are scenarios of the agent's that the plugin passes as well, step by step.
var shared = []string{"ufw-firewalld.txtar", "isolation-firewalls.txtar", "../engines/policies.txtar"}

// install is the plugin's way to begin on a host that the lab knows.
const install = `$1 docker plugin create grapevine /lab/plugin
$1 docker plugin set grapevine GRAPEVINE_JOIN=$$JOIN GRAPEVINE_KEY=$$KEY
$1 docker plugin enable grapevine`

// asPlugin are lines of such a scenario, and what the plugin has in their place.
var asPlugin = []struct {
	line *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`(?m)^(hosts \d+ without agents.*)$`), "$1"},
	{regexp.MustCompile(`(?m)^hosts 2$`), "hosts 2 without agents\n" + strings.ReplaceAll(install, "$1", "host1") + "\n" +
		strings.ReplaceAll(install, "$1", "host2") + "\njoined"},
	{regexp.MustCompile(`(?m)^agent start (host\d)$`), install},
	{regexp.MustCompile(`(?m)^agent (?:restart|kill) (host\d)$`), "$1 docker plugin disable -f grapevine\n$1 docker plugin enable grapevine"},
	{regexp.MustCompile(`-d grapevine --ipam-driver grapevine `), "-d grapevine:latest --ipam-driver grapevine:latest "},
	{regexp.MustCompile(`(?m)^isolation grapevine$`), "isolation grapevine grapevine:latest"},
}

// withPlugin writes such a scenario as the plugin's.
func withPlugin(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../scenarios", name))
	if err != nil {
		t.Fatal(err)
	}
	steps := string(text)
	for _, a := range asPlugin {
		steps = a.line.ReplaceAllString(steps, a.with)
	}
	if line := regexp.MustCompile(`(?m)^(agent .*|hosts \d+( with.*| GRAPEVINE.*)?|.*-d grapevine .*)$`).FindString(steps); line != "" && !strings.Contains(line, "without agents") {
		t.Fatalf("%s: the plugin has nothing in the place of %q: add it to asPlugin", name, line)
	}
	file := filepath.Join(t.TempDir(), filepath.Base(name))
	if err := os.WriteFile(file, []byte(steps), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
