package lab

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/netip"
	"net/url"
)

// What scripts do most, a ping, a fetch or a look-up from a container, a host's server does itself, by sockets of the
// container's network namespace: to start programs for it takes many times what it costs.

// doings are what a server does itself: of a role's arguments, in the network namespace of a process, or for 0 its own.
var doings = map[string]func(ctx context.Context, pid int, args []string, out io.Writer) error{
	rolePing: func(ctx context.Context, pid int, args []string, _ io.Writer) error { return ping(ctx, pid, args) },
	roleAsk: func(_ context.Context, pid int, args []string, out io.Writer) error {
		_, err := inNetns(pid, func() (struct{}, error) { return struct{}{}, ask(args, out) })
		return err
	},
	roleFetch: func(ctx context.Context, pid int, args []string, out io.Writer) error {
		return fetch(ctx, pid, args[0], out)
	},
}

// inside does what a program of the role would: what it says is in the reply, and its exit status.
func inside(ctx context.Context, req request) (last reply) {
	var out bytes.Buffer
	do, known := doings[req.Name]
	if !known {
		return reply{Err: fmt.Sprintf("a server does not %q by itself", req.Name)}
	}
	if err := do(ctx, req.PID, req.Argv, &out); err != nil {
		last.Exit, last.Stderr = 1, fmt.Appendf(nil, "%s: %v\n", req.Name, err)
	}
	last.Stdout = out.Bytes()
	return last
}

// inside is for a ping or a look-up from the container.
func (c Container) inside(ctx context.Context, role string, args ...string) (string, error) {
	return c.Host.machine.server().run(ctx, request{Op: opInside, Name: role, PID: c.PID, Argv: args})
}

// literal tells of an URL that it takes no look-up of a name, which a program begins anew, and of whose resolv.conf a
// server knows what was there seconds ago.
func literal(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "udp" {
		return false
	}
	_, err = netip.ParseAddr(u.Hostname())
	return err == nil
}

// fetchRequest asks a box to get an URL, from the network namespace of a process, or for 0 its own; program is how the
// box starts our program where it has to.
func fetchRequest(pid int, url string, program ...string) request {
	if literal(url) {
		return request{Op: opInside, Name: roleFetch, PID: pid, Argv: []string{url}}
	}
	return request{Argv: append(program, url), Env: fetchEnv}
}
