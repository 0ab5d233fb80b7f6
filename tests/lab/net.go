package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
)

// The lab's addresses are documentation prefixes (RFC 5737, RFC 3849); they exist
// in the lab's own namespaces only, so that all labs use the same ones.
const (
	wireBits4 = "24"
	wireBits6 = "64"
	gateway4  = "192.0.2.254"
	gateway6  = "fd00:db8::fe"

	// OutsideAddr is an address beyond the wire that has no route to the overlay.
	OutsideAddr = "198.51.100.7"
	// OutsideAddr6 is its IPv6 address.
	OutsideAddr6 = "2001:db8:51::7"

	outsideRouter4 = "198.51.100.1"
	outsideRouter6 = "2001:db8:51::1"
)

func hostAddr4(n int) string { return fmt.Sprintf("192.0.2.%d", n) }
func hostAddr6(n int) string { return fmt.Sprintf("fd00:db8::%x", n) }

// netSpec is what a box does in its own network namespace: `ip` command lines,
// and sysctls as path and value. A path that begins with "-" need not be there (sysctl.d(5)).
type netSpec struct {
	IP      []string
	Sysctls [][2]string
}

func (n netSpec) apply() error {
	for _, kv := range n.Sysctls {
		path, optional := strings.CutPrefix(kv[0], "-")
		err := os.WriteFile("/proc/sys/"+path, []byte(kv[1]), 0)
		if optional && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("set a sysctl: %w", err)
		}
	}
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Env = append(os.Environ(), "PATH="+labPath)
	cmd.Stdin = strings.NewReader(strings.Join(n.IP, "\n"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip -batch: %w: %s", err, out)
	}
	return nil
}

// hostMAC is the MAC of host n's eth0: a NIC keeps its own when the host boots, and the
// neighbours go on sending to it.
func hostMAC(n int) string { return fmt.Sprintf("02:00:c0:00:02:%02x", n) }

// hostNet gives host n's interface eth0 its addresses and default routes.
func hostNet(n int) []string {
	return []string{
		"link set lo up",
		"link set eth0 address " + hostMAC(n) + " up",
		"addr add " + hostAddr4(n) + "/" + wireBits4 + " dev eth0",
		"addr add " + hostAddr6(n) + "/" + wireBits6 + " dev eth0 nodad",
		"route add default via " + gateway4,
		"route add ::/0 via " + gateway6,
	}
}
