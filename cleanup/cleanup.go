// Package cleanup removes what an agent that is gone has left on a host: from outside, and without asking it.
package cleanup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/clients/sandbox"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/driver/standin"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/host/installed"
	"github.com/grapevine-net/grapevine/host/lan"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/nat"
	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/membership"
	"github.com/grapevine-net/grapevine/membership/backup"
	"github.com/grapevine-net/grapevine/membership/identity"
	"github.com/grapevine-net/grapevine/overlay/gateway"
	"github.com/grapevine-net/grapevine/overlay/guard"
	"github.com/grapevine-net/grapevine/overlay/ike"
	"github.com/grapevine-net/grapevine/overlay/plane"
	"github.com/grapevine-net/grapevine/overlay/secure"
	"github.com/grapevine-net/grapevine/overlay/tunnel"
	exposed "github.com/grapevine-net/grapevine/service/expose/hold"
)

// cleaning is a clean-up under way: what it has done, and what it could not do.
type cleaning struct {
	cfg  config.Config
	did  []string
	errs []error
}

// Host removes what an agent that is gone has left on this host, and, if purge is true,
// what it knew. It asks nobody, and looks for each thing itself, so that it works after
// whatever has happened; it is refused while an agent runs. It returns what it has removed,
// and what is still there.
func Host(ctx context.Context, cfg config.Config, purge bool) (did, kept []string, err error) {
	standin.Dismiss(ctx, cfg.PluginSocket)
	release, err := nobodyRuns(cfg)
	if err != nil {
		return nil, nil, err
	}
	defer release()
	c := &cleaning{cfg: cfg}
	for _, step := range []func(context.Context){c.fastPath, c.daemons, c.bridge, c.datapath, c.encryption, c.clients, c.addresses, c.devices, c.routing, c.firewall, c.sockets} {
		step(ctx)
	}
	if left, there, err := identity.LoadLeft(cfg.State); err == nil && there && left.Remains != "" && len(c.errs) == 0 {
		left.Remains = ""
		c.failed("note that nothing remains", left.Save(cfg.State))
	}
	if purge {
		c.state()
	} else {
		kept = append(kept, c.kept()...)
	}
	return c.did, kept, errors.Join(c.errs...)
}

// nobodyRuns is an error while an agent does. Until release none begins.
func nobodyRuns(cfg config.Config) (release func(), err error) {
	const stop = "stop it first: docker plugin disable -f NAME (docker plugin ls has it), or systemctl stop grapevine"
	for _, path := range []string{cfg.APISocket(), cfg.PluginSocket} {
		if conn, err := net.Dial("unix", path); err == nil {
			_ = conn.Close()
			return nil, fmt.Errorf("clean up: an agent runs on this host, it answers at %s: %s; `grapevine leave` before that if the host is not to come back", path, stop)
		}
	}
	if _, err := os.Stat(cfg.State); errors.Is(err, fs.ErrNotExist) {
		return func() {}, nil
	}
	if release, err = store.Lock(cfg.State, 0); err != nil {
		return nil, fmt.Errorf("clean up: %w; %s", err, stop)
	}
	return release, nil
}

func (c *cleaning) removed(what string, names ...string) {
	if len(names) > 0 {
		slices.Sort(names)
		c.did = append(c.did, fmt.Sprintf("%s: %s", what, words.Listed(slices.Compact(names))))
	}
}

func (c *cleaning) failed(what string, err error) {
	if err != nil {
		c.errs = append(c.errs, fmt.Errorf("%s: %w", what, err))
	}
}

// fastPath takes the fast path's programs from the underlay's devices and the gateway.
func (c *cleaning) fastPath(context.Context) {
	c.failed("take the fast path's programs away", plane.PurgeFastPath())
}

// daemons ends an Open vSwitch of the agent's own.
func (c *cleaning) daemons(ctx context.Context) {
	e := ovs.Embedded{RunDir: filepath.Join(c.cfg.Run, "ovs"), StateDir: filepath.Join(c.cfg.State, "ovs"), Log: slog.New(slog.DiscardHandler)}
	running := e.Running()
	if err := e.Stop(ctx); err != nil {
		c.failed("end the agent's own Open vSwitch", err)
		return
	}
	c.removed("ended", running...)
	var dirs []string
	for _, dir := range []string{e.RunDir, e.StateDir} {
		if _, err := os.Stat(dir); err == nil {
			c.failed("remove Open vSwitch's files", os.RemoveAll(dir))
			dirs = append(dirs, dir)
		}
	}
	c.removed("files of Open vSwitch", dirs...)
}

// bridge removes our bridge from the host's own Open vSwitch.
func (c *cleaning) bridge(ctx context.Context) {
	b := ovs.Bridge{Instance: ovs.NewInstance(ovs.DefaultSocket), Name: link.Bridge}
	if b.Ping(ctx) != nil {
		return
	}
	if s, err := b.State(ctx); err != nil || !s.Ours {
		c.failed("look for our bridge in the host's Open vSwitch", err)
		return
	}
	if err := b.Delete(ctx); err != nil {
		c.failed("remove our bridge from the host's Open vSwitch", err)
		return
	}
	c.removed("from the host's Open vSwitch", "bridge "+link.Bridge)
}

// datapath removes the kernel's datapath, in which our bridge is, when no Open vSwitch runs, and the
// userspace one's tap, when none has it.
func (c *cleaning) datapath(context.Context) {
	gone, err := ovs.RemoveOrphan(link.Bridge)
	c.failed("remove the kernel's datapath", err)
	c.removed("datapath", gone...)
	gone, err = ovs.RemoveOrphanTap()
	c.failed("remove the userspace datapath's tap", err)
	c.removed("datapath", gone...)
}

// encryption removes the device that encrypted what went to other hosts, its process and its route.
func (c *cleaning) encryption(ctx context.Context) {
	gone, err := secure.Purge(c.cfg.Run)
	c.failed("remove what encrypts", err)
	c.removed("encryption", gone...)
	gone, err = ike.Purge(ctx, identity.IPsecTold{Dir: c.cfg.State})
	c.failed("remove what strongSwan was told", err)
	c.removed("IPsec", gone...)
}

// clients ends the sandbox by which clients came, with its process.
func (c *cleaning) clients(context.Context) {
	gone, err := sandbox.Purge(c.cfg.Run)
	c.failed("remove what lets clients in", err)
	c.removed("clients", gone...)
}

// addresses removes those that this host held for containers of all hosts.
func (c *cleaning) addresses(context.Context) {
	gone, err := lan.Purge()
	c.failed("remove addresses of egresses", err)
	c.removed("addresses", gone...)
}

// devices removes the network interfaces.
func (c *cleaning) devices(ctx context.Context) {
	var gone []string
	before, err := link.List("g")
	c.failed("list the interfaces", err)
	c.failed("remove the tunnel", tunnel.New(tunnel.Config{}).Remove(ctx))
	c.failed("remove containers' interfaces", plane.RemoveVeths())
	for _, name := range []string{gateway.Port, link.Bridge} {
		if l, err := link.Get(name); err == nil && (l.Kind == "tuntap" || l.Kind == "tun") {
			c.failed("remove an interface", link.Delete(name))
		}
	}
	for _, l := range before {
		if _, err := link.Get(l.Name); errors.Is(err, link.ErrNotFound) {
			gone = append(gone, l.Name)
		}
	}
	c.removed("interfaces", gone...)
}

func (c *cleaning) routing(context.Context) {
	gone, err := gateway.Purge()
	c.failed("remove routes and their rules", err)
	c.removed("routing", gone...)
}

func (c *cleaning) firewall(context.Context) {
	gone, err := nat.Purge()
	c.failed("remove rules of iptables", err)
	more, err := guard.Purge(c.cfg.Run)
	c.failed("remove what decides what may enter and leave the overlay", err)
	c.failed("remove the note of what is encrypted after a boot", guard.ForgetBoot(c.cfg.State))
	led, err := exposed.Purge()
	c.failed("remove the rules of exposed ports", err)
	empty, err := plane.TablesIn(c.cfg.Run).Clear()
	c.failed("remove empty tables of iptables", err)
	c.removed("rules", slices.Concat(gone, more, led, empty)...)
}

// sockets removes those that nobody answers on, and their directory.
func (c *cleaning) sockets(context.Context) {
	var gone []string
	for _, path := range []string{c.cfg.PluginSocket, c.cfg.APISocket(), c.cfg.ReadSocket()} {
		err := os.Remove(path)
		switch {
		case err == nil:
			gone = append(gone, path)
		case !errors.Is(err, fs.ErrNotExist):
			c.failed("remove a socket", err)
		}
	}
	_ = os.Remove(c.cfg.Run) // what is not empty is not all ours
	c.removed("sockets", gone...)
}

// stateFiles are the names in the state directory that are ours, as patterns.
var stateFiles = []string{
	backup.StateFile + "*", identity.File + "*", identity.LeftFile, "key", "keyring.json", identity.WireGuardFile, identity.SecondFile, identity.ClientsFile, identity.IPsecFile, guard.BootFile, docker.RootFile + "*", "iptables", ".*-*", installed.ProgramFile, filepath.Dir(installed.ProgramFile) + "/.new-*", filepath.Dir(installed.ProgramFile),
}

// programLink is where docs/operate/install.md puts a link to the plugin's command line.
const programLink = "/usr/local/bin/grapevine"

// state removes what the host knew, its gossip key, and the command line of the plugin.
func (c *cleaning) state() {
	program := filepath.Join(c.cfg.State, installed.ProgramFile)
	if to, err := os.Readlink(programLink); err == nil && to == program {
		c.failed("remove the link to the command line", os.Remove(programLink))
		c.removed("link", programLink)
	}
	var gone []string
	for _, pattern := range stateFiles {
		found, _ := filepath.Glob(filepath.Join(c.cfg.State, pattern)) // the patterns are well formed
		for _, name := range found {
			if err := os.Remove(name); err != nil {
				c.failed("remove this host's state", err)
				continue
			}
			gone = append(gone, name)
		}
	}
	c.removed("state", gone...)
	if err := os.Remove(c.cfg.State); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.failed("remove the state directory", err)
	}
}

// kept says what of the host's state is still there.
func (c *cleaning) kept() (list []string) {
	if _, err := os.Stat(c.cfg.State); err != nil {
		return nil
	}
	text := c.cfg.State + ": what this host knows, its gossip key and the command line are kept; `grapevine cleanup --purge` removes them too"
	if _, left, err := identity.LoadLeft(c.cfg.State); err == nil && left {
		return []string{text}
	}
	if id, err := membership.Known(c.cfg.State); err == nil && id.Cluster != "" {
		text += ". It is still a host of cluster " + id.Cluster + ": an agent that is started here goes on where it was; if there is to be none, `grapevine forget` this host (" + strings.TrimSpace(id.Node) + ") on another one"
	}
	return []string{text}
}
