package docker

import (
	"encoding/binary"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// inetDiag is what asks the kernel for the sockets of a family: struct inet_diag_req_v2 (sock_diag(7)), with room
// for the sockets' ends, of which it asks for any.
type inetDiag struct{ family uint8 }

const (
	inetDiagLen = 56
	tcpListen   = 10 // TCP_LISTEN
)

// Len implements nl.NetlinkRequestData.
func (inetDiag) Len() int { return inetDiagLen }

// Serialize implements nl.NetlinkRequestData.
func (r inetDiag) Serialize() []byte {
	b := make([]byte, inetDiagLen)
	b[0], b[1] = r.family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(b[4:], 1<<tcpListen)
	return b
}

// served reports whether somebody listens at one of the ports by TCP. It looks at what listens alone: the list of
// connections (/proc/net/tcp) costs the kernel a walk of all connections that there could be, 10 ms on a large
// machine. Where the kernel does not tell, somebody may.
func served(ports []uint16) bool {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		req := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
		req.AddData(inetDiag{family})
		sockets, err := req.Execute(unix.NETLINK_INET_DIAG, 0)
		if err != nil {
			return true
		}
		for _, s := range sockets { // struct inet_diag_msg: the own port is behind four bytes
			if len(s) >= 6 && slices.Contains(ports, binary.BigEndian.Uint16(s[4:])) {
				return true
			}
		}
	}
	return false
}
