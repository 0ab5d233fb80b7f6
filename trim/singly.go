package trim

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Of linux/userfaultfd.h.
const (
	uffdAPI          = 0xaa
	uffdUserModeOnly = 1       // the kernel's own accesses are no matter of ours: what needs no privilege
	uffdWPAsync      = 1 << 15 // UFFD_FEATURE_WP_ASYNC (Linux 6.7): nobody has to answer for a page that is written to
	uffdRegisterWP   = 1 << 1
	uffdioAPI        = 0xc018aa3f
	uffdioRegister   = 0xc020aa00
)

// singly has the kernel map a page of a mapping when it is used, and not the fifteen around it with it, of which most never are: a
// process has half of the program's file then. It does so where it is to tell which pages are written to (userfaultfd), and is
// never asked for that here: nothing can write to these. What it returns has to stay open; an older kernel returns an error.
func singly(list []mapping) (fd int, err error) {
	opened, _, e := unix.Syscall(unix.SYS_USERFAULTFD, uffdUserModeOnly|unix.O_CLOEXEC|unix.O_NONBLOCK, 0, 0)
	if e != 0 {
		return -1, fmt.Errorf("have pages of the program mapped singly: %w", e)
	}
	fd = int(opened)
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	if err := control(fd, uffdioAPI, &struct{ api, features, can uint64 }{api: uffdAPI, features: uffdWPAsync}); err != nil {
		return -1, err
	}
	for _, m := range list {
		if err := control(fd, uffdioRegister, &struct{ start, size, mode, can uint64 }{start: uint64(m.start), size: uint64(m.end - m.start), mode: uffdRegisterWP}); err != nil {
			return -1, err
		}
	}
	return fd, nil
}

func control[T any](fd int, request uintptr, of *T) error {
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(of)))
	runtime.KeepAlive(of)
	if e != 0 {
		return fmt.Errorf("have pages of the program mapped singly: %w", e)
	}
	return nil
}
