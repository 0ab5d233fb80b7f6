package scenario

import (
	"os"
	"strings"
	"testing"
)

// TestIsolationTable: docs/use/isolation.md says what the scenario holds.
func TestIsolationTable(t *testing.T) {
	text, err := os.ReadFile("../../docs/use/isolation.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), Isolation.Text) {
		t.Errorf("docs/use/isolation.md does not have this table:\n%s", Isolation.Text)
	}
	for _, from := range places {
		for _, to := range places {
			_, known := Isolation.want(from, to, false)
			if dash := Isolation.cells[[2]string{from.kind, to.kind}] == "-"; !known && !dash {
				t.Errorf("from %s to %s the table says nothing", from.kind, to.kind)
			}
		}
	}
}
