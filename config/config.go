// Package config reads the agent's settings. There is one table of them
// (Table); flags, environment variables, the configuration file, the plugin's
// env list and docs/use/options.md all follow from it.
//
// A setting x-y is the flag --x-y, the environment variable GRAPEVINE_X_Y and a
// line GRAPEVINE_X_Y=... of the file. The flag wins over the environment, the
// environment over the file, the file over the default. An empty value is no
// value: the managed plugin passes every variable it declares, set or not.
package config

import (
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/grapevine-net/grapevine/encap"
	"github.com/grapevine-net/grapevine/sshkey"
)

// DefaultFile is the configuration file that is read if no other one is named;
// it may be absent.
const DefaultFile = "/etc/grapevine/grapevine.env"

// Config is the agent's configuration, checked.
type Config struct {
	// Join lists gossip addresses of hosts of the cluster, ports filled in. The
	// first one names the host that seeds a new cluster; empty: this host does.
	Join []netip.AddrPort
	// Keys are the gossip keys (16, 24 or 32 bytes), the one to encrypt with
	// first; empty: those in KeyFile.
	Keys [][]byte
	// KeyFile holds the keys where Keys is empty: base64, one a line.
	KeyFile string
	// Advertise is this host's underlay address, for gossip and VXLAN, with the port of
	// gossip (0: Port) if others reach it at another one; AdvertiseInterface the interface
	// that has the address. Neither: Bind, or else the interface with the default route.
	Advertise          netip.AddrPort
	AdvertiseInterface string
	// Bind is the address gossip listens on; invalid: all of them.
	Bind netip.Addr
	// Port is the gossip port, TCP and UDP.
	Port uint16
	// Name is the host's name for people, unique by custom only.
	Name string
	// CIDR4 and CIDR6 are the prefixes that networks' prefixes are cut from. An
	// invalid CIDR6 means none.
	CIDR4, CIDR6 netip.Prefix
	// PrefixLen is the length in bits of a new network's IPv4 prefix.
	PrefixLen int
	// HostSubnetLength is the number of host bits of OpenShift's host subnets, 0:
	// shares of any size.
	HostSubnetLength int
	// OVS is auto, host or embedded; Datapath is auto, kernel or userspace.
	OVS, Datapath string
	// FastPath is auto, on, off, look or direct.
	FastPath string
	// ForgetAfter is how long a host may be silent before it is forgotten, 0: for ever.
	ForgetAfter time.Duration
	// Encap is how frames are wrapped on their way to other hosts, VXLANPort the UDP port of the VTEPs, 0 with GRE; both are one for
	// the whole cluster.
	Encap     string
	VXLANPort uint16
	// Bare says that neighbours that have it as well send each other packets without headers, where they can.
	Bare bool
	// Encryption is off, networks (those that are said to be) or all; WireGuardPort is where this host takes what is encrypted for it (UDP).
	Encryption    string
	WireGuardPort uint16
	// IPsec is off, require or strongswan.
	IPsec string
	// ClientPort is where this host lets clients in (UDP), if it has any.
	ClientPort uint16
	// MTU of the underlay in bytes, 0: that of the interface of Advertise.
	MTU int
	// Replicate makes networks of other hosts in the local Docker.
	Replicate bool
	// Docker is the URL of the Docker API, unix:///path, or "none": this is an edge host (see Edge). Networks are those
	// that such a host reaches, by name; "all" is all of them.
	Docker   string
	Networks []string
	// State, Run and PluginSocket are absolute paths: the directory that outlives
	// reboots, the one of sockets, and the socket Docker calls.
	State, Run, PluginSocket string
	// DriverName is the name Docker knows this driver by, "auto": found out.
	DriverName string
	// Metrics is where Prometheus may ask, invalid: nowhere. An unspecified address means all.
	Metrics netip.AddrPort
	// MetricsTokenFile holds the token that it must show.
	MetricsTokenFile string
	// Group may look: its name or number, empty: that of Docker's socket.
	Group string
	// Capture is what other hosts get of this host's containers' packets: headers, full or off.
	Capture string
	Expose  string // which ports that all hosts answer this one does: services, labels or off
	// Traffic says whether is counted who talks to whom: auto, on or off.
	Traffic string
	// IPFIX is the collector that is told who talks to whom: HOST:PORT, by UDP, or tcp://HOST:PORT; empty: none.
	IPFIX string
	// BGP are the routers that are told which addresses are here: what of BGPNetworks is this host's, and those of BGPAddresses
	// that it has.
	BGP          []Router
	BGPNetworks  []string
	BGPAddresses []netip.Addr
	// PolicyKeys are the public keys of the operators whose policies this host enforces, and no others; empty: anybody's.
	PolicyKeys []sshkey.Key
	// LogLevel is debug, info, warn or error.
	LogLevel string

	shared []string
}

// Shared lists the settings that must be the same on all hosts and are not the
// default, as GRAPEVINE_X=value. The caller must not change the list.
func (c Config) Shared() []string { return c.shared }

// Edge says that this host has no Docker: it reaches the containers of some networks, and takes no share of any.
func (c Config) Edge() bool { return c.Docker == noDocker }

// Reaches reports whether this host has a way to the containers of a network. All but an edge host have one to all.
func (c Config) Reaches(network string) bool {
	return !c.Edge() || slices.Contains(c.Networks, AllNetworks) || slices.Contains(c.Networks, network)
}

// The words of the settings docker and networks.
const (
	noDocker    = "none"
	AllNetworks = "all"
)

// With is c with the ranges of addresses that are in force: that of IPv6 is made of the cluster's ID, if it is not set.
func (c Config) With(ranges []netip.Prefix) Config {
	for _, p := range ranges {
		if p.Addr().Is6() {
			c.CIDR6 = p
		}
	}
	return c
}

// Encrypts says that nothing of containers is sent to other hosts, or taken from there, in the clear.
func (c Config) Encrypts() bool { return c.Encryption == "all" }

// NeedsIPsec says that VXLAN goes to other hosts by IPsec, whose policies and keys another program keeps, or not at all.
func (c Config) NeedsIPsec() bool { return c.IPsec == "require" || c.ByStrongSwan() }

// ByStrongSwan says that this host's strongSwan is told of the others, and exchanges keys with theirs.
func (c Config) ByStrongSwan() bool { return c.IPsec == "strongswan" }

// Encapsulation is how frames are wrapped on their way to other hosts.
func (c Config) Encapsulation() encap.Kind {
	k, _ := encap.Of(c.Encap)
	return k
}

// TunnelPort is the UDP port by which what containers send comes from other hosts.
func (c Config) TunnelPort() uint16 {
	if c.Encrypts() {
		return c.WireGuardPort
	}
	return c.VXLANPort
}

// SecondWireGuardPort is where this host takes what is encrypted for it as well while keys change: 7950, unless another setting
// has that.
func (c Config) SecondWireGuardPort() uint16 {
	for port := c.WireGuardPort + 2; ; port++ {
		if port != 0 && port != c.Port && port != c.VXLANPort && port != c.ClientPort && port != c.WireGuardPort {
			return port
		}
	}
}

// ReadSocket is the path of the one that answers who may look and not touch.
func (c Config) ReadSocket() string { return filepath.Join(c.Run, "read.sock") }

// APISocket is the path of the unix socket that the command line talks to.
func (c Config) APISocket() string { return filepath.Join(c.Run, "grapevine.sock") }
