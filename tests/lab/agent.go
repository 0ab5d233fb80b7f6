package lab

import (
	"context"
	"strings"
	"syscall"
	"time"
)

const (
	pluginSocket = "/run/docker/plugins/grapevine.sock"
	agentWait    = 30 * time.Second
)

// StartAgent starts `grapevine agent` and waits until it answers Docker; env is
// added to the lab's settings (NAME=value), and wins over them.
func (h *Host) StartAgent(ctx context.Context, env ...string) error {
	h.enabled, h.extraEnv = true, env
	if err := h.Start(ctx, "agent", append(h.agentEnv(), env...), "grapevine", "agent"); err != nil {
		return err
	}
	return h.await(ctx, "agent", pluginSocket, "/Plugin.Activate", agentWait)
}

func (h *Host) agentEnv() []string { return append(h.lab.Settings(), h.lab.opts.AgentEnv...) }

// Settings are those that an agent of this lab needs: GRAPEVINE_JOIN=... and
// GRAPEVINE_KEY=...
func (l *Lab) Settings() []string {
	var join []string
	for _, h := range l.Hosts {
		join = append(join, h.Addr().String())
	}
	return []string{"GRAPEVINE_JOIN=" + strings.Join(join, ","), "GRAPEVINE_KEY=" + l.key}
}

// StopAgent stops the agent as a service manager does; Boot does not start it.
func (h *Host) StopAgent(ctx context.Context) error {
	h.enabled = false
	return h.Stop(ctx, "agent", syscall.SIGTERM, 15*time.Second)
}

// RestartAgent stops the agent and starts it with the settings it had.
func (h *Host) RestartAgent(ctx context.Context) error {
	if err := h.StopAgent(ctx); err != nil {
		return err
	}
	return h.StartAgent(ctx, h.extraEnv...)
}

// KillAgent kills the agent -9. An Open vSwitch that it started goes on.
func (h *Host) KillAgent(ctx context.Context) error {
	return h.Stop(ctx, "agent", syscall.SIGKILL, 5*time.Second)
}

// StartAgents starts the agents of all hosts at once.
func (l *Lab) StartAgents(ctx context.Context) error {
	return l.Each(func(h *Host) error { return h.StartAgent(ctx) })
}
