package portreserve

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// socket is a line of /proc/net/tcp and the like (proc(5), and the kernel's
// Documentation/networking/proc_net_tcp.rst).
type socket struct {
	local netip.AddrPort
	state uint8
	inode uint64
}

// Values of socket.state (linux/net/tcp_states.h). A bound UDP socket is closed.
const (
	stateClose  = 7
	stateListen = 10
)

// parseSockets reads such a file; lines it does not understand are left out.
func parseSockets(r io.Reader) (out []socket) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		// "  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711 ..."
		f := strings.Fields(lines.Text())
		if len(f) < 10 {
			continue
		}
		local, ok := parseLocal(f[1])
		state, err1 := strconv.ParseUint(f[3], 16, 8)
		inode, err2 := strconv.ParseUint(f[9], 10, 64)
		if ok && err1 == nil && err2 == nil {
			out = append(out, socket{local, uint8(state), inode})
		}
	}
	return out
}

// parseLocal reads an address in 32-bit words of the machine's byte order, and a port.
func parseLocal(text string) (netip.AddrPort, bool) {
	words, portText, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(words)
	port, perr := strconv.ParseUint(portText, 16, 16)
	if err != nil || perr != nil || len(b)%4 != 0 {
		return netip.AddrPort{}, false
	}
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		for w := range slices.Chunk(b, 4) {
			slices.Reverse(w)
		}
	}
	addr, ok := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(addr, uint16(port)), ok
}

// tables reads all sockets of a protocol, both families: a socket of IPv6 may be for
// IPv4 as well.
func tables(network string) (all []socket) {
	for _, suffix := range []string{"", "6"} {
		text, err := os.ReadFile("/proc/thread-self/net/" + network + suffix)
		if err == nil {
			all = append(all, parseSockets(bytes.NewReader(text))...)
		}
	}
	return all
}

// remains reports whether connections are left on a port of TCP, and nobody listens.
func remains(port uint16) bool {
	found := false
	for _, s := range tables("tcp") {
		if s.local.Port() == port {
			if s.state == stateListen {
				return false
			}
			found = true
		}
	}
	return found
}

// user names the process that has a port, for people; "" if it cannot be seen.
func user(network string, at netip.AddrPort) string {
	var inodes []uint64
	for _, s := range tables(network) {
		if inTheWay(s, at) {
			inodes = append(inodes, s.inode)
		}
	}
	if len(inodes) == 0 {
		return ""
	}
	return process("/proc", inodes)
}

// User names the process that has a port, at whichever address, for people; "" if it cannot be seen.
func User(network string, port uint16) string {
	return user(network, netip.AddrPortFrom(netip.IPv6Unspecified(), port))
}

// inTheWay reports whether a socket could be what keeps at from being bound.
func inTheWay(s socket, at netip.AddrPort) bool {
	a, b := s.local.Addr().Unmap(), at.Addr()
	return s.local.Port() == at.Port() && (s.state == stateListen || s.state == stateClose) &&
		(a == b || a.IsUnspecified() || b.IsUnspecified())
}

// process finds who has one of the sockets open.
func process(proc string, inodes []uint64) string {
	links, _ := filepath.Glob(filepath.Join(proc, "[0-9]*", "fd", "*"))
	for _, l := range links {
		target, err := os.Readlink(l)
		if err != nil || !strings.HasPrefix(target, "socket:[") {
			continue
		}
		inode, err := strconv.ParseUint(strings.TrimSuffix(target[len("socket:["):], "]"), 10, 64)
		if err != nil || !slices.Contains(inodes, inode) {
			continue
		}
		pid := filepath.Base(filepath.Dir(filepath.Dir(l)))
		name, err := os.ReadFile(filepath.Join(proc, pid, "comm"))
		if err != nil {
			return "process " + pid
		}
		return fmt.Sprintf("%s (process %s)", strings.TrimSpace(string(name)), pid)
	}
	return ""
}

// Taken reports whether a socket of this host has a port, at whichever address. It binds nothing, and so is in nobody's way.
func Taken(network string, port uint16) bool {
	at := netip.AddrPortFrom(netip.IPv6Unspecified(), port)
	return slices.ContainsFunc(tables(network), func(s socket) bool { return inTheWay(s, at) })
}
