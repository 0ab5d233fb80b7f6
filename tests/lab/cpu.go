package lab

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A lab has a cgroup that counts what the processors do for it, where the machine has such (cgroups of version 1): how
// long a script takes on busy processors says little of what it costs. It lies below the cgroup of whoever runs the
// lab, which counts it as well. Containers are in a cgroup of the lab's name at the top, where Docker puts them.

// cpuacct is where those cgroups are.
const cpuacct = "/sys/fs/cgroup/cpuacct"

// meters are the cgroups of a lab that count.
func meters(id string) []string {
	dirs := []string{filepath.Join(cpuacct, id)}
	if own := filepath.Join(cpuacct, ownCgroup("cpuacct"), id); own != dirs[0] {
		dirs = append(dirs, own)
	}
	return dirs
}

// ownCgroup is the path of this process' cgroup in a hierarchy (cgroups(7)); "" where there is none.
func ownCgroup(controller string) string {
	text, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(text)) {
		if fields := strings.SplitN(strings.TrimSpace(line), ":", 3); len(fields) == 3 && slices.Contains(strings.Split(fields[1], ","), controller) {
			return fields[2]
		}
	}
	return ""
}

// newMeter makes a cgroup that counts for a lab, and returns its directory; "" where nothing counts.
func newMeter(id string) string {
	if _, err := os.Stat(filepath.Join(cpuacct, "cgroup.procs")); err != nil {
		return ""
	}
	dirs := meters(id)
	dir := dirs[len(dirs)-1]
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return ""
	}
	return dir
}

// joinMeter has a meter count this process and what it will start. It is the first process of a box that calls it,
// before it starts any other: whoever has started it may come too late.
func joinMeter(dir string) {
	if dir != "" {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0o644) // uncounted is no failure
	}
}

// counted is what the processors have done for a lab; 0 where nothing counts.
func counted(id string) (sum time.Duration) {
	for _, dir := range meters(id) {
		text, _ := os.ReadFile(filepath.Join(dir, "cpuacct.usage"))
		ns, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		sum += time.Duration(ns)
	}
	return sum
}

// CPU is what the processors have done for the lab since it began; 0 where nothing counts.
func (l *Lab) CPU() time.Duration { return counted(l.id) }

// removeMeters removes the lab's cgroups, all of them.
func removeMeters(id string) error {
	return errors.Join(removeCgroups(filepath.Join(ownCgroup("cpuacct"), id)), removeCgroups(id))
}
