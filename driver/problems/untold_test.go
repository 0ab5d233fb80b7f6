package problems

import (
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/driver"
)

func TestUntold(t *testing.T) {
	p := untoldProblem(driver.Untold{Container: "web", Network: "blue", Aliases: []string{"a\x00", "b\xff", "c", "d", "e"}})
	if want := `container web has aliases on the network blue that the other hosts do not know: "a\x00", "b\xff", "c" and 2 more`; p.What != want || !strings.Contains(p.Do, "24 kB") {
		t.Errorf("%q, %q", p.What, p.Do)
	}
}
