package bypass

import (
	"encoding/binary"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/nft"
)

// attribute is one of netlink's.
func attribute(kind uint16, value ...byte) []byte {
	out := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	out = append(binary.NativeEndian.AppendUint16(out, kind), value...)
	for len(out)%4 != 0 {
		out = append(out, 0)
	}
	return out
}

// Of what stands at the hooks of netfilter, all has to be understood.
func TestUnknownHook(t *testing.T) {
	named := func(function, module string) []byte {
		out := append(attribute(1, 0, 0, 0, 0), attribute(4, append([]byte(function), 0)...)...)
		if module != "" {
			out = append(out, attribute(5, append([]byte(module), 0)...)...)
		}
		return out
	}
	ofType := func(kind byte, function string) []byte {
		return append(named(function, ""), attribute(6|unix.NLA_F_NESTED, attribute(2, 0, 0, 0, kind)...)...)
	}
	for _, c := range []struct {
		name  string
		attrs []byte
		want  string // of the reason; "": none
	}{
		{"conntrack", named("ipv4_conntrack_in", "nf_conntrack"), ""},
		{"conntrack in the kernel itself", named("nf_confirm", ""), ""},
		{"a function of that name in another module", named("ipv4_conntrack_in", "theirs"), "ipv4_conntrack_in, of the kernel's module theirs, is a hook"},
		{"nothing is understood by the beginning of its name", named("nf_confirmed", ""), "nf_confirmed is a hook"},
		{"a chain of nftables", ofType(1, "nft_do_chain_inet"), ""},
		{"a BPF program", ofType(2, "nf_hook_run_bpf"), "nf_hook_run_bpf"},
		{"a flowtable", ofType(3, "nf_flow_offload_inet_hook"), "nf_flow_offload_inet_hook"},
		{"IPVS", named("ip_vs_in_hook", "ip_vs"), "ip_vs_in_hook, of the kernel's module ip_vs, is a hook"},
		{"SELinux", named("selinux_ip_postroute", ""), "selinux_ip_postroute"},
		{"the kernel does not name it", attribute(1, 0, 0, 0, 0), "of an unknown name"},
	} {
		got := verdict(unknownHook([]nft.Hook{nft.HookOf(c.attrs)}, understood))
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if got := verdict(unknownHook([]nft.Hook{nft.HookOf(named("ipv4_conntrack_in", "nf_conntrack"))}, nil)); got == "" {
		t.Error("at an interface, where nothing is understood, there is nothing against it")
	}
}

// Where the kernel does not list its hooks, modules that are not Linux's own are against it.
func TestForeignModules(t *testing.T) {
	const modules = "ip_vs 200704 0 - Live 0x0000000000000000\nnf_conntrack 200704 4 xt_nat,nf_nat, Live 0x0000000000000000\n"
	if err := foreign([]byte(modules)); err != nil {
		t.Error(err)
	}
	if got := verdict(foreign([]byte(modules + "theirs 16384 0 - Live 0x0000000000000000 (OE)\n"))); !strings.Contains(got, "theirs is not Linux's own (OE)") {
		t.Errorf("judged %q", got)
	}
	if err := labels([]byte("nodev\tsysfs\n\text4\n")); err != nil {
		t.Error(err)
	}
	if got := verdict(labels([]byte("nodev\tsysfs\nnodev\tselinuxfs\n"))); !strings.Contains(got, "SELinux has hooks") {
		t.Errorf("judged %q", got)
	}
}

// A hook that no rule at these packets' hooks belongs to is seen where the kernel lists them: one for SYNPROXY of what is forwarded.
func TestLookAtHooks(t *testing.T) {
	ns, traffic := host(t)
	traffic.Peers = nil
	ns.Do(func() {
		run(t, "iptables-nft -t nat -A POSTROUTING -o docker0 -j MASQUERADE", "iptables-nft -A FORWARD -m conntrack --ctstate INVALID -j DROP", "iptables-legacy -L", "iptables-legacy -t nat -L")
		if err := look(traffic, "none"); err != nil {
			t.Fatal(err)
		}
		conn, err := nft.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		list, err := conn.Hooks(unix.NFPROTO_IPV4, unix.NF_INET_PRE_ROUTING, "")
		if err != nil {
			// Also where CI is set: its kernel is not the tests' to choose. In QEMU there is one that lists them; what is made of a
			// list, and of none, TestUnknownHook and TestForeignModules say.
			t.Skipf("this kernel does not list its hooks: %v", err)
		}
		t.Logf("%+v", list)
		if len(list) == 0 {
			t.Error("there are no hooks, though there is conntrack")
		}
		run(t, "iptables-nft -A FORWARD -p tcp -m conntrack --ctstate INVALID -j SYNPROXY --sack-perm --timestamp --wscale 7 --mss 1460")
		if got := verdict(look(traffic, "none")); !strings.Contains(got, "the function ipv4_synproxy_hook") {
			t.Errorf("judged %q", got)
		}
		run(t, "iptables-nft -F FORWARD")
		if err := look(traffic, "none"); err != nil {
			t.Error(err)
		}
	})
}
