// Package trim has a process take little memory while it has little to do: it gives back what only its start needed, or
// rare work, and has only those pages of the program's file that it uses.
package trim

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	settled = 30 * time.Second // a process has started by then
	again   = 10 * time.Minute // rare work leaves little

	room = 5 << 20 // bytes of garbage that a process with little in use may have
	most = 200     // percent
)

// Run does so until ctx ends. least is the percentage of garbage that the process lets come together (runtime/debug.SetGCPercent);
// where only used pages of its file are mapped it has room for more of it. 0: it stays as it is.
func Run(ctx context.Context, least int) error {
	held := -1 // what singly returned
	defer func() {
		if held >= 0 {
			_ = unix.Close(held)
		}
	}()
	for wait := settled; ; wait = again {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		held = trim(held)
		if held >= 0 && least > 0 {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			debug.SetGCPercent(percent(m.HeapAlloc, least))
		}
	}
}

// percent is how much garbage may come together, in percent of what is in use: room, which the collector runs a third as often
// with, and never less than least.
func percent(used uint64, least int) int {
	return max(least, min(int(room*100/max(used, 1)), most))
}

// trim gives back memory that is not used, and the pages of the program's file. The kernel keeps these pages where it has
// room, for everybody who runs the program, and maps those again that are used. It maps pieces of 64 KB, if it cannot be
// told otherwise. held is what trim returned before.
func trim(held int) int {
	debug.FreeOSMemory()
	// Without /proc nothing is lost, and an error of madvise is one of a kernel that does not know how.
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return held
	}
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return held
	}
	list := readOnly(maps, program)
	if held < 0 {
		held, _ = singly(list) // again the next time, at no cost
	}
	for _, m := range list {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED)
	}
	return held
}

type mapping struct{ start, end uintptr }

// readOnly are the mappings of a file that cannot be written to, so that all in them is in the file.
func readOnly(maps []byte, file string) (list []mapping) {
	lines := bufio.NewScanner(bytes.NewReader(maps))
	for lines.Scan() {
		f := strings.SplitN(lines.Text(), " ", 6) // range, what is allowed, offset, device, inode, file
		if len(f) < 6 || len(f[1]) < 4 || f[1][1] == 'w' || f[1][3] != 'p' || strings.TrimSpace(f[5]) != file {
			continue
		}
		var m mapping
		if _, err := fmt.Sscanf(f[0], "%x-%x", &m.start, &m.end); err == nil {
			list = append(list, m)
		}
	}
	return list
}
