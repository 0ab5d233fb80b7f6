// Package trim has a process take little memory while it has little to do: it gives back what only its start needed, or
// rare work.
package trim

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	settled = 30 * time.Second // a process has started by then
	again   = 10 * time.Minute // rare work leaves little
)

// Run does so until ctx ends.
func Run(ctx context.Context) error {
	for wait := settled; ; wait = again {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		_ = trim() // without /proc nothing is lost
	}
}

// trim gives back memory that is not used, and the pages of the program's file: the kernel keeps them where it has room, for
// whoever runs the program, and maps those again, in pieces of 64 KB, that are used.
func trim() error {
	debug.FreeOSMemory()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("read which memory is the program's file: %w", err)
	}
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("find the program's file: %w", err)
	}
	for _, m := range readOnly(maps, program) {
		// An error is one of a kernel that does not know how; nothing is lost.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED)
	}
	return nil
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
