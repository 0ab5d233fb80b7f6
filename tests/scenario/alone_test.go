package scenario

import "testing"

// TestAlone: a script that failed says how to run it by itself.
func TestAlone(t *testing.T) {
	for _, tt := range []struct{ dir, name, want string }{
		{"/src/tests", "TestScenarios/names", "go test ./tests -run '^TestScenarios$/^names$' -count=1 -v"},
		{"/src/tests/plugin", "TestPlugin/life", "go test ./tests/plugin -run '^TestPlugin$/^life$' -count=1 -v"},
	} {
		if got := alone(tt.dir, tt.name); got != tt.want {
			t.Errorf("%s: %s", tt.name, got)
		}
	}
}

// TestKeeps: the first lab of a failure stays for who runs it by hand, and none in CI.
func TestKeeps(t *testing.T) {
	for _, tt := range []struct {
		kept     int
		keep, ci string
		want     bool
	}{
		{0, "", "", true},
		{1, "", "", false},
		{0, "", "true", false},
		{0, "0", "", false},
		{3, "1", "true", true},
	} {
		if got := keeps(tt.kept, func(name string) string { return map[string]string{"KEEP": tt.keep, "CI": tt.ci}[name] }); got != tt.want {
			t.Errorf("%+v: %t", tt, got)
		}
	}
}
