package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// The paths of what is encrypted.
const (
	wireguard = "WireGuard, host to host"
	tunnelled = "VXLAN in that, by hand"
	encrypted = "encrypted"
	// inVXLAN is what follows it where the fast path is off.
	inVXLAN = ", fast path off"
	perGB   = "processor seconds for a GB"
)

// encryption measures TCP between containers of an encrypted network, against WireGuard between their hosts, which
// knows nothing of grapevine. Both are the kernel's where there is one, and else wireguard-go.
func (b *bench) encryption(ctx context.Context) error {
	if b.kind == "uml" && b.modules == "" {
		progress("      not measured: -modules \"$(scripts/kernel-modules)\" gives these kernels WireGuard")
		return nil
	}
	one, two := b.lab.Hosts[0], b.lab.Hosts[1]
	for _, h := range b.lab.Hosts {
		if err := h.StartWireGuard(ctx, b.lab.Hosts...); err != nil {
			return err
		}
	}
	if _, err := one.Docker(ctx, "network", "create", "-d", "grapevine", "--ipam-driver", "grapevine", "-o", "encrypted", encrypted); err != nil {
		return err
	}
	inside, err := b.containers(ctx, encrypted)
	if err != nil {
		return err
	}
	if err := serve(ctx, inside); err != nil {
		return err
	}
	plain := path{name: wireguard, client: one.Exec, server: two.Exec, addr: two.WireGuardAddr()}
	// The kernel's VXLAN in it, with the MTU that containers have: what the kernels' way costs without a switch, rules and containers.
	for i, h := range b.lab.Hosts[:2] {
		line := fmt.Sprintf("ip link add vxhand type vxlan id 99 dstport 4799 remote %s && ip addr add 10.98.0.%d/24 dev vxhand && ip link set vxhand mtu 1370 up",
			b.lab.Hosts[1-i].WireGuardAddr(), i+1)
		if _, err := h.Exec(ctx, "sh", "-c", line); err != nil {
			return err
		}
	}
	byHand := path{name: tunnelled, client: one.Exec, server: two.Exec, addr: netip.AddrFrom4([4]byte{10, 98, 0, 2})}
	of := *b
	of.paths = []path{plain, byHand, inside}
	if b.kind != "namespace" { // beside the kernel's own datapath the fast path is there for encrypted networks alone
		if err := b.goThrough(ctx, "", "without VXLAN to 1 of 1"); err != nil {
			return err
		}
		switched := inside
		switched.name += inVXLAN
		of.paths = append(of.paths, switched)
	}
	for round := range b.rounds {
		err := of.inTurns(ctx, round, tcp, func(ctx context.Context, p path) (float64, error) {
			if p.name == encrypted+inVXLAN {
				if err := b.goThrough(ctx, "off", "in VXLAN"); err != nil {
					return 0, err
				}
				defer func() { _ = b.goThrough(ctx, "auto", "without VXLAN to 1 of 1") }()
			}
			before := b.lab.CPU()
			r, err := b.iperf(ctx, p)
			if did := b.lab.CPU() - before; did > 0 && r.Received.Bytes > 0 {
				of.samples.add(perGB, p.name, did.Seconds()/r.Received.Bytes*1e9)
			}
			return r.Received.Rate / 1e9, err
		})
		if err != nil {
			return err
		}
		if len(of.paths) > 3 {
			progress("      round %d, fast path off: %.3f Gbit/s", round+1, last(b.samples[key{tcp, encrypted + inVXLAN}]))
		}
		progress("      round %d: %.3f, %.3f and %.3f Gbit/s", round+1, last(b.samples[key{tcp, wireguard}]), last(b.samples[key{tcp, tunnelled}]), last(b.samples[key{tcp, encrypted}]))
	}
	progress("      %s: %.3f Gbit/s; %s: %.3f, ratio %s; encrypted network: %.3f, ratio %s, to %s %s", wireguard, b.samples.median(tcp, wireguard),
		tunnelled, b.samples.median(tcp, tunnelled), b.samples.compared(tcp, tunnelled, wireguard),
		b.samples.median(tcp, encrypted), b.samples.compared(tcp, encrypted, wireguard), tunnelled, b.samples.compared(tcp, encrypted, tunnelled))
	if len(of.paths) > 3 {
		name := encrypted + inVXLAN
		progress("      %s: %.3f Gbit/s, ratio %s; %s %.1f, ratio %s", name, b.samples.median(tcp, name), b.samples.compared(tcp, name, wireguard), perGB, b.samples.median(perGB, name), b.samples.compared(perGB, wireguard, name))
	}
	// Beside other work a rate is what others leave; what the processors do for a byte is not.
	progress("      %s, of all that the lab does: %.1f; by hand %.1f; encrypted network %.1f: as a ratio of rates %s, to by hand %s", perGB, b.samples.median(perGB, wireguard),
		b.samples.median(perGB, tunnelled), b.samples.median(perGB, encrypted), b.samples.compared(perGB, wireguard, encrypted), b.samples.compared(perGB, tunnelled, encrypted))
	return nil
}

// goThrough switches the fast path of both hosts, unless it is to stay, until packets go so. A processor that is emulated takes longer to
// load programs than who asks waits: what they say in the end counts.
func (b *bench) goThrough(ctx context.Context, mode, how string) error {
	for _, h := range b.lab.Hosts[:2] {
		if mode == "" {
			break
		}
		if _, err := h.Grapevine(ctx, "fastpath", mode); err != nil {
			progress("      %s: fastpath %s: %v", h.Name, mode, err)
		}
	}
	return lab.Eventually(ctx, time.Minute*b.patience, func() error {
		for _, h := range b.lab.Hosts[:2] {
			if said, err := h.Grapevine(ctx, "status"); err != nil || !strings.Contains(said, how) {
				return fmt.Errorf("%s: packets do not go %s yet: %w", h.Name, how, err)
			}
		}
		return nil
	})
}

// The kinds of figures of beside, and its paths.
const (
	quickest = "a datagram (ns), by the first hundredth"
	middling = "a datagram (ns), in the median"
	alone    = "no encrypted network"
	together = "beside one"
)

// beside measures what it costs a network that is not encrypted that there is one that is, which is made and removed in turns, with each kind
// of fast path. Of datagrams, since some of them meet nothing else on the machine.
func (b *bench) beside(ctx context.Context) error {
	one, two := b.lab.Hosts[0], b.lab.Hosts[1]
	client, err := one.Container(ctx, grapevine+"-end")
	if err != nil {
		return err
	}
	server, err := two.Container(ctx, grapevine+"-end")
	if err != nil {
		return err
	}
	to := netip.AddrPortFrom(server.Addrs[grapevine][0], 9).String()
	there := func(want string) error {
		return lab.Eventually(ctx, time.Minute*b.patience, func() error {
			for _, h := range b.lab.Hosts[:2] {
				if _, err := h.Exec(ctx, "sh", "-c", want+" nft list table inet grapevine | grep -q encrypted-in"); err != nil {
					return fmt.Errorf("the rules of encrypted networks on %s: %w", h.Name, err)
				}
			}
			return nil
		})
	}
	for _, mode := range []string{"on", "direct"} {
		for _, h := range b.lab.Hosts[:2] {
			if _, err := h.Grapevine(ctx, "fastpath", mode); err != nil {
				return err
			}
		}
		got := samples{}
		for round := range b.rounds {
			for i := range 2 {
				way := []string{alone, together}[(round+i)%2]
				if way == together {
					if _, err := one.Docker(ctx, "network", "create", "-d", "grapevine", "--ipam-driver", "grapevine", "-o", "encrypted", encrypted+"2"); err != nil {
						return err
					}
					err = there("")
				} else {
					err = there("!")
				}
				if err != nil {
					return err
				}
				if err := client.Reach(ctx, 30*time.Second*b.patience, server.Addrs[grapevine][0]); err != nil {
					return err
				}
				for range 4 {
					out, err := client.Cast(ctx, "pace", to, "20000")
					if err != nil {
						return err
					}
					var low, mid float64
					if _, err := fmt.Sscan(out, &low, &mid); err != nil {
						return fmt.Errorf("%q: %w", out, err)
					}
					got.add(quickest, way, low)
					got.add(middling, way, mid)
				}
				if way == together {
					if _, err := one.Docker(ctx, "network", "rm", encrypted+"2"); err != nil {
						return err
					}
				}
			}
		}
		for _, figure := range []string{quickest, middling} {
			progress("      %s, fast path %s: %.0f; %s %.0f; ratio %s", figure, mode, got.median(figure, alone), together, got.median(figure, together), got.compared(figure, together, alone))
		}
	}
	return nil
}

func last(v []float64) float64 { return v[len(v)-1] }
