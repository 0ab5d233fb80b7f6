package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// Grapevine with its fast path off and, between two hosts, by the VXLAN device and the hosts' stacks, though it may be direct.
const (
	slow   = "fast path off"
	held   = "not direct"
	direct = "direct"
)

// figure is a row of the table. Of a rate more is better, of a cost less. want is what of Docker's
// overlay is to be reached between two hosts.
type figure struct {
	name    string
	digits  int
	cost    bool
	want    float64
	measure func(context.Context, *bench, path) (float64, error)
}

var figures = []figure{
	{"TCP, 1 stream (Gbit/s)", 2, false, 1.1, func(ctx context.Context, b *bench, p path) (float64, error) { return b.streams(ctx, p, 1) }},
	{"TCP, 8 streams (Gbit/s)", 2, false, 1.1, func(ctx context.Context, b *bench, p path) (float64, error) { return b.streams(ctx, p, 8) }},
	{"round trip (ms)", 4, true, 0.65, func(ctx context.Context, b *bench, p path) (float64, error) {
		if b.kind != "namespace" { // to write the replies down would take longer than they do
			return roundTrip(ctx, p, 4000*b.seconds)
		}
		return exactTrip(ctx, p, 4000*b.seconds)
	}},
	{"UDP, 64 bytes (kpackets/s)", 1, false, 1.3, func(ctx context.Context, b *bench, p path) (float64, error) { return b.packets(ctx, p) }},
	{"TCP request-response (1/s)", 0, false, 1.15, func(ctx context.Context, b *bench, p path) (float64, error) { return b.perSecond(ctx, p, false) }},
	{"TCP connections (1/s)", 0, false, 1.15, func(ctx context.Context, b *bench, p path) (float64, error) { return b.perSecond(ctx, p, true) }},
}

// cpu is taken with the first figure: processor time of all hosts.
var cpu = figure{name: "CPU (s per Gbit)", digits: 3, cost: true, want: 0.9}

// all are the rows of the table.
func all() []figure { return append(slices.Clone(figures), cpu) }

// toOutside are the rows of what goes by the gateway.
var toOutside = []figure{
	{"TCP, up (Gbit/s)", 2, false, 1, func(ctx context.Context, b *bench, p path) (float64, error) { return b.streams(ctx, p, 1) }},
	{"TCP, down (Gbit/s)", 2, false, 1, func(ctx context.Context, b *bench, p path) (float64, error) { return b.streams(ctx, p, 1, "-R") }},
	{"round trip (ms)", 4, true, 0.95, func(ctx context.Context, b *bench, p path) (float64, error) { return exactTrip(ctx, p, 4000*b.seconds) }},
	{"TCP request-response (1/s)", 0, false, 1, func(ctx context.Context, b *bench, p path) (float64, error) { return b.perSecond(ctx, p, false) }},
	{"TCP connections (1/s)", 0, false, 1, func(ctx context.Context, b *bench, p path) (float64, error) { return b.perSecond(ctx, p, true) }},
}

// The places.
const (
	twoHosts  = "two hosts"
	oneHost   = "one host"
	outward   = "to the outside"
	published = "published port, from outside"
	hostward  = "from the host to its container"
)

// place is where the two ends are, and what is measured there against which peer.
type place struct {
	name    string
	paths   []path
	peer    string
	figures []figure
}

// rows are the figures, with what is taken beside them.
func (at place) rows() []figure {
	if at.peer == bridge {
		return at.figures
	}
	return append(slices.Clone(at.figures), cpu)
}

// table measures two hosts and one.
func (b *bench) table(ctx context.Context) error {
	places, err := b.places(ctx)
	if err != nil {
		return err
	}
	return b.measureAt(ctx, places)
}

// measureAt measures all figures of some places, on all paths in turns.
func (b *bench) measureAt(ctx context.Context, places []place) (err error) {
	if b.machine, err = b.about(ctx); err != nil {
		return err
	}
	b.tables = append(b.tables, places...)
	for _, at := range places {
		for _, p := range at.paths {
			if p.name != slow && p.name != held && at.name != outward && at.name != hostward { // their server is another's
				if err := lab.ServeRates(ctx, b.lab.Hosts[1], p.server, "[::]:5302"); err != nil {
					return err
				}
			}
		}
	}
	time.Sleep(time.Second) // the servers listen
	for round := range b.rounds {
		for _, at := range places {
			for n, f := range at.figures {
				if err := b.row(ctx, at, f, round, n == 0); err != nil {
					return fmt.Errorf("%s, %s, %w", at.name, f.name, err)
				}
			}
		}
		progress("      round %d of %d", round+1, b.rounds)
	}
	return nil
}

// row takes one sample of a figure on each path, in turns, and of the processor time of it.
func (b *bench) row(ctx context.Context, at place, f figure, turn int, spent bool) error {
	var line []string
	for i := range at.paths {
		p := at.paths[(turn+i)%len(at.paths)]
		if err := b.switchFor(ctx, p); err != nil {
			return err
		}
		v, err := f.measure(ctx, b, p)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		b.samples.add(f.name, at.name+p.name, v)
		if spent {
			b.samples.add(cpu.name, at.name+p.name, b.spent)
		}
		line = append(line, fmt.Sprintf("%s %.*f", p.name, f.digits, v))
	}
	progress("      %s, %s: %s", at.name, f.name, strings.Join(line, ", "))
	return nil
}

// switchFor turns the fast path of both hosts as the path wants it.
func (b *bench) switchFor(ctx context.Context, p path) error {
	mode := map[string]string{grapevine: b.fast, slow: "off", held: "on"}[p.name]
	if mode == "" {
		return nil
	}
	for _, h := range b.lab.Hosts {
		// By auto it is direct, where it is, once the host's rules have been looked at.
		for tries := 20; ; tries-- {
			said, err := h.Grapevine(ctx, "fastpath", mode)
			if err != nil {
				return err
			}
			if mode != "auto" || b.kind != "namespace" || tries == 0 || strings.Contains(said, "is direct") {
				break
			}
			time.Sleep(200 * time.Millisecond)
		}
	}
	return nil
}

// places are two hosts and one, with the paths at each.
func (b *bench) places(ctx context.Context) ([]place, error) {
	two, one := place{twoHosts, nil, overlay, figures}, place{oneHost, nil, overlay, figures}
	for _, p := range b.paths {
		two.paths = append(two.paths, p)
		if p.name == grapevine {
			two.paths = append(two.paths, path{name: slow, client: p.client, server: p.server, addr: p.addr})
			if b.kind == "namespace" {
				two.paths = append(two.paths, path{name: held, client: p.client, server: p.server, addr: p.addr})
			}
		}
	}
	h := b.lab.Hosts[0]
	for _, network := range b.networks() {
		if _, err := h.Docker(ctx, "run", "-d", "--name", network+"-near", "--network", network, lab.Image, "sleep", "100000"); err != nil {
			return nil, err
		}
		near, err := h.Container(ctx, network+"-near")
		if err != nil {
			return nil, err
		}
		end, err := h.Container(ctx, network+"-end")
		if err != nil {
			return nil, err
		}
		addr := near.Addrs[network][0]
		if err := end.Reach(ctx, 30*time.Second*b.patience, addr); err != nil {
			return nil, err
		}
		p := path{name: network, client: end.Exec, server: near.Exec, addr: addr}
		if err := serve(ctx, p); err != nil {
			return nil, err
		}
		one.paths = append(one.paths, p)
		if network == grapevine {
			one.paths = append(one.paths, path{name: slow, client: end.Exec, server: near.Exec, addr: addr})
		}
	}
	return []place{two, one}, nil
}

// gateway measures what has one end outside.
func (b *bench) gateway(ctx context.Context) error {
	if b.kind != "namespace" {
		return nil // the fast path does not carry it there
	}
	places, err := b.beyond(ctx)
	if err != nil {
		return err
	}
	return b.measureAt(ctx, places)
}

// beyond are the places with one end outside. The peer is Docker's own bridge on the same host.
func (b *bench) beyond(ctx context.Context) ([]place, error) {
	out, in, from := place{outward, nil, bridge, toOutside}, place{published, nil, bridge, nil}, place{hostward, nil, bridge, toOutside}
	for _, f := range toOutside {
		if f.name != "round trip (ms)" { // a ping is the host's to answer
			in.figures = append(in.figures, f)
		}
	}
	h, outside := b.lab.Hosts[0], b.lab.Outside.Program
	addr := netip.MustParseAddr(lab.OutsideAddr)
	if err := serve(ctx, path{name: outward, server: outside}); err != nil {
		return nil, err
	}
	if err := lab.ServeRates(ctx, h, outside, "[::]:5302"); err != nil {
		return nil, err
	}
	for i, network := range []string{bridge, grapevine} {
		name, shift := network+"-published", 100*(i+1)
		port := func(n int) string { return fmt.Sprintf("%d:%d", n+shift, n) }
		if _, err := h.Docker(ctx, "run", "-d", "--name", name, "--network", network, "-p", port(5301), "-p", port(5302), lab.Image, "sleep", "100000"); err != nil {
			return nil, err
		}
		c, err := h.Container(ctx, name)
		if err != nil {
			return nil, err
		}
		if err := c.Reach(ctx, 30*time.Second*b.patience, addr); err != nil {
			return nil, err
		}
		leaves := path{name: network, client: c.Exec, server: outside, addr: addr}
		enters, near := path{network, outside, c.Exec, h.Addr(), shift}, path{name: network, client: h.Exec, server: c.Exec, addr: c.Addrs[network][0]}
		if err := serve(ctx, enters); err != nil {
			return nil, err
		}
		names := []string{network}
		if network == grapevine {
			names = append(names, slow)
		}
		for _, name := range names {
			leaves.name, enters.name, near.name = name, name, name
			out.paths, in.paths, from.paths = append(out.paths, leaves), append(in.paths, enters), append(from.paths, near)
		}
	}
	return []place{out, in, from}, nil
}

// streams is the throughput of so many at once; b.spent is the processor time of it.
func (b *bench) streams(ctx context.Context, p path, n int, args ...string) (float64, error) {
	before, err := b.busy(ctx)
	if err != nil {
		return 0, err
	}
	r, err := b.iperf(ctx, p, append(args, "-P", strconv.Itoa(n))...)
	if err != nil {
		return 0, err
	}
	after, err := b.busy(ctx)
	if err != nil {
		return 0, err
	}
	if n == 1 && r.Received.Bytes > 0 {
		b.spent = (after - before) / (r.Received.Bytes * 8 / 1e9)
	}
	return r.Received.Rate / 1e9, nil
}

// iperfEnd is the sum at the end of iperf3's report.
type iperfEnd struct {
	Received struct {
		Rate  float64 `json:"bits_per_second"`
		Bytes float64 `json:"bytes"`
	} `json:"sum_received"`
	Sum struct { // of datagrams
		All     float64 `json:"packets"`
		Missing float64 `json:"lost_packets"`
		Seconds float64 `json:"seconds"`
	} `json:"sum"`
}

// iperf runs iperf3 against the path's server, which may still be busy with the last
// client, and returns the end of its report.
func (b *bench) iperf(ctx context.Context, p path, args ...string) (iperfEnd, error) {
	args = append([]string{"iperf3", "-J", "-t", strconv.Itoa(b.seconds), "-p", strconv.Itoa(5301 + p.ports), "-c", p.addr.String()}, args...)
	var report struct{ End iperfEnd }
	err := lab.Eventually(ctx, 15*time.Second*b.patience, func() error {
		text, err := p.client(ctx, args...)
		if err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(text), &report); err != nil {
			return fmt.Errorf("read iperf3's report: %w", err)
		}
		if report.End.Received.Rate == 0 && report.End.Sum.Seconds == 0 {
			return errors.New("iperf3 reports neither a stream nor datagrams")
		}
		return nil
	})
	return report.End, err
}

// serve starts the path's iperf3 server.
func serve(ctx context.Context, p path) error {
	if _, err := p.server(ctx, "iperf3", "--server", "--daemon", "--port", "5301"); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}

// busy is the processor time, in seconds, of the hosts' kernels.
func (b *bench) busy(ctx context.Context) (sum float64, err error) {
	hosts := b.lab.Hosts
	if b.kind != "uml" {
		hosts = hosts[:1] // they share one
	}
	for _, h := range hosts {
		text, err := h.Exec(ctx, "head", "-n1", "/proc/stat")
		if err != nil {
			return 0, err
		}
		const idle, iowait = 4, 5 // proc(5)
		for i, field := range strings.Fields(text) {
			if n, err := strconv.ParseFloat(field, 64); err == nil && i != idle && i != iowait {
				sum += n / 100
			}
		}
	}
	return sum, nil
}

// packets is how many small datagrams a second arrive, in thousands.
func (b *bench) packets(ctx context.Context, p path) (float64, error) {
	r, err := b.iperf(ctx, p, "-u", "-b", "0", "-l", "64")
	if err != nil {
		return 0, err
	}
	s := r.Sum
	if s.Seconds == 0 {
		return 0, errors.New("iperf3 reports no datagrams")
	}
	return (s.All - s.Missing) / s.Seconds / 1000, nil
}

func (b *bench) perSecond(ctx context.Context, p path, connect bool) (float64, error) {
	host := p.addr.String()
	if p.addr.Is6() {
		host = "[" + host + "]"
	}
	return lab.Rate(ctx, p.client, host+":"+strconv.Itoa(5302+p.ports), connect, time.Duration(b.seconds)*time.Second)
}

// reportTable is the medians and what the fast path makes of them.
func (b *bench) reportTable() string {
	var out strings.Builder
	for _, at := range b.tables {
		fmt.Fprintf(&out, "\n%s: medians of %d rounds, %s hosts\n\n", at.name, b.rounds, b.kind)
		w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
		columns, ratios := at.columns()
		fmt.Fprintf(w, "\t%s\t", strings.Join(columns, "\t"))
		for _, r := range ratios {
			fmt.Fprintf(w, "%s/%s\t", r[0], r[1])
		}
		fmt.Fprintln(w)
		for _, f := range at.rows() {
			fmt.Fprintf(w, "%s\t", f.name)
			for _, path := range columns {
				fmt.Fprintf(w, "%s\t", cell(b.samples.median(f.name, at.name+path), f.digits))
			}
			for _, r := range ratios {
				fmt.Fprintf(w, "%s\t", cell(b.samples.ratio(f.name, at.name+r[0], at.name+r[1]), 2))
			}
			fmt.Fprintln(w)
		}
		_ = w.Flush() // to memory
	}
	return out.String()
}

// columns are the paths of a place, and which are compared.
func (at place) columns() (paths []string, ratios [][2]string) {
	if at.peer == bridge {
		return []string{bridge, grapevine, slow}, [][2]string{{grapevine, bridge}, {grapevine, slow}, {slow, bridge}}
	}
	return []string{underlay, overlay, grapevine, slow, held}, [][2]string{{grapevine, overlay}, {grapevine, slow}, {held, overlay}}
}
