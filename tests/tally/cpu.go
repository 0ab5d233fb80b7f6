package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cpuacct is where cgroups that count the processors' time are, on machines with cgroups of version 1.
const cpuacct = "/sys/fs/cgroup/cpuacct"

// spent is the processors' time that a program took which has ended, and all the processes that it and they waited
// for. The machine's processors are shared by all tiers and by others: how long a tier takes says little of it.
func spent(cmd *exec.Cmd) time.Duration {
	if cmd.ProcessState == nil {
		return 0
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// meter counts the processors' time of programs and of all that they started. Nobody waits for what runs on a lab's
// host when that ends, and spent leaves it out: the meter is a cgroup. Of no name, where there are none, it counts nothing.
type meter struct{ dir string }

func newMeter(name string) meter {
	dir := filepath.Join(cpuacct, "grapevine-tally-"+strconv.Itoa(os.Getpid())+"-"+name)
	if os.Mkdir(dir, 0o755) != nil {
		return meter{}
	}
	return meter{dir}
}

// join lets a program be counted that has not been started yet.
func (m meter) join(cmd *exec.Cmd) {
	sh, err := exec.LookPath("sh")
	if m.dir == "" || err != nil || cmd.Err != nil {
		return
	}
	cmd.Args = append([]string{"sh", "-c", `echo $$ >"$0/cgroup.procs"; exec "$@"`, m.dir, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = sh
}

// spent is the time of all programs that joined.
func (m meter) spent() time.Duration {
	text, err := os.ReadFile(filepath.Join(m.dir, "cpuacct.usage"))
	if m.dir == "" || err != nil {
		return 0
	}
	ns, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return time.Duration(ns)
}

// close removes the cgroup, and those that programs made in it, unless somebody is left in them: who is about to end
// has a moment for it.
func (m meter) close() {
	if m.dir == "" {
		return
	}
	var dirs []string
	_ = filepath.WalkDir(m.dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	for i := len(dirs) - 1; i >= 0; i-- {
		for range 100 {
			if !errors.Is(os.Remove(dirs[i]), syscall.EBUSY) {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}
