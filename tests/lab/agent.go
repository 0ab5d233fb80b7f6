package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	pluginSocket = "/run/docker/plugins/grapevine.sock"
	ownSocket    = "/run/grapevine/grapevine.sock"
	agentWait    = 30 * time.Second
)

// withoutDocker is the setting of a host that has none.
const withoutDocker = "GRAPEVINE_DOCKER=none"

// StartAgent starts `grapevine agent` and waits until it answers Docker, or where there is none the command line; env is
// added to the lab's settings (NAME=value), and wins over them.
func (h *Host) StartAgent(ctx context.Context, env ...string) error {
	h.enabled, h.extraEnv = true, env
	bounds, err := capabilityBounds()
	if err != nil {
		return err
	}
	if err := h.Start(ctx, "agent", append(h.lab.agentEnv(), env...), "setpriv", "--bounding-set="+bounds, "grapevine", "agent"); err != nil {
		return err
	}
	if slices.Contains(env, withoutDocker) {
		return h.await(ctx, "agent", ownSocket, "/v1/status", agentWait*h.lab.opts.Patience())
	}
	return h.await(ctx, "agent", pluginSocket, "/Plugin.Activate", agentWait*h.lab.opts.Patience())
}

// capabilityBounds are the capabilities that the systemd unit leaves the agent, as
// setpriv(1) wants them: that those suffice is seen by whatever is tested.
func capabilityBounds() (string, error) {
	root, err := ModuleRoot()
	if err != nil {
		return "", err
	}
	unit, err := os.ReadFile(filepath.Join(root, "scripts/grapevine.service"))
	if err != nil {
		return "", fmt.Errorf("read what the agent may do: %w", err)
	}
	for line := range strings.Lines(string(unit)) {
		if list, ok := strings.CutPrefix(line, "CapabilityBoundingSet="); ok {
			return strings.ToLower(strings.ReplaceAll("-all "+strings.TrimSpace(list), " CAP_", ",+")), nil
		}
	}
	return "", errors.New("scripts/grapevine.service has no CapabilityBoundingSet")
}

func (l *Lab) agentEnv() []string { return append(l.Settings(), l.opts.AgentEnv...) }

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
