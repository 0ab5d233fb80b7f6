package leisure

import (
	"os"
	"path/filepath"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// How much later than asked for the kernel may wake a thread, so that it need not wake for each alone, in nanoseconds.
const (
	late   = 1_000_000
	prompt = 50_000 // the kernel's own
)

// Late has this process woken up to a millisecond later than it asks for, where it is 50 microseconds for others. Go's runtime has
// a monitor that looks every 20 microseconds for as long as anything runs: half of all switches of threads of an agent that rests
// were its, and a sixth of the processor's time.
func Late() { slacken(prompt, late) }

// Prompt undoes Late in a process that has it from the one that began it.
func Prompt() { slacken(late, prompt) }

// slacken is called first of all, by the main thread. Threads have their slack from the thread that begins them, and the monitor is
// the first that is begun: so the program begins anew, once, as the same process. Where that cannot be done nothing is lost.
func slacken(from, to int) {
	switch now, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); {
	case err != nil:
	case now == to:
		var name [16]byte
		copy(name[:15], filepath.Base(os.Args[0])) // by which ps and pgrep know it; it is "exe" else
		_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name)), 0, 0, 0)
	case now == from:
		if unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(to), 0, 0, 0) == nil {
			_ = syscall.Exec("/proc/self/exe", os.Args, os.Environ())
			_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(from), 0, 0, 0)
		}
	}
}
