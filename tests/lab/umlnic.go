package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link"
)

// A UML host's NIC is a packet socket on one end of a veth, whose other end is in the
// wire. That is the transport by which UML receives many packets at once, as NICs do,
// so that its kernel merges them (GRO). From a tap it takes one at a time: everything
// then costs per packet of 1500 bytes what on a real host it costs per 64 KiB.

// umlSocket is the end of host's veth that the kernel reads.
func umlSocket(host string) string { return host + "u" }

func umlNIC(host string) string {
	return "vec0:transport=raw,ifname=" + umlSocket(host) + ",depth=128,gro=1"
}

// plugUML connects a UML host; both ends outlive its kernel. The wire's own stack
// sees the socket's end, too, and must not answer ARP there.
func (w *Wire) plugUML(ctx context.Context, host string, mtu int) error {
	return w.ip(ctx,
		fmt.Sprintf("link add %s mtu %d type veth peer name %s mtu %d", host, mtu, umlSocket(host), mtu),
		fmt.Sprintf("link set %s arp off addrgenmode none up", umlSocket(host)),
		fmt.Sprintf("link set %s master wire up", host))
}

// umlOffload lets the kernel hand segments of 64 KiB to its NIC (TSO). It does at
// first, but forgets it as soon as anybody turns on ip_forward, since the driver does
// not say that it is wanted. Turned off and on, it is.
func umlOffload() error {
	for _, on := range []bool{false, true} {
		if err := link.SetFeatures("eth0", map[string]bool{"tx-tcp-segmentation": on}); err != nil {
			return err
		}
	}
	return nil
}

// umlBuffer is the room of the NIC's packet socket, bytes. Three packets of 64 KiB
// fill the machine's default, and the loss would be most of what a benchmark sees.
const umlBuffer = 16 << 20

// growUMLBuffer gives the NIC of the running kernel its room.
func (m *umlMachine) growUMLBuffer() error {
	list, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, file := range list {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), specVar+"="+m.specFile()) {
			continue // another process, or it is gone
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return err
		}
		if err := growPacketSockets(pid); err != nil {
			return fmt.Errorf("enlarge the buffer of %s's NIC: %w", m.host.Name, err)
		}
	}
	return nil
}

// growPacketSockets enlarges the buffers of a process' packet sockets. The guest's
// processes, which come and go, are processes of the same name: none is no error.
func growPacketSockets(pid int) error {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(pidfd)
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return nil // it is gone
	}
	for _, f := range files {
		if err := growPacketSocket(pidfd, f.Name()); err != nil {
			return err
		}
	}
	return nil
}

func growPacketSocket(pidfd int, name string) error {
	number, err := strconv.Atoi(name)
	if err != nil {
		return err
	}
	fd, err := unix.PidfdGetfd(pidfd, number, 0)
	if err != nil {
		return nil // closed meanwhile, or the process is gone
	}
	defer unix.Close(fd)
	if domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil || domain != unix.AF_PACKET {
		return nil
	}
	// UML sends by one socket and receives by another, which would have all that it sends come back to it: a container on
	// macvlan would reach its own host, as it does nowhere else.
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1); err != nil {
		return err
	}
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, umlBuffer)
}
