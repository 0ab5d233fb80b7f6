package membership

import (
	"strings"
	"testing"
)

// TestAttachedText: in whole words, and not all of a hundred names.
func TestAttachedText(t *testing.T) {
	for want, names := range map[string][]string{
		"1 container is attached to networks on this host (app)":       {"app"},
		"2 containers are attached to networks on this host (app, db)": {"app", "db"},
	} {
		if got := attachedText(names); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := attachedText(strings.Fields(strings.Repeat("x ", 100))); !strings.HasPrefix(got, "100 containers are") || len(got) > 100 {
		t.Errorf("%q", got)
	}
}
