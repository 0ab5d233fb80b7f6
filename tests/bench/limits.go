package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// A limit counts frames with their headers (docs/use/limits.md), and iperf3 what is in TCP: at the containers' MTU, with timestamps.
const (
	containersMTU = 1450
	framed        = float64(containersMTU+14) / (containersMTU - 52)
	datagramBytes = 1400
	datagramFrame = datagramBytes + 8 + 20 + 14
)

// serves is the server of limits, which tells what arrives second by second.
var serves = []string{"iperf3", "--server", "--json", "--daemon", "--port", "5301"}

// protocols are by which limits are measured.
var protocols = []string{"TCP", "UDP"}

// sockets are those from which datagrams are sent: one of them holds ten milliseconds of 100 Mbit/s, and who is not on
// a processor again by then sends less than he may.
const sockets = 4

// gets is the rate at which something arrives, in frames, bits a second, as its receiver tells it second by second. The first one, in which what the
// bucket and its queue hold counts for much, is left out, and the last one, which is cut short. Of datagrams half as many again are sent as may.
func (m more) gets(ctx context.Context, p path, protocol string, megabits float64, back bool) (float64, error) {
	args := []string{"iperf3", "-J", "--get-server-output", "-t", strconv.Itoa(m.b.seconds + 2), "-c", p.addr.String(), "-p", "5301"}
	switch {
	case protocol == "UDP":
		args = append(args, "-u", "-P", strconv.Itoa(sockets), "-b", fmt.Sprint(megabits*1.5/sockets, "M"), "-l", strconv.Itoa(datagramBytes))
	case megabits < 1000:
		args = append(args, "-l", "4K") // it counts whole blocks, and its own are a second of the slowest limit
	}
	if back {
		args = append(args, "-R")
	}
	var bits, seconds float64
	err := lab.Eventually(ctx, 15*time.Second*m.b.patience, func() error {
		text, err := p.client(ctx, args...)
		if err != nil {
			return err
		}
		var report struct {
			iperfSeconds
			Server iperfSeconds `json:"server_output_json"`
		}
		if err := json.Unmarshal([]byte(text), &report); err != nil {
			return fmt.Errorf("read iperf3's report: %w", err)
		}
		list := report.Server.Intervals
		if back {
			list = report.Intervals
		}
		bits, seconds = 0, 0
		for _, one := range list[min(1, len(list)):min(m.b.seconds+1, len(list))] {
			bits, seconds = bits+one.Sum.Bytes*8, seconds+one.Sum.Seconds
		}
		if seconds == 0 {
			return errors.New("iperf3 reports nothing that arrived")
		}
		return nil
	})
	frames := framed
	if protocol == "UDP" {
		frames = datagramFrame / float64(datagramBytes)
	}
	return bits / seconds * frames, err
}

// bucket is the limit itself, an interface's queue, asked where it is.
type bucket func(ctx context.Context, argv ...string) (string, error)

// passed is how many bytes, in frames, it has let through, and when, in seconds.
func (q bucket) passed(ctx context.Context) (bytes, at float64, err error) {
	text, err := q(ctx, "sh", "-c", "head -c 20 /proc/uptime; echo; tc -s -j qdisc show; head -c 20 /proc/uptime")
	if err != nil {
		return 0, 0, err
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	var begin, end float64
	if _, err := fmt.Sscan(lines[0], &begin); err != nil {
		return 0, 0, fmt.Errorf("read the time: %w", err)
	}
	if _, err := fmt.Sscan(lines[len(lines)-1], &end); err != nil {
		return 0, 0, fmt.Errorf("read the time: %w", err)
	}
	var list []struct {
		Kind  string  `json:"kind"`
		Bytes float64 `json:"bytes"`
	}
	if err := json.Unmarshal([]byte(strings.Join(lines[1:len(lines)-1], "")), &list); err != nil {
		return 0, 0, fmt.Errorf("read tc's report: %w", err)
	}
	for _, one := range list {
		if one.Kind == "tbf" {
			return one.Bytes, (begin + end) / 2, nil
		}
	}
	return 0, 0, errors.New("there is no limit")
}

// during is the rate, bits a second, at which it lets something through in the middle of what run does. Where that is the limit and
// less arrives, the limit is not the reason.
func (q bucket) during(ctx context.Context, seconds int, megabits float64, run func() error) (float64, error) {
	before, _, err := q.passed(ctx)
	if err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- run() }()
	var begin, from float64
	for begin-before < megabits*1e6/8/2 { // it has begun
		select {
		case err := <-ended:
			return 0, errors.Join(err, errors.New("it ended before half a second's worth had passed the limit"))
		case <-time.After(50 * time.Millisecond):
		}
		if begin, from, err = q.passed(ctx); err != nil {
			return 0, err
		}
	}
	time.Sleep(time.Duration(seconds) * time.Second)
	end, to, err := q.passed(ctx)
	if err := errors.Join(err, <-ended); err != nil {
		return 0, err
	}
	return (end - begin) * 8 / (to - from), nil
}

// iperfSeconds is what iperf3's report says of each second.
type iperfSeconds struct {
	Intervals []struct {
		Sum struct {
			Bytes   float64 `json:"bytes"`
			Seconds float64 `json:"seconds"`
		} `json:"sum"`
	} `json:"intervals"`
}

// limits has a container, whose limits are changed while it runs from 1 Mbit/s to 1 Gbit/s, send to and get from a container of the same host,
// one of another one, with the fast path and direct, and the outside. A figure is the share of the limit that arrives, in frames, and behind it
// what the limit let pass.
func (m more) limits(ctx context.Context) error {
	b := m.b
	if b.kind != "namespace" {
		return nil
	}
	one, two := b.lab.Hosts[0], b.lab.Hosts[1]
	ends := map[*lab.Host]lab.Container{}
	for _, h := range b.lab.Hosts {
		if _, err := h.Docker(ctx, "run", "-d", "--name", "unlimited", "--network", grapevine, lab.Image, "sleep", "100000"); err != nil {
			return err
		}
		c, err := h.Container(ctx, "unlimited")
		if err != nil {
			return err
		}
		ends[h] = c
		if _, err := c.Exec(ctx, serves...); err != nil {
			return err
		}
	}
	if _, err := b.lab.Outside.Program(ctx, serves...); err != nil {
		return err
	}
	if _, err := one.Docker(ctx, "run", "-d", "--name", "limited", "--network", grapevine, lab.Image, "sleep", "100000"); err != nil {
		return err
	}
	c, err := one.Container(ctx, "limited")
	if err != nil {
		return err
	}
	if err := c.Reach(ctx, 30*1e9*b.patience, ends[two].Addrs[grapevine][0]); err != nil {
		return err
	}
	for text := range strings.SplitSeq(b.options.limits, ",") {
		megabits, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("-limits: %w", err)
		}
		rate := fmt.Sprint(megabits, "mbit")
		if err := lab.Eventually(ctx, 15*time.Second*b.patience, func() error { // Docker tells the agent a container's name a little later
			_, err := one.Grapevine(ctx, "limit", "limited", "--egress", rate, "--ingress", rate)
			return err
		}); err != nil {
			return err
		}
		time.Sleep(time.Second) // it is in force within milliseconds
		for _, p := range []path{
			{name: "the same host", addr: ends[one].Addrs[grapevine][0]},
			{name: "another host", addr: ends[two].Addrs[grapevine][0]},
			{name: direct, addr: ends[two].Addrs[grapevine][0]},
			{name: "outside", addr: netip.MustParseAddr(lab.OutsideAddr)},
		} {
			p.client = c.Exec
			mode := "on"
			if p.name == direct {
				mode = "direct"
			}
			for _, h := range b.lab.Hosts {
				if _, err := h.Grapevine(ctx, "fastpath", mode); err != nil {
					return err
				}
			}
			for _, protocol := range protocols {
				if protocol == "UDP" && megabits >= 1000 {
					continue // a machine of two processors sends a tenth of these datagrams
				}
				line := []string{fmt.Sprintf("      limit %s, %s, %s:", rate, p.name, protocol)}
				for _, way := range []string{"sends", "gets"} {
					var got, let []float64
					q := bucket(c.Exec) // of what it sends, in its own namespace
					if way == "gets" {
						q = one.Exec
					}
					for range b.rounds {
						var rate float64
						passed, err := q.during(ctx, b.seconds, megabits, func() (err error) {
							rate, err = m.gets(ctx, p, protocol, megabits, way == "gets")
							return err
						})
						if err != nil {
							return err
						}
						got, let = append(got, rate/megabits/1e6), append(let, passed/megabits/1e6)
					}
					line = append(line, fmt.Sprintf("%s %.3f %.3f (passed by the limit %.3f %.3f)", way, median(got), got, median(let), let))
				}
				progress("%s", strings.Join(line, " "))
			}
		}
	}
	return nil
}
