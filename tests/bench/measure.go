package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// The figures.
const (
	tcp       = "TCP, 1 stream (Gbit/s)"
	trip      = "round trip (ms)"
	run1      = "docker run -d (s)"
	join      = "CreateEndpoint + Join (ms)"
	resident  = "resident memory (MB)"
	processor = "one core (%)"
)

// traffic measures throughput and round trips on all paths, in turns.
func (b *bench) traffic(ctx context.Context) error {
	for round := range b.rounds {
		for turn := range turns {
			if err := b.inTurns(ctx, turn, tcp, b.throughput); err != nil {
				return err
			}
			for i := range trips {
				if err := b.inTurns(ctx, turn+i, trip, func(ctx context.Context, p path) (float64, error) { return roundTrip(ctx, p, pings) }); err != nil {
					return err
				}
			}
		}
		var line []string
		for _, p := range b.paths {
			rates, rtts := b.samples[key{tcp, p.name}], b.samples[key{trip, p.name}]
			line = append(line, fmt.Sprintf("%s %.2f Gbit/s %.3f ms", p.name, median(rates[round*turns:]), median(rtts[round*turns*trips:])))
		}
		progress("      round %d: %s", round+1, strings.Join(line, ", "))
	}
	return nil
}

// turns is how often in a round the paths take turns at a second of TCP, and trips how
// often in each of them at round trips, pings at a time: one is over in less time than
// the machine's mood lasts.
const (
	turns = 5
	trips = 10
	pings = 250
)

// inTurns takes one sample of a figure on each path. No path is always the first: what the
// machine does beside falls on all alike.
func (b *bench) inTurns(ctx context.Context, turn int, figure string, measure func(context.Context, path) (float64, error)) error {
	for i := range b.paths {
		p := b.paths[(turn+i)%len(b.paths)]
		v, err := measure(ctx, p)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		b.samples.add(figure, p.name, v)
	}
	return nil
}

func (b *bench) throughput(ctx context.Context, p path) (float64, error) {
	r, err := b.iperf(ctx, p, "-t", "1", "-O", "1")
	return r.Received.Rate / 1e9, err
}

// rtt matches the last line of ping(8), "rtt min/avg/max/mdev = 0.1/0.2/0.3/0.4 ms", and reply the time of
// one reply, "64 bytes from 10.1.2.3: icmp_seq=1 ttl=64 time=0.042 ms".
var (
	rtt   = regexp.MustCompile(`= [\d.]+/([\d.]+)/`)
	reply = regexp.MustCompile(` time=([\d.]+) ms`)
)

// roundTrip is the mean time of pings, in ms, to a microsecond.
func roundTrip(ctx context.Context, p path, pings int) (float64, error) {
	text, err := p.client(ctx, "ping", "-A", "-q", "-c", strconv.Itoa(pings), "-w", "20", p.addr.String())
	if err != nil {
		return 0, err
	}
	m := rtt.FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("ping says no round-trip time: %q", text)
	}
	return strconv.ParseFloat(m[1], 64)
}

// exactTrip is roundTrip to a tenth of a microsecond: ping's own mean is rounded down to a whole one, a
// tenth of some paths' times. The replies are kept in a file: who reads them meanwhile takes time.
func exactTrip(ctx context.Context, p path, pings int) (float64, error) {
	text, err := p.client(ctx, "sh", "-c", fmt.Sprintf("ping -A -c %d -w 20 %s > /tmp/replies; cat /tmp/replies", pings, p.addr))
	if err != nil {
		return 0, err
	}
	replies := reply.FindAllStringSubmatch(text, -1)
	if len(replies) == 0 {
		return 0, fmt.Errorf("ping says no round-trip time: %q", text)
	}
	sum := 0.0
	for _, m := range replies {
		ms, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return 0, err
		}
		sum += ms
	}
	return sum / float64(len(replies)), nil
}

// dockerRun times `docker run -d`, the networks in turns.
func (b *bench) dockerRun(ctx context.Context) error {
	h := b.lab.Hosts[0]
	networks := b.networks()
	for range b.runs {
		slices.Reverse(networks)
		for _, network := range networks {
			begin := time.Now()
			if _, err := h.Docker(ctx, "run", "-d", "--name", "timed", "--network", network, lab.Image, "sleep", "1000"); err != nil {
				return err
			}
			b.samples.add(run1, network, time.Since(begin).Seconds())
			if _, err := h.Docker(ctx, "rm", "-f", "timed"); err != nil {
				return err
			}
		}
	}
	return nil
}

// call matches what the agent logs of an answered call of Docker's, at level debug.
var call = regexp.MustCompile(`NetworkDriver\.(CreateEndpoint|Join).*took=([\d.]+(?:ns|µs|ms|s))`)

// calls reads from the agent's log how long the calls of the timed containers took
// inside the agent.
func (b *bench) calls(context.Context) error {
	log, err := b.lab.Hosts[0].WholeLog("agent")
	if err != nil {
		return err
	}
	var created float64
	for _, m := range call.FindAllStringSubmatch(log, -1) {
		took, err := time.ParseDuration(m[2])
		if err != nil {
			return err
		}
		ms := float64(took) / float64(time.Millisecond)
		if m[1] == "CreateEndpoint" {
			created = ms
			continue
		}
		b.samples.add(join, grapevine, created+ms)
	}
	if len(b.samples[key{join, grapevine}]) == 0 {
		return fmt.Errorf("the agent's log has no answered call:\n%s", b.lab.Hosts[0].Log("agent", 5))
	}
	return nil
}

// atRest watches the agent while nothing happens, and in the same seconds the peer: the dockerd of that host, which keeps a swarm's
// raft, gossip and overlay. A processor that sleeps between two wakes finds its caches cold, and each wake costs many times what it
// does on a busy one: only what is measured beside it can be compared.
func (b *bench) atRest(ctx context.Context) error {
	h := b.lab.Hosts[0]
	programs := map[string]string{grapevine: "grapevine"}
	if b.overlay {
		programs[overlay] = "dockerd"
	}
	// What the last container left is done, its names are found, and the pages that only the start needed are given back:
	// an agent does that half a minute after it (package trim), and has one processor from ten seconds without work on.
	time.Sleep(45 * time.Second)
	before := map[string]use{}
	for path, program := range programs {
		u, err := useOf(ctx, h, program)
		if err != nil {
			return err
		}
		before[path] = u
	}
	time.Sleep(b.rest)
	for path, program := range programs {
		after, err := useOf(ctx, h, program)
		if err != nil {
			return err
		}
		b.samples.add(resident, path, after.megabytes)
		b.samples.add(processor, path, 100*(after.seconds-before[path].seconds)/b.rest.Seconds())
	}
	return nil
}

// use is what a process has used: processor time, and memory that is resident now.
type use struct{ seconds, megabytes float64 }

// useOf is what the oldest process of a program has used on a host, by its proc(5).
func useOf(ctx context.Context, h *lab.Host, program string) (use, error) {
	script := `p=$(pgrep -o -x ` + program + `) && cut -d' ' -f14,15 /proc/$p/stat && awk '/VmRSS/ {print $2}' /proc/$p/status`
	text, err := h.Exec(ctx, "sh", "-c", script)
	if err != nil {
		return use{}, fmt.Errorf("find %s: %w", program, err)
	}
	var user, system, kilobytes float64
	if _, err := fmt.Sscan(text, &user, &system, &kilobytes); err != nil {
		return use{}, fmt.Errorf("read what %s has used from %q: %w", program, text, err)
	}
	const ticks = 100 // USER_HZ
	return use{(user + system) / ticks, kilobytes / 1024}, nil
}
