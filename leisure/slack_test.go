package leisure

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The main goroutine has the main thread here, as in the program.
func init() { runtime.LockOSThread() }

func TestMain(m *testing.M) {
	switch os.Getenv("GRAPEVINE_TEST_SLACK") {
	case "late":
		Late()
	case "prompt":
		Prompt()
	default:
		os.Exit(m.Run())
	}
	now, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	name, _ := os.ReadFile("/proc/self/comm")
	fmt.Println(now, err, os.Getpid(), strings.TrimSpace(string(name)), os.Args[1:])
	// What it begins has it as well.
	if os.Getenv("GRAPEVINE_TEST_SLACK") == "late" {
		c := exec.Command("/proc/self/exe", "child")
		c.Args[0], c.Env = "wire", append(os.Environ(), "GRAPEVINE_TEST_SLACK=prompt")
		out, err := c.CombinedOutput()
		fmt.Printf("%s%v\n", out, err)
	}
}

// TestLate: a process that is late is the same process, by name, ID and arguments, and one that it begins can be prompt again.
func TestLate(t *testing.T) {
	if now, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err != nil || now != prompt {
		// Also where CI is set: who began this process chose it, and a process of another slack is left alone by Late.
		t.Skipf("somebody has set the slack of this process' timers: %d, %v", now, err)
	}
	c := exec.Command("/proc/self/exe", "one", "and two")
	c.Args[0] = "/somewhere/vine"
	c.Env = append(os.Environ(), "GRAPEVINE_TEST_SLACK=late")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for s := bufio.NewScanner(out); s.Scan(); {
		lines = append(lines, s.Text())
	}
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%d <nil> %d vine [one and two]", late, c.Process.Pid)
	if len(lines) != 3 || lines[0] != want || !strings.HasPrefix(lines[1], fmt.Sprintf("%d <nil> ", prompt)) || !strings.HasSuffix(lines[1], " wire [child]") || lines[2] != "<nil>" {
		t.Errorf("%q, want the first to be %q, and the child to be prompt", lines, want)
	}
}
