package link

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// RaiseMemlock lets this process lock as much memory as it may, where the kernel counts maps and programs of
// BPF as locked memory: before Linux 5.11. From then on they count as memory of the cgroup. What is loaded
// in spite of a limit that stays says so itself.
//
// The library's package rlimit does the same, but finds out by a map that it makes when the program starts:
// each command of the command line would pay for it.
var RaiseMemlock = sync.OnceFunc(func() {
	var name unix.Utsname
	if unix.Uname(&name) == nil && countsByCgroup(unix.ByteSliceToString(name.Release[:])) {
		return
	}
	_ = unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}, nil)
})

// countsByCgroup reports whether the kernel of this release is Linux 5.11 or newer.
func countsByCgroup(release string) bool {
	var major, minor int
	_, err := fmt.Sscanf(release, "%d.%d", &major, &minor)
	return err == nil && (major > 5 || major == 5 && minor >= 11)
}
