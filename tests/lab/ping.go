package lab

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// PingResult is what a stream of echo requests saw.
type PingResult struct {
	Sent, Received int
	// Gap is the longest time between two answers.
	Gap time.Duration
	// Holes are the first of what was lost in a row.
	Holes []Hole
}

// Hole is a row of requests without an answer.
type Hole struct {
	At   time.Time // the first was sent
	For  time.Duration
	Lost int
}

// holes are the rows of what was not answered, of requests that were sent at these times.
func holes(sent []time.Time, answered map[uint16]bool) (list []Hole) {
	const most = 5
	in := false
	for i, at := range sent {
		switch {
		case answered[uint16(i)]:
			in = false
			continue
		case !in && len(list) == most:
			return list
		case !in:
			list, in = append(list, Hole{At: at}), true
		}
		h := &list[len(list)-1]
		h.For, h.Lost = at.Sub(h.At), h.Lost+1
	}
	return list
}

// Lost is the number of requests without an answer.
func (r PingResult) Lost() int { return r.Sent - r.Received }

// String says what was lost, and when, so that a daemon's log tells what went on then.
func (r PingResult) String() string {
	text := fmt.Sprintf("%d of %d lost, longest gap %s", r.Lost(), r.Sent, r.Gap.Round(time.Millisecond))
	for _, h := range r.Holes {
		text += fmt.Sprintf("; %d from %s on, sent within %s", h.Lost, h.At.UTC().Format("15:04:05.000"), h.For.Round(time.Millisecond))
	}
	return text
}

// pingMain is the pinger, run in a container's network namespace. With -stream it
// pings one address every interval until SIGTERM and prints a PingResult as JSON.
// Otherwise it pings all addresses every 100 ms until each has answered or the
// time is over, and prints those that have; it fails unless that is what -want says.
func pingMain(args []string) error { return ping(context.Background(), 0, args) }

// ping is the pinger in the network namespace of a process, or for 0 where we are.
func ping(ctx context.Context, pid int, args []string) error {
	flags := flag.NewFlagSet("ping", flag.ContinueOnError)
	stream := flags.Duration("stream", 0, "interval")
	within := flags.Duration("within", time.Second, "time for all to answer")
	want := flags.String("want", "all", "all or none")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var to []netip.Addr
	for _, arg := range flags.Args() {
		addr, err := netip.ParseAddr(arg)
		if err != nil {
			return err
		}
		to = append(to, addr)
	}
	if len(to) == 0 {
		return errors.New("no address to ping")
	}
	if *stream > 0 {
		return pingStream(to[0], *stream)
	}
	echoes, err := inNetns(pid, func() ([]*echo, error) { return newEchoes(to) })
	if err != nil {
		return err
	}
	return pingAll(ctx, echoes, *within, *want == "all")
}

func pingStream(to netip.Addr, interval time.Duration) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	e, err := newEcho(to)
	if err != nil {
		return err
	}
	defer e.close()
	var result PingResult
	var sent []time.Time
	answered, last := map[uint16]bool{}, time.Now()
	record := func(seq uint16, at time.Time) {
		if !answered[seq] && int(seq) < result.Sent {
			answered[seq] = true
			result.Received++
			result.Gap, last = max(result.Gap, at.Sub(last)), at
		}
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
			e.send(uint16(result.Sent)) // 65536 of them are 11 minutes at 100/s
			result.Sent++
			sent = append(sent, time.Now())
		case a := <-e.answers:
			record(a.seq, a.at)
		case <-ctx.Done():
		}
	}
	// A busy host answers late. One more is sent until it is answered: what was sent before that and has no answer a second later is lost.
	fence, again, dead := uint16(result.Sent), time.NewTicker(100*time.Millisecond), time.After(5*time.Second)
	defer again.Stop()
	for late := (<-chan time.Time)(nil); result.Received < result.Sent; {
		select {
		case a := <-e.answers:
			if a.seq == fence && late == nil {
				late = time.After(time.Second)
			}
			record(a.seq, a.at)
			continue
		case <-again.C:
			if late == nil {
				e.send(fence)
			}
			continue
		case <-late:
		case <-dead:
		}
		break
	}
	result.Holes = holes(sent, answered)
	return json.NewEncoder(os.Stdout).Encode(result)
}

// pingAll closes the echoes at its end.
func pingAll(ctx context.Context, echoes []*echo, within time.Duration, all bool) error {
	silent := map[netip.Addr]bool{}
	done, ended := make(chan netip.Addr), make(chan struct{})
	defer close(ended)
	for _, e := range echoes {
		silent[e.to] = true
		defer e.close()
		go func() {
			for range e.answers {
				select {
				case done <- e.to:
				case <-ended:
					return
				}
			}
		}()
	}
	tick, over := time.NewTicker(100*time.Millisecond), time.After(within)
	defer tick.Stop()
	var answered []string
	for seq := uint16(0); ; seq++ {
		for _, e := range echoes {
			if silent[e.to] {
				e.send(seq)
			}
		}
	wait:
		for {
			select {
			case addr := <-done:
				if silent[addr] {
					delete(silent, addr)
					answered = append(answered, addr.String())
				}
				if len(silent) == 0 {
					return verdict(answered, silent, all)
				}
			case <-tick.C:
				break wait
			case <-over:
				return verdict(answered, silent, all)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

func verdict(answered []string, silent map[netip.Addr]bool, all bool) error {
	switch {
	case all && len(silent) > 0:
		var names []string
		for addr := range silent {
			names = append(names, addr.String())
		}
		return fmt.Errorf("no answer from %s", strings.Join(names, ", "))
	case !all && len(answered) > 0:
		return fmt.Errorf("an answer from %s", strings.Join(answered, ", "))
	}
	return nil
}
