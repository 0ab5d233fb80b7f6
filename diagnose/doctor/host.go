package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/reach"
)

// Host is what is known of this host, whether its agent runs or not.
type Host struct {
	Config   config.Config
	Kernel   Kernel
	Switch   Switch
	Underlay Underlay
	Docker   Docker
	Reaches  []reach.Thing // by itself, as the kernel says
	// Taken are ports of ours that a program has: only while no agent answers.
	Taken []Port
}

// Port is one that a program has.
type Port struct {
	Name string // "UDP port 7947 (gossip)"
	By   Process
}

// Process is one of this host; ID 0: it is not known.
type Process struct {
	ID      int
	Program string
}

func (p Port) judge() api.Check {
	switch {
	case p.By.ID == 0:
		return wrong("ports", "stop the program that has it (`ss -lntup` names it), or set another port, the same on every host", "%s is another program's", p.Name)
	case p.By.Program == "grapevine": // an agent that hangs, or whose socket somebody has taken away: it is spoken of elsewhere
		return ok("ports", "%s is the agent's, process %d", p.Name, p.By.ID)
	}
	return wrong("ports", fmt.Sprintf("stop %s, or set another port, the same on every host", p.By.Program), "%s is another program's: %s, process %d", p.Name, p.By.Program, p.By.ID)
}

// Kernel is about the module openvswitch.
type Kernel struct {
	Release string
	Has     bool // its datapath is there
	File    bool // the module lies on the disk, so that it could be loaded
}

// Switch is the Open vSwitch that is used, or would be.
type Switch struct {
	Version     string // "3.1"
	Embedded    bool   // started by the agent
	Datapath    string // kernel or userspace
	DB, Forward error  // why ovsdb-server and ovs-vswitchd do not answer
	// Idle: nothing is to answer, since no agent runs that would start it.
	Idle bool
	Err  error // there is no Open vSwitch at all
}

// Hangs says that a daemon runs and does not answer: what arrives through the tunnel then is not known.
func (s Switch) Hangs() bool { return timedOut(s.DB) || timedOut(s.Forward) }

func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

// Underlay is the interface to the other hosts.
type Underlay struct {
	link.Underlay
	Err error
	// Twin is the MAC address of another machine that has the same IP address.
	Twin net.HardwareAddr
}

// Docker is what this host's engine says.
type Docker struct {
	Engine  docker.Engine
	Err     error
	Unasked bool // for want of time
	// Pools are where it was told to take the subnets of its own networks from.
	Pools []netip.Prefix
	// Socket is why Docker cannot call the driver; nil: it can, or (Idle) none runs.
	Socket error
	Idle   bool
	// Plugin is the managed plugin of ours, Name empty: there is none.
	Plugin docker.Plugin
	// Redirect is why names cannot be answered inside containers; nil: they can.
	Redirect error
}

// Judge judges all of it.
func (h Host) Judge() []api.Check {
	checks := []api.Check{h.kernel(), h.ovs(), h.datapath()}
	checks = append(checks, h.underlay()...)
	checks = append(checks, h.overlaps()...)
	for _, port := range h.Taken {
		checks = append(checks, port.judge())
	}
	if h.Config.Edge() {
		return checks
	}
	return append(checks, h.docker()...)
}

func (h Host) kernel() api.Check {
	k := h.Kernel
	switch {
	case k.Has:
		return ok("kernel", "Linux %s has Open vSwitch's datapath", k.Release)
	case k.File && h.Config.Datapath != "userspace":
		return wrong("kernel", "modprobe openvswitch, and restart the agent", "the module openvswitch is there for Linux %s, but not loaded", k.Release)
	}
	c := ok("kernel", "Linux %s has no module openvswitch: Open vSwitch works in userspace", k.Release)
	c.Do = "for the kernel's, install the distribution's package of extra modules, or a kernel that has it"
	return c
}

func (h Host) ovs() api.Check {
	s := h.Switch
	by, start := "the host's own", "start it (systemctl start openvswitch-switch)"
	if s.Embedded {
		by, start = "run by the agent", "the agent starts it; its log says why it ends (journalctl -u grapevine, or the Docker daemon's log)"
	}
	if s.Hangs() {
		start = "look whether it is busy (top), or hangs; if so, end it: the agent starts it again"
		if !s.Embedded {
			start = "look whether it is busy (top), or hangs; if so: systemctl restart openvswitch-switch"
		}
	}
	switch {
	case errors.Is(s.Err, context.DeadlineExceeded), errors.Is(s.Err, context.Canceled):
		return unknown("switch", "ask again when this host is less busy", "whether there is an Open vSwitch was not found out in time: %v", s.Err)
	case s.Err != nil:
		return wrong("switch", "install openvswitch-switch", "no Open vSwitch: %v", s.Err)
	case s.Idle:
		return ok("switch", "Open vSwitch %s is installed; the agent will run it", s.Version)
	case s.DB != nil:
		return wrong("switch", start, "Open vSwitch %s, %s: ovsdb-server does not answer: %v", s.Version, by, s.DB)
	case s.Forward != nil:
		return wrong("switch", start, "Open vSwitch %s, %s: ovs-vswitchd does not answer: %v", s.Version, by, s.Forward)
	}
	return ok("switch", "Open vSwitch %s, %s: both daemons answer", s.Version, by)
}

func (h Host) datapath() api.Check {
	why := "since GRAPEVINE_DATAPATH says so"
	if h.Config.Datapath == "auto" {
		why = "since the kernel has no module openvswitch"
		if h.Kernel.Has {
			why = "since the kernel has the module openvswitch"
		}
	}
	if h.Config.Datapath == "kernel" && !h.Kernel.Has {
		return wrong("datapath", "install the module, or set GRAPEVINE_DATAPATH=auto", "GRAPEVINE_DATAPATH=kernel, but this kernel has no module openvswitch")
	}
	return ok("datapath", "%s, %s", h.Switch.Datapath, why)
}

func (h Host) underlay() []api.Check {
	u := h.Underlay
	if u.Err != nil {
		return []api.Check{wrong("underlay", "see the error", "%v", u.Err)}
	}
	var checks []api.Check
	if u.Twin != nil {
		checks = append(checks, wrong("underlay", fmt.Sprintf("give one of the two another address (`ip neigh` and the switch's tables tell where %s is)", u.Twin),
			"another machine, of MAC address %s, has this host's address %s", u.Twin, u.Addr))
	}
	for _, cidr := range []netip.Prefix{h.Config.CIDR4, h.Config.CIDR6} {
		if cidr.IsValid() && cidr.Contains(u.Addr) {
			checks = append(checks, wrong("underlay", "set GRAPEVINE_CIDR4 (or 6) to a prefix that nothing else uses, on every host, before the first network is made",
				"this host's address %s is within the cluster's own %s", u.Addr, cidr))
		}
	}
	if checks == nil {
		checks = append(checks, ok("underlay", "%s on %s, MTU %d", u.Addr, u.Interface, u.MTU))
	}
	return checks
}

// overlaps are what this host reaches by itself in the cluster's ranges, where new networks
// keep out of it. Networks that there are, the agent judges.
func (h Host) overlaps() (checks []api.Check) {
	var cidrs []netip.Prefix
	for _, cidr := range []netip.Prefix{h.Config.CIDR4, h.Config.CIDR6} {
		if cidr.IsValid() {
			cidrs = append(cidrs, cidr)
		}
	}
	for _, cidr := range cidrs {
		for _, p := range h.Docker.Pools {
			switch t := (reach.Thing{Prefix: p, Kind: reach.Pool}); {
			case !p.Overlaps(cidr):
			case t.Unwise(cidr, cidrs) && p != cidr:
				checks = append(checks, ok("addresses", "%s lies in the cluster's %s: new networks keep out of it, as long as there is other room", t, cidr))
			default:
				checks = append(checks, wrong("addresses", `set "default-address-pools" in /etc/docker/daemon.json to prefixes that do not overlap the cluster's, and restart Docker; or another GRAPEVINE_CIDR4 (or 6), the same on every host`,
					"%s covers all of the cluster's %s: Docker does not know of the cluster's networks on other hosts, and may take their subnets for networks of its own, which this host then cannot have", t, cidr))
			}
		}
		for _, t := range h.Reaches {
			switch inside := t.Prefix.Bits() > cidr.Bits(); {
			case !t.Prefix.Overlaps(cidr):
			case !t.Unwise(cidr, cidrs):
				checks = append(checks, ok("addresses", "%s gives way to the cluster's networks in %s, which are in use here; if that range is, too, take another one (GRAPEVINE_CIDR4), the same on every host", t, cidr))
			case inside:
				checks = append(checks, ok("addresses", "%s lies in the cluster's %s: new networks keep out of it", t, cidr))
			default:
				checks = append(checks, wrong("addresses", "set GRAPEVINE_CIDR4 (or 6) to a prefix that nothing else uses, the same on every host, or give each network a --subnet",
					"%s overlaps all of the cluster's %s: no network of it can be on this host", t, cidr))
			}
		}
	}
	return checks
}

// namesMajor is the engine that first asks the host's servers from the host's namespace
// (docs/use/dns.md).
const namesMajor = 28

func (h Host) docker() (checks []api.Check) {
	d := h.Docker
	if d.Unasked {
		return []api.Check{unknown("docker", "ask again", "Docker was not asked: no time was left")}
	}
	if d.Err != nil {
		return []api.Check{wrong("docker", "start Docker (systemctl start docker), or set GRAPEVINE_DOCKER to where its API is: without it names and the networks of other hosts stay unknown",
			"the API does not answer: %v", d.Err)}
	}
	switch {
	case d.Plugin.Name != "" && !d.Plugin.Enabled:
		checks = append(checks, wrong("docker", "docker plugin enable "+d.Plugin.Name, "the plugin %s is disabled", d.Plugin.Name))
	case d.Socket != nil:
		checks = append(checks, wrong("docker", "restart the agent; if Docker runs elsewhere, set GRAPEVINE_PLUGIN_SOCKET to a file in its plugin directory", "Docker cannot call the driver: %v", d.Socket))
	case d.Plugin.Name != "":
		checks = append(checks, ok("docker", "Engine %s answers, and has the plugin %s", d.Engine.Version, d.Plugin.Name))
	case d.Idle:
		checks = append(checks, ok("docker", "Engine %s answers", d.Engine.Version))
	default:
		checks = append(checks, ok("docker", "Engine %s answers, and can call the driver", d.Engine.Version))
	}
	if d.Engine.MapsIPv4() {
		checks = append(checks, d.mapped())
	}
	return append(checks, d.names())
}

// mapped says what this engine does to containers on networks of any IPAM plugin; nothing of ours is wrong.
func (d Docker) mapped() api.Check {
	c := ok("docker", "Engine %s writes a container's own IPv4 address as ::ffff:ADDRESS into its /etc/hosts where the IPAM driver is a plugin: there, its own host name fails (ping $(hostname))", d.Engine.Version)
	c.Do = "a later engine than 29.0 does not; until then use the container's name, or localhost, in it"
	return c
}

func (d Docker) names() api.Check {
	if d.Redirect == nil {
		return ok("names", "can be answered inside containers, on every network")
	}
	if d.Engine.Major() >= namesMajor {
		return wrong("names", `set "dns" in /etc/docker/daemon.json to the servers that the host's resolv.conf has (not to ones on 127.0.0.0/8), and restart Docker; Linux 5.12 or newer with nf_tables (module nft_nat) mends all of it`,
			"containers of other hosts are not found by name, since names cannot be answered inside containers: %v", d.Redirect)
	}
	c := ok("names", "are answered at the gateway only (not on internal networks; a service's replicas of other hosts are not found where there is one here): %v", d.Redirect)
	c.Do = "Linux 5.12 or newer with nf_tables (module nft_nat) mends that"
	return c
}

// Duplicates finds addresses that two have: hosts that are alive and containers.
func Duplicates(nodes []api.Node, endpoints []api.Endpoint) []api.Check {
	var checks []api.Check
	vteps := map[netip.Addr]string{}
	for _, n := range nodes {
		if !n.Alive {
			continue
		}
		if other, twice := vteps[n.Underlay()]; twice {
			checks = append(checks, wrong("addresses", "set GRAPEVINE_ADVERTISE on each to an address of its own",
				"the hosts %s and %s have the same underlay address %s", other, n.Name, n.Underlay()))
		}
		vteps[n.Underlay()] = n.Name
	}
	holders := map[netip.Addr]api.Endpoint{}
	for _, e := range endpoints {
		for _, a := range e.Addrs {
			if other, twice := holders[a]; twice {
				checks = append(checks, wrong("addresses", "remove one of the containers and start it again: it gets another address",
					"the address %s is claimed by %s on %s and by %s on %s", a, container(other), other.Host, container(e), e.Host))
			}
			holders[a] = e
		}
	}
	if checks == nil {
		return []api.Check{ok("addresses", "no address of %s and %s is claimed twice", words.Plural(len(vteps), "host"), words.Plural(len(endpoints), "endpoint"))}
	}
	return checks
}

func container(e api.Endpoint) string {
	if e.Name != "" {
		return e.Name
	}
	return fmt.Sprintf("%.12s", e.ID)
}

// KeySetting speaks of a gossip key that stands in the settings of a plugin, where everybody who may
// ask Docker reads it.
func KeySetting(there, kept bool, plugin string) []api.Check {
	if !there {
		return nil
	}
	c := ok("key", "the gossip key is in the settings of the plugin, where `docker plugin inspect` shows it")
	if kept {
		c.What += "; the agent has it in its key file as well"
		c.Do = fmt.Sprintf("when convenient: `docker plugin disable -f %[1]s && docker plugin set %[1]s GRAPEVINE_KEY= && docker plugin enable %[1]s`", plugin)
	}
	return []api.Check{c}
}

// Interfaces finds containers whose interfaces are larger than the tunnel's packets.
func Interfaces(inner int, networks []api.Network, links []link.Link) (checks []api.Check) {
	for _, n := range networks {
		if n.MTU > inner {
			checks = append(checks, wrong("mtu", "make it anew without -o mtu, or with a smaller one",
				"the network %s has -o mtu=%d, and the tunnel of this host takes %d", n.Name, n.MTU, inner))
		}
	}
	stale := 0
	for _, l := range links {
		if link.PortOf(l.Name) == l.Name && strings.HasPrefix(l.Alias, "grapevine") && l.MTU > inner {
			stale++
		}
	}
	if stale > 0 {
		checks = append(checks, wrong("mtu", "start those containers again: they keep the MTU that they began with",
			"%s of this host have a larger MTU than the tunnel's %d", words.Plural(stale, "container interface"), inner))
	}
	return checks
}
