package watch

import (
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/diagnose/paths"
)

// TestContactProblems: what does not pass is named with the hosts, why, since when and what to do;
// hosts that are not alive are another problem's.
func TestContactProblems(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 30, 0, time.Local)
	nodes := []api.Node{
		{ID: "a", Name: "one", Alive: true, Self: true},
		{ID: "b", Name: "two", Alive: true}, {ID: "c", Name: "three", Alive: true}, {ID: "d", Name: "four"}, {ID: "e", Name: "five", Alive: true},
	}
	since := now.Add(-10 * time.Second)
	late := &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
	refused := fmt.Errorf("call: %w", &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)})
	got := contactProblems([]paths.Contact{
		{Host: "b", Trouble: paths.NoPackets, Since: since},
		{Host: "c", Trouble: paths.NoPackets, Since: since.Add(-time.Minute)},
		{Host: "d", Trouble: paths.NoStream, Since: since, Err: late},
		{Host: "e", Trouble: paths.NoStream, Since: since, Err: refused},
	}, nodes, 7947, now)
	want := [][2]string{
		{"TCP port 7947 of host five cannot be connected to from here (connection refused), though UDP passes", "12:00:20"},
		{"UDP port 7947 does not pass between this host and hosts three and two, though TCP does", "11:59:20"},
	}
	if len(got) != len(want) {
		t.Fatalf("got %+v", got)
	}
	for i, p := range got {
		if !strings.HasPrefix(p.What, want[i][0]) || !strings.HasSuffix(p.What, ", since "+want[i][1]) {
			t.Errorf("says %q", p.What)
		}
		if !strings.HasPrefix(p.Do, "let "+want[i][0][:3]+" port 7947 pass between the hosts, both ways") {
			t.Errorf("advises %q", p.Do)
		}
	}
	one := contactProblems([]paths.Contact{{Host: "b", Trouble: paths.NoAnswer, Since: since}, {Host: "c", Trouble: paths.NoStream, Since: since, Err: late}}, nodes, 7947, now)
	if len(one) != 2 || !strings.Contains(one[0].What, "host three cannot be connected to from here (no answer)") || !strings.Contains(one[1].What, "host two can be connected to at TCP port 7947, and no answer comes back from there, though UDP passes") {
		t.Errorf("got %+v", one)
	}
}
