package link

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// packetBuffer is the room of a packet socket, bytes; the kernel doubles it. Three
// packets of 64 KiB fill the default of 208 KiB, and the loss costs a third of the
// throughput (docs/design/datapath.md).
const packetBuffer = 2 << 20

// GrowBuffers gives the packet sockets by which the process pid (ovs-vswitchd)
// reads interfaces called gv* of this namespace room for packetBuffer bytes. Open
// vSwitch leaves it at the system's default, which is not ours to change. Call it
// after ports have been added; it costs a few system calls per open file.
//
// It needs Linux 5.6 and CAP_SYS_PTRACE; without, the error wraps errors.ErrUnsupported
// or os.ErrPermission, and everything works, but slower.
func GrowBuffers(pid int) error {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return buffersError(pid, err)
	}
	defer unix.Close(pidfd)
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return buffersError(pid, err)
	}
	ours, err := List(Ours)
	if err != nil {
		return err
	}
	indexes := make(map[int]bool, len(ours))
	for _, l := range ours {
		indexes[l.Index] = true
	}
	for _, f := range files {
		if err := growIfPacket(pid, pidfd, f.Name(), indexes); err != nil {
			return buffersError(pid, err)
		}
	}
	return nil
}

func buffersError(pid int, err error) error {
	if errors.Is(err, unix.ENOSYS) {
		err = errors.ErrUnsupported
	}
	return fmt.Errorf("enlarge the packet buffers of process %d: %w", pid, err)
}

// growIfPacket looks at one open file of the process: a packet socket of one of the
// interfaces gets its room. A file closed meanwhile is passed over.
func growIfPacket(pid, pidfd int, name string, indexes map[int]bool) error {
	target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err // without CAP_SYS_PTRACE, of a process that may do more than this one
	}
	if !strings.HasPrefix(target, "socket:") {
		return nil
	}
	remote, err := strconv.Atoi(name)
	if err != nil {
		return nil
	}
	fd, err := unix.PidfdGetfd(pidfd, remote, 0)
	if errors.Is(err, unix.EBADF) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	addr, err := unix.Getsockname(fd)
	if err != nil {
		return nil // a family that x/sys does not know: not a packet socket
	}
	if ll, ok := addr.(*unix.SockaddrLinklayer); !ok || !indexes[ll.Ifindex] {
		return nil
	}
	if size, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF); err == nil && size >= 2*packetBuffer {
		return nil
	}
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, packetBuffer)
}
