package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// The paths to a replica on the other host.
const (
	ownAddress = "replica's own"   // of grapevine
	ourVIP     = "grapevine's VIP" // a service's, nftables in the client's sandbox
	swarmOwn   = "task's own"      // of Docker's overlay
	swarmVIP   = "Swarm's VIP"     // IPVS in the client's sandbox
)

// services measures connections and a TCP stream to the address of a service with one replica on the other host: of grapevine,
// and of Docker's swarm where the kernel has IPVS.
func (b *bench) services(ctx context.Context) error {
	if b.kind == "uml" && b.modules == "" {
		progress("      not measured: that kernel has no nf_tables for IP, and grapevine no service addresses there; with -modules it has")
		return nil
	}
	paths, err := b.ourService(ctx)
	if err != nil {
		return err
	}
	if b.overlay {
		more, err := b.swarmService(ctx)
		if err != nil {
			return err
		}
		paths = append(paths, more...)
	}
	of := *b
	of.paths = paths
	for round := range b.rounds {
		for turn := range turns {
			if err := of.inTurns(ctx, round+turn, connects, func(ctx context.Context, p path) (float64, error) { return b.perSecond(ctx, p, true) }); err != nil {
				return err
			}
			if err := of.inTurns(ctx, round+turn, stream, b.throughput); err != nil {
				return err
			}
		}
		progress("      round %d of %d", round+1, b.rounds)
		b.served = paths
		progress("%s", b.reportServices()) // an emulated kernel takes its time, and who has none left has this
	}
	b.served = paths
	return nil
}

// The figures of services.
const (
	connects = "TCP connections (1/s)"
	stream   = "TCP, 1 stream (Gbit/s)"
)

// ourService makes a container on the second host, and a service before it, and returns the ways from the first one to both.
func (b *bench) ourService(ctx context.Context) ([]path, error) {
	one, two := b.lab.Hosts[0], b.lab.Hosts[1]
	if _, err := two.Docker(ctx, "run", "-d", "--name", "replica", "--network", grapevine, lab.Image, "sleep", "100000"); err != nil {
		return nil, err
	}
	said, err := one.Grapevine(ctx, "service", "create", "measured", "--network", grapevine, "--select", "replica", "--port", "5301", "--port", "5302")
	if err != nil {
		return nil, err
	}
	vip := addressIn(said)
	client, err := one.Container(ctx, grapevine+"-end")
	if err != nil {
		return nil, err
	}
	replica, err := two.Container(ctx, "replica")
	if err != nil {
		return nil, err
	}
	return b.ways(ctx, client, replica, grapevine, vip, ownAddress, ourVIP)
}

// swarmService is the same of Docker's overlay.
func (b *bench) swarmService(ctx context.Context) ([]path, error) {
	one, two := b.lab.Hosts[0], b.lab.Hosts[1]
	if text, err := one.Exec(ctx, "sh", "-c", "modprobe ip_vs 2>&1; ls /proc/net/ip_vs"); err != nil {
		progress("      Swarm's service address is not measured: this kernel has no IPVS: %s", strings.TrimSpace(text))
		return nil, nil
	}
	name, err := two.Docker(ctx, "info", "--format", "{{.Swarm.NodeID}}")
	if err != nil {
		return nil, err
	}
	if _, err := one.Docker(ctx, "service", "create", "--detach", "--no-resolve-image", "--name", "measured", "--network", overlay,
		"--constraint", "node.id=="+strings.TrimSpace(name), lab.Image, "sleep", "100000"); err != nil {
		return nil, err
	}
	var task lab.Container
	if err := lab.Eventually(ctx, 2*time.Minute*b.patience, func() error {
		id, err := two.Docker(ctx, "ps", "-q", "--filter", "label=com.docker.swarm.service.name=measured")
		if err == nil && strings.TrimSpace(id) == "" {
			err = fmt.Errorf("the service's task does not run on %s", two.Name)
		}
		if err == nil {
			task, err = two.Container(ctx, strings.TrimSpace(id))
		}
		return err
	}); err != nil {
		return nil, err
	}
	said, err := one.Docker(ctx, "service", "inspect", "--format", "{{range .Endpoint.VirtualIPs}}{{.Addr}} {{end}}", "measured")
	if err != nil {
		return nil, err
	}
	client, err := one.Container(ctx, overlay+"-end")
	if err != nil {
		return nil, err
	}
	return b.ways(ctx, client, task, overlay, addressIn(said), swarmOwn, swarmVIP)
}

// ways are those from a client to a replica by its own address and by its service's, once they are there.
func (b *bench) ways(ctx context.Context, client, replica lab.Container, network string, vip netip.Addr, own, by string) ([]path, error) {
	if len(replica.Addrs[network]) == 0 || !vip.IsValid() {
		return nil, fmt.Errorf("%s: the replica has the addresses %v, and the service %v", own, replica.Addrs, vip)
	}
	paths := []path{
		{name: own, client: client.Exec, server: replica.Exec, addr: replica.Addrs[network][0]},
		{name: by, client: client.Exec, server: replica.Exec, addr: vip},
	}
	if err := serve(ctx, paths[0]); err != nil {
		return nil, err
	}
	if err := lab.ServeRates(ctx, replica.Host, replica.Exec, "[::]:5302"); err != nil {
		return nil, err
	}
	for _, p := range paths {
		if err := lab.Eventually(ctx, time.Minute*b.patience, func() error {
			_, err := lab.Rate(ctx, p.client, netip.AddrPortFrom(p.addr, 5302).String(), true, 100*time.Millisecond)
			return err
		}); err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return paths, nil
}

// addressIn is the first IPv4 address among words; one may have the length of a prefix.
func addressIn(text string) netip.Addr {
	for _, word := range strings.Fields(text) {
		word, _, _ = strings.Cut(word, "/")
		if a, err := netip.ParseAddr(word); err == nil && a.Is4() {
			return a
		}
	}
	return netip.Addr{}
}

// reportServices is the table of medians and ratios of services.
func (b *bench) reportServices() string {
	if len(b.served) == 0 {
		return ""
	}
	var out strings.Builder
	fmt.Fprintf(&out, "\nA service's address: medians of %d rounds, %s hosts; a ratio is the median of those of each turn\n\n", b.rounds, b.kind)
	for _, f := range []struct {
		name   string
		digits int
	}{{connects, 0}, {stream, 2}} {
		for _, p := range b.served {
			fmt.Fprintf(&out, "%s, %s: %s\n", f.name, p.name, cell(b.samples.median(f.name, p.name), f.digits))
		}
		for _, r := range [][2]string{{ourVIP, ownAddress}, {ourVIP, swarmVIP}, {swarmVIP, swarmOwn}} {
			fmt.Fprintf(&out, "%s, %s/%s: %s\n", f.name, r[0], r[1], b.samples.compared(f.name, r[0], r[1]))
		}
	}
	return out.String()
}
