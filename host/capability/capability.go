// Package capability lists the capabilities (capabilities(7)) that the agent runs with, and
// no others: tests hold plugin.json, the systemd unit and docs/operate/install.md to the list.
package capability

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Capability is one that the agent uses.
type Capability struct {
	Name string
	bit  uint
	vital
	Why string // as docs/operate/install.md says it
}

// vital says where nothing works without a capability.
type vital int

const (
	never vital = iota
	inUserspace
	always
)

// Needed are all that the agent uses, in the order of docs/operate/install.md.
var Needed = []Capability{
	{"CAP_NET_ADMIN", unix.CAP_NET_ADMIN, always, "interfaces, routes, iptables, the kernel datapath, tc programs"},
	{"CAP_NET_RAW", unix.CAP_NET_RAW, inUserspace, "the userspace datapath reads interfaces with packet sockets"},
	{"CAP_NET_BIND_SERVICE", unix.CAP_NET_BIND_SERVICE, never, "holds published ports below 1024 (Docker gives it to every plugin)"},
	{"CAP_SYS_ADMIN", unix.CAP_SYS_ADMIN, inUserspace, "loads the tc programs (`CAP_BPF` on newer kernels alone), enters containers' network namespaces, makes `/proc/sys/net` writable in the plugin"},
	{"CAP_SYS_MODULE", unix.CAP_SYS_MODULE, never, "loads `openvswitch`, and `vxlan`, `geneve` or `ip_gre`, where they are not yet"},
	{"CAP_SYS_PTRACE", unix.CAP_SYS_PTRACE, never, "needed for two things, each only of processes that may do more than the agent (as a host's own Open vSwitch) or that Yama guards. It gives Open vSwitch's packet sockets more room (`pidfd_getfd`), which is worth a third of the userspace datapath's throughput. And it names the process that has a port that is asked for"},
}

// Set is a set of capabilities, a bit each.
type Set uint64

// Effective are those of the calling thread.
func Effective() (Set, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, fmt.Errorf("read what this process may do: %w", err)
	}
	return Set(data[1].Effective)<<32 | Set(data[0].Effective), nil
}

// Check returns those of Needed that are not in the set and whose lack costs something, and
// an error if nothing would work without one of them on the userspace or the other datapath.
func (s Set) Check(userspace bool) (lacking []Capability, err error) {
	var fatal []string
	for _, c := range Needed {
		if s>>c.bit&1 != 0 {
			continue
		}
		if c.vital == always || c.vital == inUserspace && userspace {
			fatal = append(fatal, fmt.Sprintf("%s (%s)", c.Name, c.Why))
			continue
		}
		lacking = append(lacking, c)
	}
	if fatal != nil {
		return lacking, fmt.Errorf("the agent lacks %s: run it as root, with the capabilities that docs/operate/install.md lists", strings.Join(fatal, " and "))
	}
	return lacking, nil
}
