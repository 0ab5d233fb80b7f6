package nat

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/coreos/go-iptables/iptables"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/nft"
)

func command(f iptables.Protocol) string {
	if f == iptables.ProtocolIPv6 {
		return "ip6tables"
	}
	return "iptables"
}

// realPath is the program that the command is; choosing another framework changes it.
func realPath(f iptables.Protocol) string {
	path, err := exec.LookPath(command(f))
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return ""
	}
	return path
}

// found is where a command was found in PATH, and which file that was.
type found struct {
	in   string // PATH
	path string
	file os.FileInfo
	when time.Time
}

// findAgain is after how long PATH is gone through again: one in a folder before may have come.
const findAgain = 30 * time.Second

func find(f iptables.Protocol) (is found) {
	path, err := exec.LookPath(command(f))
	if err != nil {
		return found{}
	}
	file, err := os.Stat(path)
	if err != nil {
		return found{}
	}
	return found{os.Getenv("PATH"), path, file, time.Now()}
}

// there reports whether the command is the same program as when it was found: choosing another framework changes what its links lead
// to. It is asked every two seconds, and going through PATH is a dozen system calls.
func (f found) there() bool {
	if f.file == nil || f.in != os.Getenv("PATH") || time.Since(f.when) > findAgain {
		return false
	}
	file, err := os.Stat(f.path)
	return err == nil && os.SameFile(file, f.file)
}

func installed(f iptables.Protocol) bool {
	_, err := exec.LookPath(command(f))
	return err == nil
}

// fingerprint returns what changes with any change of the tables, without running a
// program.
func (n *NAT) fingerprint() (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out strings.Builder
	generation := sync.OnceValues(n.generations.Now) // that of both families
	for _, f := range families {
		if n.open[f] == nil {
			continue
		}
		if _, err := n.tables(f); err != nil { // another one, maybe
			return "", err
		}
		mode, err := n.mode(f)
		if err != nil {
			return "", err
		}
		if mode == nfTables || n.elsewhere[f] {
			gen, err := generation()
			if err != nil && mode == nfTables {
				return "", err
			}
			fmt.Fprintf(&out, "%d generation %d ", f, gen)
		}
		if mode == nfTables {
			if n.elsewhere[f] {
				info, err := tableInfo(f, "filter")
				fmt.Fprintf(&out, "%d former %x %v ", f, info, err)
			}
			continue
		}
		for _, table := range []string{"nat", "filter"} {
			info, err := tableInfo(f, table)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&out, "%d %s %x ", f, table, info)
		}
	}
	return out.String(), nil
}

// backend is what iptables works on.
type backend string

const (
	nfTables backend = "nf_tables"
	legacy   backend = "legacy"
)

// mode asks iptables once what it works on.
func (n *NAT) mode(f iptables.Protocol) (backend, error) {
	if m, ok := n.modes[f]; ok {
		return m, nil
	}
	out, err := exec.Command(command(f), "--version").Output()
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", command(f), err)
	}
	m := legacy
	if strings.Contains(string(out), string(nfTables)) { // "iptables v1.8.9 (nf_tables)"
		m = nfTables
	}
	n.modes[f] = m
	return m, nil
}

// Generations tells it again and again.
type Generations = nft.Generations

// Generation returns the number of the nf_tables ruleset of this namespace (nft.Conn.Generation).
func Generation() (uint32, error) {
	conn, err := nft.Dial()
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	return conn.Generation()
}

// getInfo is struct ipt_getinfo and struct ip6t_getinfo.
type getInfo struct {
	Name       [32]byte
	ValidHooks uint32
	HookEntry  [5]uint32
	Underflow  [5]uint32
	NumEntries uint32
	Size       uint32
}

// Shape is what changes with nearly any change of a legacy table, without running a program;
// of iptables on nf_tables it says nothing.
func Shape(v6 bool, table string) (string, error) {
	info, err := tableInfo(familyOf(v6), table)
	return fmt.Sprintf("%x", info), err
}

// Legacy says whether the iptables in PATH works on legacy tables.
func Legacy() bool {
	mode, err := New().mode(iptables.ProtocolIPv4)
	return err == nil && mode == legacy
}

// tableInfo returns the shape of a legacy table: sizes and offsets. A table that no
// program has used yet is made by asking (as it is by iptables).
func tableInfo(f iptables.Protocol, table string) (getInfo, error) {
	const getInfoOpt = 64 // IPT_SO_GET_INFO and IP6T_SO_GET_INFO
	domain, level := unix.AF_INET, unix.SOL_IP
	if f == iptables.ProtocolIPv6 {
		domain, level = unix.AF_INET6, unix.SOL_IPV6
	}
	info := getInfo{}
	copy(info.Name[:], table)
	fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return info, fmt.Errorf("open a socket to look at table %s: %w", table, err)
	}
	defer unix.Close(fd)
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), getInfoOpt,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return info, fmt.Errorf("look at table %s: %w", table, errno)
	}
	return info, nil
}
