package multicast

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"strconv"
	"strings"
)

// groups4 are the groups that the interface with an index is a member of, by what /proc/net/igmp says: a line for each interface,
// and below it one for each group, whose first word is the address as the machine's number of 32 bits.
func groups4(text string, index int) (list []netip.Addr) {
	mine := false
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case line[0] != '\t' && line[0] != ' ':
			n, err := strconv.Atoi(words[0])
			mine = err == nil && n == index
		case mine:
			if n, err := strconv.ParseUint(words[0], 16, 32); err == nil {
				var b [4]byte
				binary.NativeEndian.PutUint32(b[:], uint32(n))
				list = appendGroup(list, netip.AddrFrom4(b))
			}
		}
	}
	return list
}

// groups6 is the same of /proc/net/igmp6, where each group's line begins with the interface's index and name.
func groups6(text string, index int) (list []netip.Addr) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 3 || words[0] != strconv.Itoa(index) {
			continue
		}
		if raw, err := hex.DecodeString(words[2]); err == nil && len(raw) == 16 {
			list = appendGroup(list, netip.AddrFrom16([16]byte(raw)))
		}
	}
	return list
}

func appendGroup(list []netip.Addr, a netip.Addr) []netip.Addr {
	if told(a) {
		return append(list, a)
	}
	return list
}

// solicited are the groups in which IPv6 hosts are asked for their neighbours (RFC 4291, 2.7.1).
var solicited = netip.MustParsePrefix("ff02::1:ff00:0/104")

// untold are groups that a kernel joins by itself: what is sent to all hosts goes to all, and nobody asks a container's
// kernel for its groups, for routers or for neighbours.
var untold = map[netip.Addr]bool{
	netip.MustParseAddr("224.0.0.1"): true, netip.MustParseAddr("224.0.0.22"): true,
	netip.MustParseAddr("ff02::1"): true, netip.MustParseAddr("ff02::2"): true, netip.MustParseAddr("ff05::2"): true, netip.MustParseAddr("ff02::16"): true,
}

// told reports whether others are told of a group.
func told(a netip.Addr) bool {
	return a.IsMulticast() && !a.IsInterfaceLocalMulticast() && !untold[a] && !solicited.Contains(a)
}
