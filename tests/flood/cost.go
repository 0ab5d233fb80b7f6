package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/host/proxy"
	"github.com/grapevine-net/grapevine/tests/lab"
)

// reading is what processes of the host have taken and have.
type reading struct {
	files, goroutines int           // of the agent
	kB                int           // what the agent has used of memory, at its most since that was asked for
	agent, beside     time.Duration // processor: the agent's; that of Open vSwitch and of WireGuard
	asked             time.Duration // how long `grapevine status` took
}

// read prints the agent's files, memory at its most since the last time, and ticks; and the ticks of the others.
const read = `
a=$(pgrep -x grapevine | "$0" -n 1)
ls /proc/$a/fd | wc -l
awk '/^VmHWM/ {print $2}' /proc/$a/status
ticks() { awk '{sub(/.*\) /, ""); print $12 + $13}' /proc/$1/stat; }
ticks $a
sum=0; for p in $(pgrep -f 'ovs-vswitchd|wireguard'); do n=$(ticks $p 2>/dev/null || echo 0); sum=$((sum + n)); done; echo $sum
`

// tick is what /proc counts in.
const tick = 10 * time.Millisecond

// which of the host's grapevines is read: the agent is the first one, what serves the page the last.
func (f flood) which() string {
	if f.page {
		return "tail"
	}
	return "head"
}

func readOf(ctx context.Context, h *lab.Host, f flood) (r reading, err error) {
	text, err := h.Exec(ctx, "sh", "-c", read, f.which())
	if err != nil {
		return r, err
	}
	var n [4]int
	fields := strings.Fields(text)
	if len(fields) != len(n) {
		return r, fmt.Errorf("read the agent's cost: %q", text)
	}
	for i := range n {
		if n[i], err = strconv.Atoi(fields[i]); err != nil {
			return r, err
		}
	}
	r.files, r.kB, r.agent, r.beside = n[0], n[1], time.Duration(n[2])*tick, time.Duration(n[3])*tick
	begin := time.Now()
	out, err := h.Grapevine(ctx, "status", "-o", "json")
	if err != nil {
		return r, err
	}
	r.asked = time.Since(begin)
	var s api.Status
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		return r, err
	}
	if !f.page {
		r.goroutines = s.Process.Goroutines
	}
	return r, nil
}

// cost is what a flood has cost.
type cost struct {
	sent                  int
	files, goroutines, kB int // more than before, at the most
	agent, beside, took   time.Duration
	asked                 time.Duration // the longest
	pings, lost           int
}

// measure floods, and looks meanwhile.
func (w *world) measure(ctx context.Context, f flood, during time.Duration) (c cost, err error) {
	h := w.host
	if f.on != nil {
		h = f.on
	}
	// What was said before has been dealt with, and memory is counted from here on.
	if _, err := h.Exec(ctx, "sh", "-c", `echo 5 >/proc/$(pgrep -x grapevine | "$0" -n 1)/clear_refs`, f.which()); err != nil {
		return c, err
	}
	before, err := readOf(ctx, h, f)
	if err != nil {
		return c, err
	}
	pinging, err := w.near.StartPinging(ctx, w.far.AllAddrs()[0], 50*time.Millisecond)
	if err != nil {
		return c, err
	}
	begin := time.Now()
	done := make(chan error, 1)
	go func() {
		var err error
		c.sent, err = lab.Deluge(ctx, f.run, f.how, f.to, during)
		done <- err
	}()
	look := func() error {
		now, err := readOf(ctx, h, f)
		if err != nil {
			return err
		}
		c.files, c.goroutines = max(c.files, now.files-before.files), max(c.goroutines, now.goroutines-before.goroutines)
		c.kB, c.asked = max(c.kB, now.kB-before.kB), max(c.asked, now.asked)
		c.agent, c.beside, c.took = now.agent-before.agent, now.beside-before.beside, time.Since(begin)
		return nil
	}
	for end := false; !end; {
		select {
		case err := <-done:
			if err != nil {
				return c, err
			}
			end = true
		case <-time.After(500 * time.Millisecond):
		}
		if err := look(); err != nil {
			return c, err
		}
	}
	p, err := pinging.Stop(ctx)
	if err != nil {
		return c, err
	}
	c.pings, c.lost = p.Sent, p.Lost()
	if f.others {
		return c, nil
	}
	// All of it comes back.
	return c, lab.Eventually(ctx, 2*time.Minute, func() error {
		now, err := readOf(ctx, h, f)
		if err == nil && (now.files > before.files+20 || now.goroutines > before.goroutines+20) {
			err = fmt.Errorf("%d files and %d goroutines are left, of %d and %d before", now.files, now.goroutines, before.files, before.goroutines)
		}
		return err
	})
}

// Bounds of what any flood may cost the agent.
const (
	mostMB  = 96
	longest = 10 * time.Second
)

// most is how many files more than before the agent may have in a flood, and how many goroutines, by what is flooded: as
// many as it lets in there, and some.
var most = map[string]int{
	"gossip, UDP": 100, "gossip, TCP": 400,
	"VXLAN": 100, "WireGuard of hosts": 100, "WireGuard of clients": 100,
	"metrics":               400,                                                                                         // 32 connections; of those that had to go, goroutines end later than their files
	"a published port, UDP": 150, "a published port, TCP": 150, "an exposed port, UDP": 150, "an exposed port, TCP": 150, // the kernel's
	"what a policy rejects": 100, "probes (`grapevine trace`)": 100, "multicast": 100,
	"the page (`grapevine ui`)":           100,
	"names on a host without Docker, UDP": 400, "names on a host without Docker, TCP": 400, "gossip of a host without Docker, TCP": 400,
	"a published port, IPv6, UDP": proxy.Most + 200, "a published port, IPv6, TCP": 6*proxy.Most + 200, // each connection is two, and two pipes
	"names at gv0, UDP": 400, "names at gv0, TCP": 400, "names in a container, UDP": 400, "names in a container, TCP": 400,
	"read.sock": 150, "the API's socket": 100, "Docker's socket of the plugin": 100,
}

// broken says which bounds do not hold.
func (c cost) broken(f flood) (wrong []error) {
	say := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("%s, %s from %s: "+format, append([]any{f.at, f.how, f.from}, args...)...))
	}
	if n := most[f.at]; c.kB>>10 > mostMB || c.files > n || c.goroutines > n {
		say("it cost %d MB, %d files and %d goroutines, where %d MB and %d of each are the most", c.kB>>10, c.files, c.goroutines, mostMB, n)
	}
	if c.asked > longest {
		say("`grapevine status` took %s", c.asked)
	}
	if f.shut && (c.files > 20 || c.goroutines > 20 || (f.how == "silent" || f.how == "talking") && c.sent > 0) {
		say("it got in: %d connections, %d files, %d goroutines", c.sent, c.files, c.goroutines)
	}
	if f.how == "datagrams" && c.sent < 1000 || f.how != "datagrams" && !f.shut && c.sent < 10 {
		say("there was no flood: %d", c.sent)
	}
	if c.lost > c.pings/2 {
		say("%d of %d pings between containers were lost", c.lost, c.pings)
	}
	return wrong
}

func (c cost) row(f flood) string {
	what := map[string]string{"datagrams": "datagrams", "silent": "connections", "talking": "connections of 64 KiB", "frames": "frames of Ethernet"}[f.how]
	share := func(d time.Duration) string { return fmt.Sprintf("%.0f%%", 100*d.Seconds()/c.took.Seconds()) }
	each := ""
	if c.sent > 0 {
		each = fmt.Sprintf(" (%.1f µs each)", float64(c.agent.Microseconds())/float64(c.sent))
	}
	return fmt.Sprintf("| %s | %s | %s | %d in %.0f s | +%d MB | +%d | +%d | %s%s | %s | %d of %d lost; %.1f s |", f.at, f.from, what, c.sent, c.took.Seconds(),
		c.kB>>10, c.files, c.goroutines, share(c.agent), each, share(c.beside), c.lost, c.pings, c.asked.Seconds())
}
