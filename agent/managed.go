package agent

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/host/plugin"
	"github.com/grapevine-net/grapevine/membership/identity"
)

// programFile, in the state directory, is the command line for people whose agent
// is a managed plugin: nothing else of it is in a place that they could name.
const programFile = "bin/grapevine"

// openManaged finds out whether this agent is a managed plugin; if so, it puts the
// command line of its own version where the host's people find it.
func (a *Agent) openManaged() (err error) {
	if a.managed, err = plugin.ManagedID(); err != nil || a.managed == "" {
		return err
	}
	if err := offer("/proc/self/exe", filepath.Join(a.cfg.State, programFile)); err != nil {
		a.log.Warn("put the command line into the state directory", "err", err)
	}
	return nil
}

// offer copies a program; it does nothing if the same one is there.
func offer(from, to string) error {
	want, err := digest(from)
	if err != nil {
		return err
	}
	if have, err := digest(to); err == nil && have == want {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.CreateTemp(filepath.Dir(to), ".new-*") // the old one may be running
	if err != nil {
		return err
	}
	defer os.Remove(out.Name()) // gone already after the rename
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Chmod(0o755), out.Close()); err != nil {
		return fmt.Errorf("copy the program to %s: %w", to, err)
	}
	return os.Rename(out.Name(), to)
}

func digest(name string) (sum [sha256.Size]byte, err error) {
	f, err := os.Open(name)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	hash := sha256.New()
	_, err = io.Copy(hash, f)
	return [sha256.Size]byte(hash.Sum(nil)), err
}

// published is the plugin's name in the registry that comes with Docker.
const published = "grapevine/grapevine"

// pluginCommand is the line that makes a plugin like self on another host; self is
// empty if this agent is a service.
func pluginCommand(self docker.Plugin, settings string) string {
	name := strings.TrimSuffix(self.Name, ":latest")
	switch {
	case self.Name == "":
		return "docker plugin install --grant-all-permissions --alias grapevine " + published + " " + settings
	case self.Reference == "":
		return fmt.Sprintf("scripts/build-plugin %s && docker plugin set %s %s && docker plugin enable %s", name, name, settings, name)
	}
	return fmt.Sprintf("docker plugin install --grant-all-permissions --alias %s %s %s", name, self.Reference, settings)
}

// self is what Docker says of this managed plugin; empty if it is none.
func (a *Agent) selfPlugin(ctx context.Context) (docker.Plugin, error) {
	if a.managed == "" {
		return docker.Plugin{}, nil
	}
	return a.docker.Plugin(ctx, a.managed)
}

// pluginName is by what people call this managed plugin.
func pluginName(ctx context.Context, a *Agent) string {
	if self, err := a.selfPlugin(ctx); err == nil && self.Name != "" {
		return strings.TrimSuffix(self.Name, ":latest")
	}
	return "grapevine"
}

// sweep removes the directory of the sockets of a host that has left.
func sweep(cfg config.Config) {
	if _, left, err := identity.LoadLeft(cfg.State); err != nil || !left {
		return
	}
	if real, err := filepath.EvalSymlinks(cfg.Run); err == nil { // in the plugin it is a link
		_ = os.Remove(real) // what is not empty is not all ours
	}
}
