package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/tests/lab"
)

var powerCommands = map[string]command{
	"agent": service("agent", map[string]action{
		"start":   func(h *lab.Host, ctx context.Context) error { return h.StartAgent(ctx) },
		"stop":    (*lab.Host).StopAgent,
		"kill":    (*lab.Host).KillAgent,
		"restart": (*lab.Host).RestartAgent,
		"hang":    signal("agent", syscall.SIGSTOP),
		"resume":  signal("agent", syscall.SIGCONT),
	}),
	"docker": service("docker", map[string]action{
		"start": (*lab.Host).StartDocker,
		"stop":  (*lab.Host).StopDocker,
		"kill":  (*lab.Host).KillDocker,
		"restart": func(h *lab.Host, ctx context.Context) error {
			if err := h.StopDocker(ctx); err != nil {
				return err
			}
			return h.StartDocker(ctx)
		},
	}),
	"disk": service("disk", map[string]action{
		"full": func(h *lab.Host, _ context.Context) error { return h.FillDisk() },
		"free": func(h *lab.Host, _ context.Context) error { return h.FreeDisk() },
	}),
	"host-ovs":     service("host-ovs", map[string]action{"start": (*lab.Host).StartOVS, "stop": (*lab.Host).StopOVS}),
	"ovs-vswitchd": service("ovs-vswitchd", map[string]action{"kill": killOVS("ovs-vswitchd")}),
	"ovsdb-server": service("ovsdb-server", map[string]action{"kill": killOVS("ovsdb-server")}),
	"poweroff":     poweroff,
	"boot":         boot,
	"cut":          cut,
	"loss":         loss,
	"guard":        guard,
	"narrow":       narrow,
	"heal":         heal,
	"joined":       joined,
}

// action does something to a part of a host.
type action func(h *lab.Host, ctx context.Context) error

// signal sends a part of a host a signal that does not end it.
func signal(part string, sig syscall.Signal) action {
	return func(h *lab.Host, ctx context.Context) error { return h.Stop(ctx, part, sig, 0) }
}

// killOVS kills a daemon of the Open vSwitch that the agent started.
func killOVS(name string) action {
	return func(h *lab.Host, ctx context.Context) error {
		_, err := h.Exec(ctx, "sh", "-c", "kill -9 $(cat /run/grapevine/ovs/"+name+".pid)")
		return err
	}
}

// service makes the command `PART VERB HOST...`; `agent start` takes settings as well.
func service(part string, verbs map[string]action) command {
	return func(ctx context.Context, s *state, args []string) (string, error) {
		if len(args) < 2 || verbs[args[0]] == nil {
			return "", usageError(fmt.Sprintf("usage: %s %s HOST...", part, strings.Join(slices.Sorted(maps.Keys(verbs)), "|")))
		}
		do := verbs[args[0]]
		var names, env []string
		for _, arg := range args[1:] {
			if strings.Contains(arg, "=") {
				env = append(env, arg)
			} else {
				names = append(names, arg)
			}
		}
		if len(env) > 0 {
			if part != "agent" || args[0] != "start" {
				return "", usageError("only `agent start` takes settings")
			}
			do = func(h *lab.Host, ctx context.Context) error { return h.StartAgent(ctx, env...) }
		}
		return "", s.each(ctx, names, do)
	}
}

// each does the same on several hosts at once.
func (s *state) each(ctx context.Context, names []string, do action) error {
	var g errgroup.Group
	for _, name := range names {
		h, err := s.host(name)
		if err != nil {
			return err
		}
		g.Go(func() error { return do(h, ctx) })
	}
	return g.Wait()
}

// poweroff HOST...: end everything on it at once; its disk stays.
func poweroff(ctx context.Context, s *state, args []string) (string, error) {
	return "", s.each(ctx, args, func(h *lab.Host, _ context.Context) error { return h.PowerOff() })
}

// boot [docker-first] HOST...: start it again, with the agent if it had one, or Docker
// alone, which is then not waited for.
func boot(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) > 0 && args[0] == "docker-first" {
		return "", s.each(ctx, args[1:], (*lab.Host).BootDockerFirst)
	}
	return "", s.each(ctx, args, (*lab.Host).Boot)
}

// joined [DURATION]: all hosts are alive and well in one cluster.
func joined(ctx context.Context, s *state, args []string) (string, error) {
	within := 15 * time.Second
	if len(args) == 1 {
		var err error
		if within, err = time.ParseDuration(args[0]); err != nil {
			return "", usageError(err.Error())
		}
	}
	return "", s.joined(ctx, within)
}

// cut A B | cut A | cut A outside | cut one-way A B
func cut(ctx context.Context, s *state, args []string) (string, error) {
	if s.lab == nil {
		return "", usageError("cut before hosts")
	}
	w := s.lab.Wire
	switch {
	case len(args) == 3 && args[0] == "one-way":
		return "", w.CutOneWay(ctx, args[1], args[2])
	case len(args) == 2 && args[1] == "outside":
		return "", w.CutOutside(ctx, args[0])
	case len(args) == 2:
		return "", w.Cut(ctx, args[0], args[1])
	case len(args) == 1:
		var errs []error
		for _, h := range s.lab.Hosts {
			if h.Name != args[0] {
				errs = append(errs, w.Cut(ctx, args[0], h.Name))
			}
		}
		return "", errors.Join(errs...)
	}
	return "", usageError("usage: cut A [B|outside], or cut one-way A B")
}

// loss PERCENT A B: both ways.
func loss(ctx context.Context, s *state, args []string) (string, error) {
	if s.lab == nil || len(args) != 3 {
		return "", usageError("usage: loss PERCENT A B")
	}
	percent, err := strconv.Atoi(args[0])
	if err != nil {
		return "", usageError(err.Error())
	}
	return "", errors.Join(
		s.lab.Wire.Loss(ctx, args[1], args[2], percent), s.lab.Wire.Loss(ctx, args[2], args[1], percent))
}

// guard FROM TO: what FROM sends TO in another address than a host's own is lost.
func guard(ctx context.Context, s *state, args []string) (string, error) {
	if s.lab == nil || len(args) != 2 {
		return "", usageError("usage: guard FROM TO")
	}
	return "", s.lab.Wire.Guard(ctx, args[0], args[1])
}

// narrow MTU HOST: its link carries packets up to this size.
func narrow(ctx context.Context, s *state, args []string) (string, error) {
	if s.lab == nil || len(args) != 2 {
		return "", usageError("usage: narrow MTU HOST")
	}
	mtu, err := strconv.Atoi(args[0])
	if err != nil {
		return "", usageError(err.Error())
	}
	return "", s.lab.Wire.Narrow(ctx, args[1], mtu)
}

// heal: no link is cut any more.
func heal(ctx context.Context, s *state, args []string) (string, error) {
	if s.lab == nil || len(args) != 0 {
		return "", usageError("usage: heal")
	}
	return "", s.lab.Wire.Heal(ctx)
}
