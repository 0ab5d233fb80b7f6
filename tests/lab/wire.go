package lab

import (
	"context"
	"fmt"
	"strings"
)

// Wire is the link between the hosts: a bridge in a namespace of its own, which
// is also the hosts' router to the outside.
type Wire struct {
	box *box
}

// cutTable drops frames between pairs of ports (cut: all of them, loss: some, at
// random) and between ports and the router.
const cutTable = `
table bridge lab {
	set cut { type ifname . ifname; }
	set unrouted { type ifname; }
	chain loss { }
	chain forward {
		type filter hook forward priority 0;
		iifname . oifname @cut drop
		jump loss
	}
	chain input {
		type filter hook input priority 0;
		iifname @unrouted drop
	}
	chain output {
		type filter hook output priority 0;
		oifname @unrouted drop
	}
}
`

func startWire(ctx context.Context, dir string) (*Wire, error) {
	spec := boxSpec{Hostname: "wire", Net: netSpec{
		IP: []string{
			"link set lo up",
			// An address of its own: the least of its ports' would change with the hosts, and
			// those that stay would have no router for a while.
			"link add wire address 02:00:5e:00:53:01 type bridge mcast_snooping 0",
			"addr add " + gateway4 + "/" + wireBits4 + " dev wire",
			"addr add " + gateway6 + "/" + wireBits6 + " dev wire nodad",
			"link set wire up",
		},
		Sysctls: [][2]string{
			{"net/ipv4/ip_forward", "1"},
			{"net/ipv6/conf/all/forwarding", "1"},
			// A wire has no firewall: by default each frame would see the rules of IP as well.
			{"-net/bridge/bridge-nf-call-iptables", "0"},
			{"-net/bridge/bridge-nf-call-ip6tables", "0"},
			{"-net/bridge/bridge-nf-call-arptables", "0"},
		},
	}}
	b, err := startBox(dir, spec, boxNamespaces)
	if err != nil {
		return nil, err
	}
	w := &Wire{box: b}
	if err := b.ready(ctx); err != nil {
		b.kill()
		return nil, err
	}
	if err := w.nft(ctx, cutTable); err != nil {
		b.kill()
		return nil, err
	}
	return w, nil
}

func (w *Wire) nft(ctx context.Context, script string) error {
	_, err := w.box.run(ctx, request{Argv: []string{"nft", "-f", "-"}, Stdin: []byte(script)})
	return err
}

func (w *Wire) ip(ctx context.Context, lines ...string) error {
	_, err := w.box.run(ctx, request{Argv: []string{"ip", "-batch", "-"}, Stdin: []byte(strings.Join(lines, "\n"))})
	return err
}

// plug connects the box of process pid: its eth0 is a veth to the bridge.
func (w *Wire) plug(ctx context.Context, name string, pid, mtu int) error {
	w.unplug(ctx, name)
	// The wire has PIDs of its own: `ip link ... netns PID` would mean one of those.
	return enterNet(ctx, w.box.pid(), strings.Join([]string{
		fmt.Sprintf("link add %s mtu %d type veth peer name eth0 mtu %d netns %d", name, mtu, mtu, pid),
		fmt.Sprintf("link set %s master wire up", name),
	}, "\n"))
}

// unplug takes a host off, if it is there.
func (w *Wire) unplug(ctx context.Context, name string) {
	_ = enterNet(ctx, w.box.pid(), "link del "+name) // that it is gone already is no error
}

// Cut drops everything between hosts a and b, both ways, until Heal. The router
// and the outside stay reachable.
func (w *Wire) Cut(ctx context.Context, a, b string) error {
	return w.nft(ctx, fmt.Sprintf("add element bridge lab cut { %q . %q, %q . %q }\n", a, b, b, a))
}

// CutOneWay drops what from sends to to; the other way still works.
func (w *Wire) CutOneWay(ctx context.Context, from, to string) error {
	return w.nft(ctx, fmt.Sprintf("add element bridge lab cut { %q . %q }\n", from, to))
}

// CutOutside takes the router, and with it the outside, from a host.
func (w *Wire) CutOutside(ctx context.Context, host string) error {
	return w.nft(ctx, fmt.Sprintf("add element bridge lab unrouted { %q }\n", host))
}

// Loss drops the given percentage (1 to 99) of the frames that from sends to to, at random,
// until Heal.
func (w *Wire) Loss(ctx context.Context, from, to string, percent int) error {
	if percent < 1 || percent > 99 {
		return fmt.Errorf("a loss of %d%% is no loss of 1 to 99%%: use Cut or Heal", percent)
	}
	return w.nft(ctx, fmt.Sprintf("add rule bridge lab loss iifname %q oifname %q numgen random mod 100 < %d drop\n", from, to, percent))
}

// Guard drops what from sends to to in another address of IPv4 than the hosts' own, as IP source guard and clouds do, until Heal.
func (w *Wire) Guard(ctx context.Context, from, to string) error {
	return w.nft(ctx, fmt.Sprintf("add rule bridge lab loss iifname %q oifname %q ip saddr != %s/%s drop\n", from, to, gateway4, wireBits4))
}

// Slow lets what a host is sent through at so many kbit a second only, until Slow with 0;
// it waits for up to 300 ms, and what would wait longer is lost.
func (w *Wire) Slow(ctx context.Context, host string, kbit int) error {
	argv := []string{"tc", "qdisc", "del", "dev", host, "root"}
	if kbit > 0 {
		argv = []string{"tc", "qdisc", "replace", "dev", host, "root", "tbf", "rate", fmt.Sprint(kbit, "kbit"), "burst", "10k", "latency", "300ms"}
	}
	_, err := w.box.run(ctx, request{Argv: argv})
	return err
}

// Narrow gives a host's link an MTU: the wire loses larger packets from and to it,
// without a word to anybody, and the host's own interface knows nothing of it. A bridge lets
// 4 bytes more through, for a VLAN tag.
func (w *Wire) Narrow(ctx context.Context, host string, mtu int) error {
	return w.ip(ctx, fmt.Sprintf("link set %s mtu %d", host, mtu))
}

// Heal ends all cuts, losses and guards.
func (w *Wire) Heal(ctx context.Context) error {
	return w.nft(ctx, "flush set bridge lab cut\nflush set bridge lab unrouted\nflush chain bridge lab loss\n")
}
