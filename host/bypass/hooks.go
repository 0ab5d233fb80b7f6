package bypass

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/nft"
)

// understood are the functions at the hooks of IPv4 that leave these packets as they are, or whose rules are read, with the
// module that each is in, unless the kernel itself has it. Linux 6.6, the first with tcx, to 6.18 has these names.
var understood = map[string]string{
	// Conntrack, and what puts fragments together for it: what is missed is an entry. Of well-formed UDP it drops nothing.
	"ipv4_conntrack_in": "nf_conntrack", "ipv4_conntrack_local": "nf_conntrack", "nf_confirm": "nf_conntrack", "ipv4_conntrack_defrag": "nf_defrag_ipv4",
	// NAT changes what a rule says, and a rule that does is a reason by itself.
	"nf_nat_ipv4_pre_routing": "nf_nat", "nf_nat_ipv4_local_in": "nf_nat", "nf_nat_ipv4_local_fn": "nf_nat", "nf_nat_ipv4_out": "nf_nat",
	"ipt_do_table":   "ip_tables",    // iptables-legacy: legacyRules looks at these
	"ip_sabotage_in": "br_netfilter", // is of packets that a bridge's ports have had in iptables' rules
	// AppArmor: it looks at packets that a rule has labelled (SECMARK).
	"apparmor_ip_postroute": "", "apparmor_ipv4_postroute": "",
}

// unknownHook names a function of which it is not known what it does to packets.
func unknownHook(list []nft.Hook, known map[string]string) error {
	for _, h := range list {
		if module, is := known[h.Function]; h.Chain || is && (h.Module == "" || h.Module == module) {
			continue
		}
		function := h.Function
		if function == "" {
			function = "of an unknown name"
		}
		if h.Module != "" {
			function += ", of the kernel's module " + h.Module + ","
		}
		return fmt.Errorf("the function %s is a hook of netfilter, and the agent does not know what it does to packets", function)
	}
	return nil
}

// Hooks of netfilter at interfaces (NF_NETDEV_INGRESS, NF_NETDEV_EGRESS).
const (
	atIngress = 0
	atEgress  = 1
)

// unlisted: this kernel does not list its hooks. Asked again, it would look for a module each time.
var unlisted atomic.Bool

// hooked is of what kernel modules and the like have at the hooks that packets of t pass. The kernel tells nobody of changes.
func hooked(t Traffic) error {
	if unlisted.Load() {
		return withoutList()
	}
	conn, err := nft.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, n := range []uint32{unix.NF_INET_PRE_ROUTING, unix.NF_INET_LOCAL_IN, unix.NF_INET_LOCAL_OUT, unix.NF_INET_POST_ROUTING} {
		list, err := conn.Hooks(unix.NFPROTO_IPV4, n, "")
		if errors.Is(err, unix.EINVAL) { // nobody answers for this kind of message
			unlisted.Store(true)
			return withoutList()
		}
		if err != nil {
			return fmt.Errorf("list the hooks of netfilter: %w", err)
		}
		if err := unknownHook(list, understood); err != nil {
			return err
		}
	}
	for _, device := range []string{t.Device, t.Tunnel} {
		for _, n := range []uint32{atIngress, atEgress} {
			list, err := conn.Hooks(familyNetdev, n, device)
			if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) { // this kernel has no such hook
				continue
			}
			if err == nil {
				err = unknownHook(list, nil)
			}
			if err != nil {
				return fmt.Errorf("at the interface %s: %w", device, err)
			}
		}
	}
	return nil
}

// listed reports whether the kernel's list of hooks has something wherever rules are, as it has to: an empty one would say that
// nothing is unknown.
func listed(conn *nft.Conn, rules *nft.Ruleset) error {
	if unlisted.Load() {
		return nil
	}
	for _, table := range rules.Tables {
		for _, c := range table.Chains {
			if !c.Base || table.Family != unix.NFPROTO_IPV4 && table.Family != nft.Inet || c.Hook > unix.NF_INET_POST_ROUTING {
				continue
			}
			list, err := conn.Hooks(unix.NFPROTO_IPV4, c.Hook, "")
			if err == nil && len(list) == 0 {
				err = fmt.Errorf("there is none at hook %d, where the chain %s of table %s is", c.Hook, c.Name, table.Name)
			}
			if err != nil {
				return fmt.Errorf("list the hooks of netfilter: %w", err)
			}
			return nil
		}
	}
	return nil
}

// withoutList is of a kernel that does not list its hooks (CONFIG_NETFILTER_NETLINK_HOOK). All that Linux itself puts there is
// looked at elsewhere, or does nothing to these packets, but for SELinux and Smack. So it matters whether there is any module
// that is not Linux's own.
func withoutList() error {
	if err := labelled(); err != nil {
		return err
	}
	if unloadable() {
		return nil
	}
	modules, err := link.ReadAgain("/proc/modules")
	if err != nil {
		return fmt.Errorf("look at the kernel's modules, as it does not list its hooks of netfilter (CONFIG_NETFILTER_NETLINK_HOOK): %w", err)
	}
	return foreign(modules)
}

// labelled is of SELinux and Smack, which a kernel has from its boot on or never.
var labelled = sync.OnceValue(func() error {
	systems, err := link.ReadAgain("/proc/filesystems")
	if err != nil {
		return fmt.Errorf("look for SELinux and Smack: %w", err)
	}
	return labels(systems)
})

// unloadable reports whether this kernel can load no modules at all.
var unloadable = sync.OnceValue(func() bool {
	for _, file := range []string{"/proc/modules", "/proc/sys/kernel/modprobe"} {
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return true
})

// labels says that packets are asked for the labels of a security module (/proc/filesystems).
func labels(systems []byte) error {
	for name, system := range map[string]string{"selinuxfs": "SELinux", "smackfs": "Smack"} {
		if bytes.Contains(systems, []byte("\t"+name+"\n")) {
			return fmt.Errorf("%s has hooks of netfilter, and the agent does not know what they do to packets", system)
		}
	}
	return nil
}

// foreign names a module that is not as Linux has it (/proc/modules): such a one has its taints at the end of its line.
func foreign(modules []byte) error {
	for line := range strings.Lines(string(modules)) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if taints := fields[len(fields)-1]; strings.HasPrefix(taints, "(") {
			return fmt.Errorf("the kernel's module %s is not Linux's own %s, and this kernel does not list its hooks of netfilter (CONFIG_NETFILTER_NETLINK_HOOK)", fields[0], taints)
		}
	}
	return nil
}
