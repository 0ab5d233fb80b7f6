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

// gets is the rate at which something arrives, in frames, bits a second, as its receiver tells it second by second; the first one, in which what the
// bucket and its queue hold counts for much, is left out. Of datagrams half as many again are sent as may.
func (m more) gets(ctx context.Context, p path, protocol string, megabits float64, back bool) (float64, error) {
	args := []string{"iperf3", "-J", "--get-server-output", "-t", strconv.Itoa(m.b.seconds + 1), "-c", p.addr.String(), "-p", "5301"}
	switch {
	case protocol == "UDP":
		args = append(args, "-u", "-b", fmt.Sprint(megabits*1.5, "M"), "-l", strconv.Itoa(datagramBytes))
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
// one of another one, with the fast path and direct, and the outside. A figure is the share of the limit that is reached, in frames.
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
				for i, way := range []string{"sends", "gets"} {
					var got []float64
					for range b.rounds {
						rate, err := m.gets(ctx, p, protocol, megabits, i == 1)
						if err != nil {
							return err
						}
						got = append(got, rate/megabits/1e6)
					}
					line = append(line, way, strconv.FormatFloat(median(got), 'f', 3, 64), fmt.Sprintf("%.3f", got))
				}
				progress("%s", strings.Join(line, " "))
			}
		}
	}
	return nil
}
