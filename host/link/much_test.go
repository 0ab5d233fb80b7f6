package link

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// A container may have any number of routes, queues and interfaces: no more of them is read than there is reason for, and it is said
// what there is too much of.
func TestMuchInside(t *testing.T) {
	host, box := linktest.New(t), linktest.New(t)
	linktest.Wire(t, "gv0123", host, box, []string{"10.9.0.1/24"}, []string{"10.9.0.2/24"})
	defer func(n int) { muchInside = n }(muchInside)
	muchInside = 100
	const many = 300
	box.Do(func() {
		batch(t, "ip", func(i int) string {
			return fmt.Sprintf("route add 10.%d.%d.0/24 via 10.9.0.1 proto %d", 100+i>>8, i&255, viaProtocol)
		}, many)
		batch(t, "tc", func(i int) string {
			if i == 0 {
				return "qdisc add dev lo root handle 1: htb"
			}
			return fmt.Sprintf("class add dev lo parent 1: classid 1:%x htb rate 1mbit\nqdisc add dev lo parent 1:%x handle %x: pfifo", i, i, i+1)
		}, many)
	})
	if err := RoutesIn(box.Key(), nil); !errors.Is(err, errMuch) {
		t.Errorf("routes: %v", err)
	}
	var err error
	host.Do(func() { err = Limit("gv0123", box.Key(), Limits{Egress: 1e6}) })
	if !errors.Is(err, errMuch) || !strings.Contains(err.Error(), "queues") {
		t.Errorf("queues: %v", err)
	}
	box.Do(func() { batch(t, "tc", func(int) string { return "qdisc del dev lo root" }, 1) })
	host.Do(func() { err = Limit("gv0123", box.Key(), Limits{Egress: 1e6}) })
	ok(t, err)
}

func batch(t *testing.T, program string, line func(int) string, n int) {
	t.Helper()
	var b strings.Builder
	for i := range n {
		b.WriteString(line(i) + "\n")
	}
	file := t.TempDir() + "/batch"
	ok(t, os.WriteFile(file, []byte(b.String()), 0o600))
	if out, err := exec.Command(program, "-batch", file).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %.200s", program, err, out)
	}
}
