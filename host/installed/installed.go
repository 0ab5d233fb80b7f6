// Package installed is how this host's agent is installed, as a managed plugin or as a service, and the commands
// that follow from it for people.
package installed

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/host/plugin"
)

// ProgramFile, in the state directory, is the command line for people whose agent
// is a managed plugin: nothing else of it is in a place that they could name.
const ProgramFile = "bin/grapevine"

// Agent is how this host's agent is installed, as Docker and people know it.
type Agent struct {
	ID     string // by which Docker knows it as a managed plugin; "": it is a service
	cfg    config.Config
	docker *docker.Client
	log    *slog.Logger
	name   atomic.Pointer[string] // see DriverName
}

// Find finds out whether this agent is a managed plugin.
func Find(cfg config.Config, d *docker.Client, log *slog.Logger) (*Agent, error) {
	id, err := plugin.ManagedID()
	if err != nil {
		return nil, err
	}
	return &Agent{ID: id, cfg: cfg, docker: d, log: log}, nil
}

// Offer puts the command line of a managed plugin's own version where the host's people find it.
func (a *Agent) Offer() {
	if a.ID != "" {
		Offer(a.cfg.State, a.log)
	}
}

// Offer puts this program into the state directory.
func Offer(state string, log *slog.Logger) {
	if err := offer("/proc/self/exe", filepath.Join(state, ProgramFile)); err != nil {
		log.Warn("put the command line into the state directory", "err", err)
	}
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

// Plugin is what Docker says of this managed plugin; empty if it is none.
func (a *Agent) Plugin(ctx context.Context) (docker.Plugin, error) {
	if a.ID == "" {
		return docker.Plugin{}, nil
	}
	return a.docker.Plugin(ctx, a.ID)
}

// PluginName is by what people call this managed plugin.
func (a *Agent) PluginName(ctx context.Context) string {
	if self, err := a.Plugin(ctx); err == nil && self.Name != "" {
		return strings.TrimSuffix(self.Name, ":latest")
	}
	return "grapevine"
}

// JoinCommands returns the lines that add a host like this one, with the plugin and with the service; join are hosts to name, key is
// the gossip key.
func (a *Agent) JoinCommands(ctx context.Context, join []string, key string) (asPlugin, asService string, err error) {
	self, err := a.Plugin(ctx)
	if err != nil {
		return "", "", err
	}
	line := strings.Join(append([]string{"GRAPEVINE_JOIN=" + strings.Join(join, ",")}, a.cfg.Shared()...), " ")
	key = keyCommand(key)
	return key + pluginCommand(self, line), key + "scripts/install-service " + line, nil
}

// keyCommand puts the gossip key where an agent looks for it and nobody but root: as a setting it
// would be in the command line of a process, and in what Docker tells of a plugin.
func keyCommand(key string) string {
	return "(umask 077; mkdir -p " + hostState + "; echo " + key + " > " + hostState + "/key) && "
}

// hostState is the state directory on hosts that nobody has told another.
const hostState = "/var/lib/grapevine"

// SetCommand is how one setting of an agent like this one is changed.
func (a *Agent) SetCommand(ctx context.Context, setting string) string {
	if a.ID == "" {
		return "scripts/install-service " + setting
	}
	name := cmp.Or(a.DriverName(ctx), "NAME") // who knows it puts it in
	return fmt.Sprintf("docker plugin disable -f %s; docker plugin set %s %s; docker plugin enable %s", name, name, setting, name)
}
