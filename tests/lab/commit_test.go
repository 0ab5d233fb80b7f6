package lab

import (
	"path/filepath"
	"strings"
	"testing"
)

// A clone without the history says so.
func TestCommitThatIsNotHere(t *testing.T) {
	err := (&Lab{}).buildCommit(t.Context(), strings.Repeat("0", 40), filepath.Join(t.TempDir(), "grapevine"))
	if err == nil || !strings.Contains(err.Error(), "not in this clone") || !strings.Contains(err.Error(), "--unshallow") {
		t.Error(err)
	}
}
