package main

import (
	"io"
	"os"
	"os/exec"
	"testing"
)

// TestEventsCountTheProcessorsTime: that of a test's own programs is among it.
func TestEventsCountTheProcessorsTime(t *testing.T) {
	work := func(times string) counts {
		script := `sh -c 'i=0; while [ $i -lt ` + times + ` ]; do i=$((i+1)); done'; echo '{"Action":"pass","Package":"a","Test":"TestGood"}'`
		c, err := tier{}.events(exec.CommandContext(t.Context(), "sh", "-c", script), io.Discard)
		if err != nil || c.passed != 1 {
			t.Fatalf("counted %v: %v", c, err)
		}
		return c
	}
	little, much := work("1"), work("300000")
	if much.cpu <= little.cpu {
		t.Errorf("a program that does much took %s of the processors, and one that does little %s", much.cpu, little.cpu)
	}
	var both counts
	both.add(little)
	both.add(much)
	if both.cpu != little.cpu+much.cpu {
		t.Errorf("together they took %s, and not %s and %s", both.cpu, little.cpu, much.cpu)
	}
}

// TestMeter counts what nobody waits for: a daemon, whose parent has ended before it.
func TestMeter(t *testing.T) {
	// Machines with cgroups of version 2 alone have none, in CI too: there tally says what was waited for, and no more.
	if _, err := os.Stat(cpuacct); err != nil {
		t.Skip("no cgroups that count the processors' time: ", err)
	}
	if os.Getuid() != 0 && os.Getenv("CI") == "" {
		t.Skip("only root may make a cgroup")
	}
	m := newMeter("test")
	defer m.close()
	const daemon = `(i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo done) & exit 0`
	cmd := exec.CommandContext(t.Context(), "sh", "-c", daemon)
	m.join(cmd)
	out, err := cmd.Output() // to the daemon's end
	if err != nil || string(out) != "done\n" {
		t.Fatalf("the program said %q: %v", out, err)
	}
	if m.spent() <= spent(cmd) {
		t.Errorf("the daemon's time is not counted: %s, of which the first process took %s", m.spent(), spent(cmd))
	}
	m.close()
	if _, err := os.Stat(m.dir); err == nil {
		t.Errorf("%s is left", m.dir)
	}
	if none := (meter{}); none.spent() != 0 {
		t.Errorf("no meter counted %s", none.spent())
	}
}
