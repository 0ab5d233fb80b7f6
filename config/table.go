package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/grapevine-net/grapevine/encap"
)

// Setting is one row of the table.
type Setting struct {
	// Name is lower case with dashes, as in the flag.
	Name string
	// Default is the value's text; empty: there is none, and Doc says what then.
	Default string
	// Doc is one or two sentences for --help and docs/use/options.md.
	Doc string
	// Fixed settings are not in the managed plugin's env list: its mounts decide them, or
	// they are for hosts without Docker.
	Fixed bool
	// Shared settings must be the same on all hosts.
	Shared bool

	set func(c *Config, value string) error
}

// Env is the setting's environment variable and key in the file.
func (s Setting) Env() string {
	return prefix + strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
}

const prefix = "GRAPEVINE_"

// Table lists all settings, in the order of the documentation.
var Table = []Setting{
	{
		Name: "join",
		Doc: "Addresses of hosts of the cluster, separated by commas, each with an optional :port. " +
			"The host whose own address comes first seeds a new cluster; give the same line to every host. Empty: this host seeds.",
		set: setJoin,
	},
	{
		Name: "key",
		Doc: "Gossip key: 16, 24 or 32 bytes in base64 (`openssl rand -base64 32`). During a rotation several, separated by commas: " +
			"the first one encrypts, all decrypt. Prefer `key-file`: every user of the host can see a flag, and who may ask Docker a plugin's settings. Empty: `key-file`. " +
			"If it is given, the agent keeps it in the key file as well, and it can be taken away again.",
		set: setKeys,
	},
	{
		Name: "key-file",
		Doc:  "File with the gossip key, or several, one a line. Empty: `key` in the state directory, made by the seed.",
		set:  path(func(c *Config) *string { return &c.KeyFile }), Fixed: true,
	},
	{
		Name: "advertise",
		Doc: "This host's underlay address, which the others send gossip and VXLAN to, or the interface that has it. Behind NAT, the address there, with `:port` " +
			"if gossip's is forwarded from another one, and `bind` besides. Empty: `bind`, or else the address of the interface with the default route. A change is followed.",
		set: setAdvertise,
	},
	{
		Name: "bind",
		Doc:  "Address of this host on which gossip listens. Empty: all.",
		set:  setBind,
	},
	{
		Name: "port", Default: "7947",
		Doc:    "Gossip port, TCP and UDP.",
		Shared: true,
		set:    port(func(c *Config) *uint16 { return &c.Port }),
	},
	{
		Name: "name",
		Doc:  "This host's name, for people. Empty: the host name.",
		set:  setName,
	},
	{
		Name: "cidr4", Default: "10.128.0.0/14",
		Doc:    "IPv4 prefix that networks get their prefixes from. The same on every host; must not overlap the underlay.",
		Shared: true,
		set:    setCIDR4,
	},
	{
		Name:   "cidr6",
		Doc:    "IPv6 prefix that networks get their prefixes from, /64 each (`--ipam-opt prefixlen6=` overrides that for one network). Empty: a unique local /48 (RFC 4193) of the cluster's own.",
		Shared: true,
		set:    setCIDR6,
	},
	{
		Name: "prefixlen", Default: "22",
		Doc:    "Length of the IPv4 prefix of a new network, 8 to 30; `--ipam-opt prefixlen=` overrides it for one network.",
		Shared: true,
		set:    number(func(c *Config) *int { return &c.PrefixLen }, 8, 30),
	},
	{
		Name: "hostsubnetlength", Default: "0",
		Doc:    "Host bits of OpenShift's host subnets: each host gets whole subnets of this size, in OpenShift's order. 0: shares of any size.",
		Shared: true,
		set:    number(func(c *Config) *int { return &c.HostSubnetLength }, 0, 24),
	},
	{
		Name: "ovs", Default: "auto",
		Doc: "Open vSwitch to use: the `host`'s own daemons, or `embedded` ones that the agent starts, which cannot share a datapath with bridges of the host's own. `auto`: the host's if they answer, or as soon as they have such a bridge.",
		set: oneOf(func(c *Config) *string { return &c.OVS }, "auto", "host", "embedded"),
	},
	{
		Name: "datapath", Default: "auto",
		Doc: "OVS datapath: `kernel` (the openvswitch module) or `userspace`. `auto`: the kernel's if the module is there.",
		set: oneOf(func(c *Config) *string { return &c.Datapath }, "auto", "kernel", "userspace"),
	},
	{
		Name: "fastpath", Default: "auto",
		Doc: "tc programs that carry what needs no switch, containers to containers: `on`, `off` or `auto`, which is `look` with the userspace datapath if the kernel can and compiles them (JIT), and with the kernel's datapath carries encrypted networks alone. " +
			"`direct` is `on`, and between hosts the programs go past the VXLAN device: quicker, but this host's firewall and conntrack do not see these packets (docs/design/fastpath.md). " +
			"`look` is `direct` while the agent finds nothing on this host that would do more to these packets than let them pass and count them, else `on`. " +
			"Containers keep running and no packet is lost when it changes.",
		set: oneOf(func(c *Config) *string { return &c.FastPath }, "auto", "on", "off", "look", "direct"),
	},
	{
		Name: "forget-after", Default: "0",
		Doc: "Forget a host that has not answered for so long (`72h`; at least 1m), as `grapevine forget` does: its addresses are given to others, and if it was alive it joins as a new one. " +
			"Only one host of the cluster does so, and only while more than half of all hosts answer (docs/operate/install.md). 0: never.",
		Shared: true,
		set:    setForgetAfter,
	},
	{
		Name: "encap", Default: encap.VXLAN.Name,
		Doc: "How what containers send is wrapped on its way to other hosts, the same on every host: `vxlan` (RFC 7348), or `geneve` (RFC 8926) or `gre` (RFC 2890), for where something on the way eats VXLAN (docs/use/encapsulation.md). " +
			"`auto` is `vxlan`, and nothing around it between hosts of one segment that both have `auto` and the fast path `direct`: who may send from another MAC address than its own is believed there. " +
			"`geneve` and `gre` need a module of the kernel, and with them nothing is encrypted yet. `stt` is gone from Open vSwitch.",
		Shared: true,
		set:    setEncap,
	},
	{
		Name: "vxlan-port",
		Doc: fmt.Sprintf("UDP port of VXLAN, or of Geneve with `encap`, the same on every host. Take another one where Docker's swarm overlay is in use. Empty: %d with VXLAN, %d with Geneve. GRE has none.",
			encap.VXLAN.Port, encap.Geneve.Port),
		Shared: true,
		set:    port(func(c *Config) *uint16 { return &c.VXLANPort }),
	},
	{
		Name: "encryption", Default: "networks",
		Doc: "`networks`: what containers of networks made with `-o encrypted` and others send each other goes through WireGuard between hosts, or not at all, and nothing of it that was not encrypted is taken " +
			"(docs/use/encryption.md); all else is VXLAN in the clear. `all`: the same for all networks, on every host: one that encrypts all and one that does not have no way to each other. " +
			"`off`: this host has no part in encrypted networks.",
		Shared: true,
		set:    oneOf(func(c *Config) *string { return &c.Encryption }, "networks", "all", "off"),
	},
	{
		Name: "wireguard-port", Default: strconv.Itoa(int(encap.WireGuard.Port)),
		Doc: "UDP port on which this host takes what is encrypted for it, with `encryption`. Behind NAT it must be forwarded from the same port.",
		set: port(func(c *Config) *uint16 { return &c.WireGuardPort }),
	},
	{
		Name: "ipsec", Default: "off",
		Doc: "`require`: VXLAN leaves this host by IPsec, or not at all, and none is taken that did not come by it. The policies and keys are yours, or those of a daemon such as strongSwan (docs/use/encryption.md#ipsec). " +
			"`strongswan`: the same, and the agent has this host's strongSwan exchange keys with those of all other hosts, by public keys from their records. `off`: IPsec is nobody's concern here.",
		Shared: true,
		set:    oneOf(func(c *Config) *string { return &c.IPsec }, "off", "require", "strongswan"),
	},
	{
		Name: "client-port", Default: strconv.Itoa(defaultClientPort),
		Doc: "UDP port by which clients come that were added at this host (docs/use/clients.md). Without any nobody listens there.",
		set: port(func(c *Config) *uint16 { return &c.ClientPort }),
	},
	{
		Name: "mtu", Default: "0",
		Doc: "MTU of the underlay in bytes; containers get 50 less (70 if a host's underlay address is IPv6; 130 or 150 less where it is encrypted). 0: that of the underlay's interface.",
		set: setMTU,
	},
	{
		Name: "replicate", Default: "on",
		Doc: "Make the networks of other hosts in this host's Docker, and remove them when they go: `on` or `off`.",
		set: onOff(func(c *Config) *bool { return &c.Replicate }),
	},
	{
		Name: "driver-name", Default: "auto",
		Doc: "Name by which this host's Docker knows the driver (`grapevine` for the service, `grapevine:latest` for the plugin). `auto`: found out.",
		set: text(func(c *Config) *string { return &c.DriverName }),
	},
	{
		Name: "metrics",
		Doc: "Address and port on which Prometheus may ask for metrics (`/metrics`) and for the hosts of the cluster (`/sd`), over HTTP, with a token. Give every host the same port: `:7955`. " +
			"Empty: none; `grapevine metrics` has them anyway.",
		set: setMetrics,
	},
	{
		Name: "metrics-token-file",
		Doc:  "File with the token that whoever asks for metrics must show, one word. Empty: `metrics-token` in the state directory, made by the agent; copy it to the other hosts, so that Prometheus needs one.",
		set:  path(func(c *Config) *string { return &c.MetricsTokenFile }),
	},
	{
		Name: "group",
		Doc: "Group, by name or number (in the plugin by number), whose members may look (`status`, `ps`, `doctor`, ...) without sudo, by a second socket. " +
			"Empty: that of Docker's socket, whose members are as good as root anyway; `root`: nobody else.",
		set: setGroup,
	},
	{
		Name: "capture", Default: "headers",
		Doc: "What other hosts of the cluster get of the packets of this host's containers (`grapevine capture`): `headers`, without what containers say to each other; `full`; or `off`, with which no packet of `grapevine trace` of theirs enters or leaves them either. " +
			"Root on this host always gets all.",
		set: oneOf(func(c *Config) *string { return &c.Capture }, "headers", "full", "off"),
	},
	{
		Name: "expose", Default: "services",
		Doc: "Ports of this host that lead to containers because all hosts answer them: of `services` that somebody exposed (`grapevine service expose`); by `labels` of containers as well (`grapevine.expose`), so that whoever may start a container on one host takes " +
			"ports of this one; or `off`, none.",
		set: oneOf(func(c *Config) *string { return &c.Expose }, "services", "labels", "off"),
	},
	{
		Name: "traffic", Default: "auto",
		Doc: "Count who talks to whom (`grapevine traffic`): `on`; `off`; or `auto`, from the first question on until an hour after the last, " +
			"if the kernel compiles BPF programs (JIT).",
		set: oneOf(func(c *Config) *string { return &c.Traffic }, "auto", "on", "off"),
	},
	{
		Name: "ipfix",
		Doc: "Collector of IPFIX (`HOST:PORT` by UDP, `tcp://HOST:PORT`) that is told what this host's containers send to whom. It counts always then, as with `GRAPEVINE_TRAFFIC=on`; with `off` there is nothing to tell. Empty: nobody is told anything. " +
			"See docs/use/packets.md.",
		set: setIPFIX,
	},
	{
		Name: "bgp",
		Doc: "Routers that are told by BGP which addresses this host has (docs/use/bgp.md): `ADDRESS,as=N,local-as=N`, and as you like `password-file=PATH`, `hold=9s`, `restart=1m`, `ttl-security`; several with semicolons between them. " +
			"They are told of egress addresses that this host holds, and of what the next two settings name. Nothing is learned from them, and nobody listens here. Empty: none.",
		set: setBGP,
	},
	{
		Name: "bgp-networks",
		Doc:  "Networks, separated by commas, whose addresses that are this host's the routers are told of. **The outside reaches their containers here at their own addresses**, as far as policies let it. Empty: none.",
		set:  setBGPNetworks,
	},
	{
		Name: "bgp-addresses",
		Doc:  "Addresses, separated by commas, that the routers are told of while this host has them, on `lo` perhaps: several hosts answer exposed ports by one address. Empty: none.",
		set:  setBGPAddresses,
	},
	{
		Name: "policy-keys",
		Doc: "Public keys (Ed25519) of who may change policies, as in OpenSSH's `.pub` files, with commas between: `ssh-ed25519 AAAA...`. This host then enforces what these keys have signed (`grapevine policy apply --key`), " +
			"and no other policy (docs/use/policy.md#only-these-keys-change-policies). Set the same on every host. Empty: whatever any host's root applies.",
		set: setPolicyKeys,
	},
	{
		Name: "log-level", Default: "info",
		Doc: "Least severe messages to log: `debug`, `info`, `warn` or `error`.",
		set: oneOf(func(c *Config) *string { return &c.LogLevel }, "debug", "info", "warn", "error"),
	},
	{
		Name: "docker", Default: "unix:///var/run/docker.sock", Fixed: true,
		Doc: "Docker API to learn names from and to make networks in. `none`: this host has no Docker. It reaches the containers of the networks in `networks`, by name too, " +
			"and takes no share of any subnet (docs/use/edge.md).",
		set: setDocker,
	},
	{
		Name: "networks", Fixed: true,
		Doc: "Networks that a host without Docker (`docker`) reaches, separated by commas, or `all`. Empty: a host with Docker reaches all, and needs it so.",
		set: setNetworks,
	},
	{
		Name: "state", Default: "/var/lib/grapevine", Fixed: true,
		Doc: "Directory of what outlives a reboot: identity, ring, leases. A lost one makes this a new host.",
		set: path(func(c *Config) *string { return &c.State }),
	},
	{
		Name: "run", Default: "/run/grapevine", Fixed: true,
		Doc: "Directory of the agent's own socket (grapevine.sock) and of the embedded OVS.",
		set: path(func(c *Config) *string { return &c.Run }),
	},
	{
		Name: "plugin-socket", Default: "/run/docker/plugins/grapevine.sock", Fixed: true,
		Doc: "Socket on which Docker calls the driver; its base name is the driver's name for the service.",
		set: path(func(c *Config) *string { return &c.PluginSocket }),
	},
}

// known reports whether a row's Env is the given name.
func known(env string) bool {
	return slices.ContainsFunc(Table, func(s Setting) bool { return s.Env() == env })
}
