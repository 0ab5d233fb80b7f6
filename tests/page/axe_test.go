package page

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// axe is what looks for what keeps people out: axe-core, of the npm registry, which scripts/setup puts there.
var axe = filepath.Join(root, "build", "axe-core", "axe.min.js")

// TestAxe is skipped where the screens are shown without axe-core: not everybody has npm's registry.
func TestAxe(t *testing.T) {
	if _, err := os.Stat(axe); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("no screen is looked at by axe-core: run scripts/setup page, which takes npm")
		}
		t.Skip("no screen is looked at by axe-core: run scripts/setup page, which takes npm")
	}
}

// prepareAxe has axe-core in the page. It comes by the debugger, which the page's policy has no say in.
func prepareAxe(t *testing.T, b *Tab) {
	t.Helper()
	script, err := os.ReadFile(axe)
	if err != nil {
		t.Log("not looked at by axe-core: run scripts/setup page, which takes npm")
		return
	}
	_, err = Eval[any](b, string(script)+"; null")
	must(t, err)
}

// violations are what axe finds in the page as it is shown: contrast, names, roles, order, ... Of some rules: what
// they say.
func violations(t *testing.T, b *Tab, rules ...string) []string {
	t.Helper()
	only, err := json.Marshal(map[string]any{"resultTypes": []string{"violations"}, "runOnly": rules})
	must(t, err)
	if len(rules) == 0 {
		only = []byte(`{"resultTypes": ["violations"]}`)
	}
	list, err := Eval[[]string](b, `window.axe && axe.run(document, `+string(only)+`).then((r) => r.violations.map((v) =>
		v.id + ": " + v.help + ": " + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200) + " " + n.any.map((a) => a.message).join("; ")).join("\n    ")))`)
	must(t, err)
	return list
}
