package bypass

import (
	"encoding/binary"
	"fmt"
	mathbits "math/bits"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// legacyRules is of tables of iptables-legacy, of whose changes the kernel tells nobody: any rule in one, or a policy that
// drops, is against.
func legacyRules() error {
	names, err := begin("ip_tables_names")
	if err != nil {
		return err
	}
	for _, table := range strings.Fields(string(names)) {
		bare, err := bareTable(table)
		if err != nil {
			return fmt.Errorf("look at the table %s of iptables-legacy: %w", table, err)
		}
		if !bare {
			return fmt.Errorf("the table %s of iptables-legacy has rules, of whose changes the kernel does not tell", table)
		}
	}
	return nil
}

// legacyInfo is struct ipt_getinfo.
type legacyInfo struct {
	Name       [32]byte
	ValidHooks uint32
	HookEntry  [5]uint32
	Underflow  [5]uint32
	NumEntries uint32
	Size       uint32
}

// Of the structures of linux/netfilter_ipv4/ip_tables.h.
const (
	getInfo        = 64 // IPT_SO_GET_INFO
	getEntries     = 65 // IPT_SO_GET_ENTRIES
	entriesAt      = 40 // of struct ipt_get_entries
	targetOffsetAt = 88 // of struct ipt_entry
	verdictAt      = 32 // of struct xt_standard_target
	legacyAccept   = -2 // -NF_ACCEPT - 1
	largest        = 1 << 16
)

// bareTable reports whether a table has nothing but policies that accept.
func bareTable(table string) (bool, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	var info legacyInfo
	copy(info.Name[:], table)
	if err := sockopt(fd, getInfo, unsafe.Slice((*byte)(unsafe.Pointer(&info)), unsafe.Sizeof(info))); err != nil {
		return false, err
	}
	// One entry for each hook's policy, and one behind all.
	if int(info.NumEntries) != mathbits.OnesCount32(info.ValidHooks)+1 || info.Size > largest {
		return false, nil
	}
	entries := make([]byte, entriesAt+int(info.Size))
	copy(entries, table)
	binary.NativeEndian.PutUint32(entries[32:], info.Size)
	if err := sockopt(fd, getEntries, entries); err != nil {
		return false, err
	}
	entries = entries[entriesAt:]
	for hook := range info.Underflow {
		if info.ValidHooks&(1<<hook) == 0 {
			continue
		}
		at := int(info.Underflow[hook])
		if at+targetOffsetAt+2 > len(entries) {
			return false, nil
		}
		target := at + int(binary.NativeEndian.Uint16(entries[at+targetOffsetAt:]))
		if target+verdictAt+4 > len(entries) || int32(binary.NativeEndian.Uint32(entries[target+verdictAt:])) != legacyAccept {
			return false, nil
		}
	}
	return true, nil
}

func sockopt(fd, option int, value []byte) error {
	size := uint32(len(value))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_IP, uintptr(option), uintptr(unsafe.Pointer(&value[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
