package socket

import (
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// admitted reports whether the process that calls is root's or of a group, as it was when it called, and whose it is.
func admitted(c *net.UnixConn, group int) (user uint32, ok bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, false
	}
	_ = raw.Control(func(fd uintptr) {
		who, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			return
		}
		user, ok = who.Uid, who.Uid == 0 || int(who.Gid) == group || slices.Contains(peerGroups(fd), uint32(group))
	})
	return user, ok
}

// peerGroups are its other groups (SO_PEERGROUPS, Linux 4.13); none if the kernel does not say.
func peerGroups(fd uintptr) []uint32 {
	groups := make([]uint32, 64)
	for range 2 {
		size := uint32(len(groups) * 4)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS, uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch errno {
		case 0:
			return groups[:size/4]
		case unix.ERANGE: // the kernel has said how many there are
			groups = make([]uint32, size/4)
		default:
			return nil
		}
	}
	return nil
}

// Peer is the name of the process that calls, as in /proc/PID/comm; "" if it is not known.
func Peer(c *net.UnixConn) string {
	raw, err := c.SyscallConn()
	if err != nil {
		return ""
	}
	name := ""
	_ = raw.Control(func(fd uintptr) {
		who, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			return
		}
		text, _ := os.ReadFile("/proc/" + strconv.Itoa(int(who.Pid)) + "/comm") // it may have gone
		name = strings.TrimSpace(string(text))
	})
	return name
}
