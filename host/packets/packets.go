// Package packets reads the packets of an interface in another network namespace.
package packets

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/netns"
)

// Snap is the most of a packet that is read, bytes: no packet is longer, not even one that the
// kernel has yet to segment.
const Snap = 262144

// room is what the kernel keeps of packets that nobody has read yet, bytes.
const room = 16 << 20

// Packet is a packet as the interface had it. Data is the reader's until the next Read.
type Packet struct {
	At     time.Time
	Data   []byte // with the Ethernet header
	Length int    // bytes that there were
	Out    bool   // the namespace's own stack sent it
}

// Tap reads an interface. It keeps nothing there: the kernel takes it away with its socket.
type Tap struct {
	file *os.File
	data []byte
	oob  []byte

	mu         sync.Mutex
	seen, lost uint64
}

// Open reads the interface of an index in the namespace of file sandbox, all packets that the filter
// lets pass, from now on. An empty filter lets all pass.
func Open(sandbox string, index int, filter []bpf.RawInstruction) (*Tap, error) {
	return open(sandbox, index, filter, false)
}

// open is Open. Of a whole packet what is read has a vnetHeader before it.
func open(sandbox string, index int, filter []bpf.RawInstruction, whole bool) (*Tap, error) {
	ns, err := os.Open(sandbox)
	if err != nil {
		return nil, fmt.Errorf("open the sandbox: %w", err)
	}
	defer ns.Close()
	t := &Tap{data: make([]byte, vnetHeader+Snap), oob: make([]byte, 256)}
	if err := netns.Do(ns, func() error { return t.open(index, filter, whole) }); err != nil {
		return nil, fmt.Errorf("read the packets of interface %d in %s: %w", index, sandbox, err)
	}
	return t, nil
}

func (t *Tap) open(index int, filter []bpf.RawInstruction, whole bool) (err error) {
	// Without a protocol it reads nothing until it is bound: no packet passes before the filter.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open a packet socket: %w", err)
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	if len(filter) > 0 {
		code := make([]unix.SockFilter, len(filter))
		for i, f := range filter {
			code[i] = unix.SockFilter{Code: f.Op, Jt: f.Jt, Jf: f.Jf, K: f.K}
		}
		if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}); err != nil {
			return fmt.Errorf("set the filter: %w", err)
		}
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, room); err != nil {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, room); err != nil {
			return fmt.Errorf("make room for packets: %w", err)
		}
	}
	if whole {
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
			return fmt.Errorf("ask for packets that are not segmented yet: %w", err)
		}
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		return fmt.Errorf("ask for times: %w", err)
	}
	all := binary.NativeEndian.Uint16([]byte{unix.ETH_P_ALL >> 8, unix.ETH_P_ALL}) // in network order
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index}); err != nil {
		return fmt.Errorf("bind to the interface: %w", err)
	}
	t.file = os.NewFile(uintptr(fd), "packets")
	return nil
}

// ErrGone says that the interface is gone: its container has ended, or left the network.
var ErrGone = errors.New("the interface is gone")

// Read waits for a packet. After Close it fails.
func (t *Tap) Read() (p Packet, err error) {
	conn, err := t.file.SyscallConn()
	if err != nil {
		return p, err
	}
	var n, oobn int
	var from unix.Sockaddr
	waited := conn.Read(func(fd uintptr) bool {
		for {
			n, oobn, _, from, err = unix.Recvmsg(int(fd), t.data, t.oob, unix.MSG_TRUNC)
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
		return !errors.Is(err, unix.EAGAIN)
	})
	switch {
	case waited != nil:
		return p, waited
	case errors.Is(err, unix.ENETDOWN), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		return p, ErrGone
	case err != nil:
		return p, fmt.Errorf("read a packet: %w", err)
	}
	p = Packet{At: when(t.oob[:oobn]), Data: t.data[:min(n, len(t.data))], Length: n}
	if at, ok := from.(*unix.SockaddrLinklayer); ok {
		p.Out = at.Pkttype == unix.PACKET_OUTGOING
	}
	return p, nil
}

// when is the time that the kernel says.
func when(oob []byte) time.Time {
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return time.Now()
	}
	for _, m := range list {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS {
			if sec, nsec, ok := timespec(m.Data); ok {
				return time.Unix(sec, nsec)
			}
		}
	}
	return time.Now()
}

// Counts are how many packets the filter let pass, and how many of them the kernel had no room for.
func (t *Tap) Counts() (seen, lost uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	conn, err := t.file.SyscallConn()
	if err == nil {
		_ = conn.Control(func(fd uintptr) { // each look sets the kernel's own to 0
			if s, err := unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
				t.seen += uint64(s.Packets)
				t.lost += uint64(s.Drops)
			}
		})
	}
	return t.seen, t.lost
}

// Close ends a Read, too.
func (t *Tap) Close() error { return t.file.Close() }
