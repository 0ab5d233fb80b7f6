package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Stuck is what each host is about, for a command that does not end: its processes and what
// they wait for, what a kernel of its own says of those it blocks, and what the agent and
// dockerd do for those who asked. It ends the agents.
func (l *Lab) Stuck() string {
	said := make([]string, len(l.Hosts))
	_ = l.Each(func(h *Host) error {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		said[h.n-1] = stuck(ctx, h)
		return nil
	})
	return strings.Join(said, "")
}

func stuck(ctx context.Context, h *Host) string {
	if h.machine.server() == nil {
		return "\n--- " + h.Name + " is off"
	}
	var b strings.Builder
	tell := func(what, said string, err error) {
		if err != nil {
			said += err.Error()
		}
		fmt.Fprintf(&b, "\n--- %s: %s:\n%s", h.Name, what, strings.TrimSpace(said))
	}
	said, err := h.Exec(ctx, "ps", "--ppid", "2", "-p", "2", "--deselect", "-o", "pid,ppid,stat,etimes,wchan:24,args")
	tell("its processes", said, err)
	if h.lab.opts.Kind == UML {
		said, err = h.Exec(ctx, "sh", "-c", askBlocked)
		tell("what its kernel blocks", said, err)
	}
	tell("what dockerd does for those who asked", dockerStacks(ctx, h, "net/http.(*conn).serve"), nil)
	if err = h.Stop(ctx, "agent", syscall.SIGQUIT, time.Second); err == nil {
		said, err = h.WholeLog("agent")
	}
	tell("what the agent did for those who asked", stacksWith(said, "net/http.(*conn).serve"), err)
	return b.String()
}

// askBlocked has a kernel say which processes wait for it, and prints that.
const askBlocked = "dmesg -C; echo w > /proc/sysrq-trigger; dmesg"

// Blocked is what the kernel of a host that has one of its own says of the processes that wait
// for it where no signal ends them, as for a disk; "" if there are none.
func (h *Host) Blocked() string {
	if h.lab.opts.Kind != UML || h.machine.server() == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	said, err := h.Exec(ctx, "sh", "-c", askBlocked)
	if err != nil {
		return err.Error()
	}
	if !strings.Contains(said, "task:") {
		return ""
	}
	return said
}

// stacksWith are those of a Go program's stacks that have a function, or a part of its name:
// their functions, innermost first. Connections that wait for a request are left out.
func stacksWith(dump, function string) string {
	var stacks []string
	for s := range strings.SplitSeq(dump, "\n\n") {
		if s = strings.TrimSpace(s); !strings.HasPrefix(s, "goroutine ") || !strings.Contains(s, function) || strings.Contains(s, "net/http.readRequest(") {
			continue
		}
		lines := strings.Split(s, "\n")
		stacks = append(stacks, strings.Join(slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "\t") }), "\n"))
	}
	return strings.Join(stacks, "\n\n")
}
