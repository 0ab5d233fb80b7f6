package plane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/ovs"
)

// Switch is this host's Open vSwitch.
type Switch struct {
	Bridge   *ovs.Bridge
	Embedded *ovs.Embedded // nil: the host's own daemons
}

// Choose chooses the Open vSwitch; nothing is made yet.
func Choose(ctx context.Context, cfg config.Config, datapath ovs.Datapath, log *slog.Logger) (s Switch, err error) {
	stateDir := filepath.Join(cfg.State, "ovs")
	instance := ovs.NewInstance(ovs.DefaultSocket)
	embedded, err := chooseEmbedded(ctx, cfg.OVS, instance, stateDir)
	if err != nil {
		return s, err
	}
	if embedded {
		major, minor, err := ovs.Version(ctx)
		if err != nil {
			return s, fmt.Errorf("start Open vSwitch: %w; install it (openvswitch-switch)", err)
		}
		s.Embedded = &ovs.Embedded{
			RunDir: filepath.Join(cfg.Run, "ovs"), StateDir: stateDir, Datapath: datapath,
			UserspaceTSO: major > 3 || major == 3 && minor >= 5, Host: ovs.NewInstance(ovs.DefaultSocket), Log: log,
		}
		instance = s.Embedded.Instance()
	}
	s.Bridge = &ovs.Bridge{Instance: instance, Name: link.Bridge, Datapath: datapath}
	return s, nil
}

// ChooseDatapath returns the datapath that a setting asks for, if this kernel has it.
func ChooseDatapath(ctx context.Context, want string) (ovs.Datapath, error) {
	found := ovs.DetectDatapath(ctx)
	switch {
	case want == "auto":
		return found, nil
	case want == "kernel" && found != ovs.Kernel:
		return "", errors.New("this kernel has no openvswitch module: install it, or set GRAPEVINE_DATAPATH=userspace (slower)")
	}
	return ovs.Datapath(want), nil
}

// chooseEmbedded reports whether the agent is to run Open vSwitch itself. A host
// that once did goes on, so that its switch is found again whatever starts first.
func chooseEmbedded(ctx context.Context, want string, host *ovs.Instance, stateDir string) (bool, error) {
	if want == "embedded" {
		return true, nil
	}
	if _, err := os.Stat(stateDir); err == nil && want == "auto" {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	err := host.Ping(ctx)
	if err != nil && want == "host" {
		return false, fmt.Errorf("the host's Open vSwitch: %w; start it, or set GRAPEVINE_OVS=embedded", err)
	}
	return err != nil, nil
}

// Datapath is the one in use.
func (s Switch) Datapath() ovs.Datapath { return s.Bridge.Datapath }

// KernelCounters is nil with the userspace datapath, and while there is none in the kernel.
func (s Switch) KernelCounters() *api.KernelDatapath {
	if s.Bridge.Datapath != ovs.Kernel {
		return nil
	}
	c, err := ovs.KernelCounters()
	if err != nil {
		return nil // the problems tell of a switch that is down
	}
	return (*api.KernelDatapath)(&c)
}

// Kind says whose daemons they are, as api.Status has it.
func (s Switch) Kind() string {
	if s.Embedded != nil {
		return "embedded"
	}
	return "host"
}

// answerPatience is how long a daemon has for a sign of life.
const answerPatience = 4 * time.Second

// Hung is the problem of a daemon that runs and answers nothing for so long, as a process that was
// stopped; hung is false where there is none, or one that is down. Only people can tell whether it is busy:
// without ovs-vswitchd the fast path, or the kernel, carries what it knows only.
func (s Switch) Hung(ctx context.Context) (p api.Problem, hung bool) {
	silent := func(daemon string, ask func(context.Context) error) bool {
		waiting, cancel := context.WithTimeout(ctx, answerPatience)
		defer cancel()
		// The socket's time may be over a moment before that of the context.
		if err := ask(waiting); err == nil || waiting.Err() == nil && !errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil {
			return false
		}
		p = api.Problem{
			Code: api.SwitchHangs,
			What: fmt.Sprintf("the switch: %s has not answered within %v", daemon, answerPatience),
			Do:   "look whether it is busy (top), or hangs; systemctl restart openvswitch-switch starts it again",
		}
		if s.Embedded != nil {
			p.Do = "look whether it is busy (top), or hangs; " + s.Embedded.KillCommand(daemon) + " ends it, and no other Open vSwitch; the agent starts it again"
		}
		return true
	}
	hung = silent("ovsdb-server", s.Bridge.Ping) || silent("ovs-vswitchd", func(ctx context.Context) error {
		_, err := s.Bridge.Appctl(ctx, "version")
		return err
	})
	return p, hung
}

// Hangs begins to ask the switch for a sign of life, and returns what waits for the answer: a problem, where there is none.
func Hangs(ctx context.Context, s Switch) func() []api.Problem {
	var list []api.Problem
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		if p, hung := s.Hung(ctx); hung {
			list = append(list, p)
		}
	}()
	return func() []api.Problem { <-asked; return list }
}

// Answers is the problem of Hung as an error, which says what to do.
func (s Switch) Answers(ctx context.Context) error {
	if p, hung := s.Hung(ctx); hung {
		return fmt.Errorf("%s; %s", p.What, p.Do)
	}
	return nil
}

// HandOver ends the agent's Open vSwitch, whose ports the host's takes over. The tasks have
// ended.
func (s Switch) HandOver(ctx context.Context) error {
	if s.Embedded == nil {
		return nil
	}
	return s.Embedded.Abandon(ctx)
}

// tso reports whether the switch does segmentation and checksums for the containers.
func (s Switch) tso() bool { return s.Embedded != nil && s.Embedded.UserspaceTSO }
