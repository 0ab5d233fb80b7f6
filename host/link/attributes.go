package link

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// few are attributes of an interface (linux/if_link.h). They are for who asks for one or two again and again: Get has the kernel
// tell all that it knows, counters too, and takes all of it apart, at five times the cost.
type few struct{ attrs []byte }

// rooms are for what the kernel says of one interface.
var rooms = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// skipStats is RTEXT_FILTER_SKIP_STATS.
const skipStats = 8

// fewOf asks about the interface of an index, or with 0 of a name. An error is ErrNotFound if there is none.
func fewOf(index int, name string) (few, error) {
	what := fmt.Sprintf("interface %d", index)
	if index == 0 {
		what = "interface " + name
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return few{}, fmt.Errorf("%s: %w", what, err)
	}
	defer unix.Close(fd)
	ask := make([]byte, unix.SizeofNlMsghdr+unix.SizeofIfInfomsg, 128)
	binary.NativeEndian.PutUint16(ask[4:], unix.RTM_GETLINK)
	binary.NativeEndian.PutUint16(ask[6:], unix.NLM_F_REQUEST)
	binary.NativeEndian.PutUint32(ask[unix.SizeofNlMsghdr+4:], uint32(index))
	put := func(kind uint16, value []byte) {
		ask = binary.NativeEndian.AppendUint16(ask, uint16(unix.SizeofRtAttr+len(value)))
		ask = append(binary.NativeEndian.AppendUint16(ask, kind), value...)
		ask = append(ask, make([]byte, (4-len(value)%4)%4)...)
	}
	put(unix.IFLA_EXT_MASK, binary.NativeEndian.AppendUint32(nil, skipStats))
	if index == 0 {
		put(unix.IFLA_IFNAME, append([]byte(name), 0))
	}
	binary.NativeEndian.PutUint32(ask, uint32(len(ask)))
	if err := unix.Sendto(fd, ask, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return few{}, fmt.Errorf("%s: %w", what, err)
	}
	room := rooms.Get().(*[32 << 10]byte)
	defer rooms.Put(room)
	n, err := unix.Read(fd, room[:]) // it is there: the kernel answers while it is asked
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Read(fd, room[:])
	}
	if err != nil {
		return few{}, fmt.Errorf("%s: %w", what, err)
	}
	said, err := answer(room[:n])
	if err != nil {
		return few{}, fmt.Errorf("%s: %w", what, mapErr(err))
	}
	return few{bytes.Clone(said)}, nil
}

var errAnswer = errors.New("the kernel's answer is cut off")

// answer are the attributes that a message of the kernel has, or its error.
func answer(m []byte) ([]byte, error) {
	if len(m) < unix.SizeofNlMsghdr+4 {
		return nil, errAnswer
	}
	length := int(binary.NativeEndian.Uint32(m))
	if binary.NativeEndian.Uint16(m[4:]) == unix.NLMSG_ERROR {
		return nil, unix.Errno(-int32(binary.NativeEndian.Uint32(m[unix.SizeofNlMsghdr:])))
	}
	if length > len(m) || length < unix.SizeofNlMsghdr+unix.SizeofIfInfomsg {
		return nil, errAnswer
	}
	return m[unix.SizeofNlMsghdr+unix.SizeofIfInfomsg : length], nil
}

// of is the value of an attribute, nil if there is none, and with further kinds of the one within.
func (f few) of(kinds ...uint16) []byte {
	at := f.attrs
	for _, kind := range kinds {
		if at = one(at, kind); at == nil {
			return nil
		}
	}
	return at
}

func one(attrs []byte, kind uint16) []byte {
	for len(attrs) >= unix.SizeofRtAttr {
		length := int(binary.NativeEndian.Uint16(attrs))
		if length < unix.SizeofRtAttr || length > len(attrs) {
			return nil
		}
		if binary.NativeEndian.Uint16(attrs[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER) == kind {
			return attrs[unix.SizeofRtAttr:length:length]
		}
		attrs = attrs[min((length+3)&^3, len(attrs)):]
	}
	return nil
}

// kind is what ip(8) calls it: of an interface that no driver of the kernel's own kinds made "device".
func (f few) kind() string {
	if k := bytes.TrimRight(f.of(unix.IFLA_LINKINFO, unix.IFLA_INFO_KIND), "\x00"); len(k) > 0 {
		return string(k)
	}
	return "device"
}

// xdp is the number of the XDP program at it.
func (f few) xdp() (program uint32, attached bool) {
	if mode := f.of(unix.IFLA_XDP, unix.IFLA_XDP_ATTACHED); len(mode) == 0 || mode[0] == 0 {
		return 0, false
	}
	if id := f.of(unix.IFLA_XDP, unix.IFLA_XDP_PROG_ID); len(id) == 4 {
		program = binary.NativeEndian.Uint32(id)
	}
	return program, true
}
