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
