package link

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzChange: whatever a message says, reading it ends and stays within it.
func FuzzChange(f *testing.F) {
	f.Add(uint16(unix.RTM_NEWLINK), make([]byte, unix.SizeofIfInfomsg))
	f.Add(uint16(unix.RTM_NEWROUTE), append(make([]byte, unix.SizeofRtMsg), 8, 0, unix.RTA_DST, 0, 10, 7, 0, 0))
	f.Add(uint16(unix.RTM_DELRULE), append(make([]byte, unix.SizeofRtMsg), 5, 0, unix.FRA_PRIORITY, 0, 1))
	f.Add(uint16(unix.RTM_NEWNETCONF), []byte{2})
	f.Fuzz(func(_ *testing.T, kind uint16, data []byte) {
		parseChange(syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: kind}, Data: data})
	})
}
