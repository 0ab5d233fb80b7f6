package link

import "testing"

func TestCountsByCgroup(t *testing.T) {
	for release, want := range map[string]bool{
		"6.12.0-1-amd64": true, "5.11.0": true, "5.15-rc1": true, "10.0.1": true,
		"5.10.0-30-amd64": false, "4.19.0": false, "5": false, "": false,
	} {
		if got := countsByCgroup(release); got != want {
			t.Errorf("countsByCgroup(%q) = %v, want %v", release, got, want)
		}
	}
}
