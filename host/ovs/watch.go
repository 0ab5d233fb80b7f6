package ovs

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// rewatch is the pause before a broken watch is tried again. The reconcile loop
// has a retry of its own; this only bounds how long a change stays unseen.
const rewatch = 200 * time.Millisecond

// Change is what Watch tells of.
type Change struct {
	What What
	// Flow, of FlowSet and FlowGone, has no priority and no counters: the monitor does not
	// print them.
	Flow Flow
}

// What says what has changed.
type What int

// What changes there are.
const (
	// Anything may have: a connection broke or is made anew, a bridge came or went.
	Anything What = iota
	Ports         // of bridges, or their OpenFlow numbers
	FlowSet       // a flow was added, or has other actions now
	FlowGone      // a flow was deleted
)

// Watch tells whenever the bridge's flows, or bridges, ports and OpenFlow ports in the
// database, may have changed, by anybody, and whenever a connection breaks or is made
// anew. It calls tell from two goroutines, and tell must not block. Watch returns when
// ctx is done.
//
// Nothing is polled: a flow monitor (ovs-ofctl monitor) and an OVSDB monitor (RFC
// 7047, 4.1.5) report changes. Only while they cannot connect are they retried.
func (b *Bridge) Watch(ctx context.Context, tell func(Change)) error {
	var wg sync.WaitGroup
	for _, watch := range []func(context.Context, func(Change)) error{b.watchFlows, b.watchDB} {
		wg.Go(func() {
			for ctx.Err() == nil {
				_ = watch(ctx, tell) // who is told meets the same error and reports it
				sleep(ctx, rewatch)
			}
		})
	}
	wg.Wait()
	return ctx.Err()
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// watchFlows returns when the switch hangs up.
func (b *Bridge) watchFlows(ctx context.Context, tell func(Change)) error {
	// Trying the socket is cheaper than a process that finds it missing.
	probe, err := dialUnix(ctx, b.mgmt())
	if err != nil {
		return err
	}
	_ = probe.Close()
	tellLine := func(line string) {
		if c, some := parseMonitor(line); some {
			tell(c)
		}
	}
	defer tell(Change{})
	return b.child(ctx, func() { tell(Change{}) }, tellLine, "ovs-ofctl", "-O", "OpenFlow14", "--no-names", "monitor", "unix:"+b.mgmt(), "watch:!initial")
}

// parseMonitor reads a line of `ovs-ofctl monitor`, such as
//
//	event=DELETED reason=delete table=20 cookie=0x1 ip,nw_dst=10.1.0.2 actions=goto_table:30
//
// where a flow that drops has no actions. some is false for the heads of messages, and for those by which the switch asks a minute
// after the last one whether somebody is still there.
func parseMonitor(line string) (c Change, some bool) {
	event, flow, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch event {
	case "OFPST_FLOW_MONITOR", "OFPT_ECHO_REQUEST", "":
		return c, false
	case "event=ADDED", "event=MODIFIED":
		c.What = FlowSet
	case "event=DELETED":
		c.What = FlowGone
		if reason, rest, ok := strings.Cut(flow, " "); ok && strings.HasPrefix(reason, "reason=") {
			flow = rest
		}
	default: // such as that it has lost events
		return c, true
	}
	if !strings.Contains(flow, " actions=") {
		flow += " actions=drop"
	}
	var err error
	if c.Flow, err = parseFlow(flow); err != nil {
		return Change{}, true
	}
	c.Flow.Priority = 0
	return c, true
}

// child runs a command, says when it has begun, and tells of each line that it prints. It
// dies with the agent, even with one that is killed: the parent-death signal is sent when
// the *thread* that forked ends, hence the thread is kept.
func (b *Bridge) child(ctx context.Context, begun func(), tell func(line string), name string, args ...string) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	path, err := find(name)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "OVS_RUNDIR="+b.RunDir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second
	out, err := cmd.StderrPipe() // where ovs-ofctl prints what it monitors
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	begun() // what changed before the watch stood
	lines := bufio.NewReaderSize(out, 64<<10)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			break
		}
		tell(line)
	}
	return cmd.Wait()
}

// watchDB returns when the database hangs up.
func (b *Bridge) watchDB(ctx context.Context, tell func(Change)) error {
	c, err := b.dial(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	stop := context.AfterFunc(ctx, c.close)
	defer stop()
	columns := func(names ...string) map[string]any { return map[string]any{"columns": names} }
	request := []any{dbName, "grapevine", map[string]any{
		"Bridge":    columns("name", "ports", "datapath_type", "fail_mode"),
		"Interface": columns("name", "ofport", "type"),
	}}
	var initial json.RawMessage
	if err := c.call(ctx, "monitor", request, &initial); err != nil {
		return err
	}
	_ = c.c.SetDeadline(time.Time{})
	tell(Change{})
	defer tell(Change{})
	for {
		m, err := c.receive()
		if err != nil {
			return err
		}
		tell(Change{What: parseUpdate(m.Params)})
	}
}

// parseUpdate reads what an OVSDB monitor reports (RFC 7047, 4.1.6): that a bridge came
// or went is more than a change of ports.
func parseUpdate(params json.RawMessage) What {
	type rows map[string]struct{ Old, New json.RawMessage }
	update := struct{ Bridge, Interface rows }{}
	if err := json.Unmarshal(params, &[]any{nil, &update}); err != nil {
		return Anything
	}
	for _, bridge := range update.Bridge {
		if bridge.Old == nil || bridge.New == nil {
			return Anything
		}
	}
	return Ports
}
