package ovs

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// rewatch is the pause before a broken watch is tried again. The reconcile loop
// has a retry of its own; this only bounds how long a change stays unseen.
const rewatch = 200 * time.Millisecond

// Watch calls wake whenever the bridge's flows, or bridges, ports and OpenFlow
// ports in the database, may have changed, by anybody, and whenever a connection
// breaks or is made anew. wake must not block. Watch returns when ctx is done.
//
// Nothing is polled: a flow monitor (ovs-ofctl monitor) and an OVSDB monitor (RFC
// 7047, 4.1.5) report changes. Only while they cannot connect are they retried.
func (b *Bridge) Watch(ctx context.Context, wake func()) error {
	var wg sync.WaitGroup
	for _, watch := range []func(context.Context, func()) error{b.watchFlows, b.watchDB} {
		wg.Go(func() {
			for ctx.Err() == nil {
				_ = watch(ctx, wake) // who is woken meets the same error and reports it
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
func (b *Bridge) watchFlows(ctx context.Context, wake func()) error {
	// Trying the socket is cheaper than a process that finds it missing.
	probe, err := dialUnix(ctx, b.mgmt())
	if err != nil {
		return err
	}
	_ = probe.Close()
	return b.child(ctx, wake, "ovs-ofctl", "-O", "OpenFlow14", "--no-names", "monitor", "unix:"+b.mgmt(), "watch:!initial")
}

// child runs a command and calls wake when it prints. It dies with the agent, even
// with one that is killed: the parent-death signal is sent when the *thread* that
// forked ends, hence the thread is kept.
func (b *Bridge) child(ctx context.Context, wake func(), name string, args ...string) error {
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
	wake() // what changed before the watch stood
	defer wake()
	lines := bufio.NewReaderSize(out, 64<<10)
	for {
		if _, err := lines.ReadSlice('\n'); err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			break
		}
		wake()
	}
	return cmd.Wait()
}

// watchDB returns when the database hangs up.
func (b *Bridge) watchDB(ctx context.Context, wake func()) error {
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
	wake()
	defer wake()
	for {
		if _, err := c.receive(); err != nil {
			return err
		}
		wake()
	}
}
