package api

// Code names a kind of problem. Alerts, scripts and docs/operate/troubleshooting.md go by it, so a code
// that was once released keeps its meaning, while words change.
type Code string

// Severity says how soon a problem is to be looked at.
type Severity string

// The severities. Of a Fault something is not carried, not made, or not safe; of a Warning all
// goes on, and something is not as it was asked for.
const (
	Fault   Severity = "error"
	Warning Severity = "warning"
)

// Kind is a kind of problem.
type Kind struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	Means    string   `json:"means"` // for people
	Do       string   `json:"do"`    // what comes first
}

// The codes, by what they are of: the agent, its place in the cluster, the ways to the others, this
// host's switch and firewall, networks and addresses, containers.
const (
	AgentSilent    Code = "agent-silent"
	AgentDown      Code = "agent-down"
	HostLeft       Code = "host-left"
	LeaveHalf      Code = "leave-half"
	DockerSilent   Code = "docker-silent"
	DockerSocket   Code = "docker-socket"
	DiskFails      Code = "disk-fails"
	DiskHangs      Code = "disk-hangs"
	DiskFull       Code = "disk-full"
	DiskNearlyFull Code = "disk-nearly-full"
	MetricsPort    Code = "metrics-port"
	MetricsToken   Code = "metrics-token"

	ClusterWaits    Code = "cluster-waits"
	ClusterOther    Code = "cluster-other"
	GossipKey       Code = "gossip-key"
	GossipRefused   Code = "gossip-refused"
	HostForgotten   Code = "host-forgotten"
	HostSuspect     Code = "host-suspect"
	HostTwice       Code = "host-twice"
	NameTwice       Code = "name-twice"
	StateOld        Code = "state-old"
	StateUnproven   Code = "state-unproven"
	SettingsDiffer  Code = "settings-differ"
	EncapDiffers    Code = "encap-differs"
	HostSilent      Code = "host-silent"
	HostDoubtful    Code = "host-doubtful"
	UnderlayCut     Code = "underlay-cut"
	UnderlayVRF     Code = "underlay-vrf"
	GossipTCP       Code = "gossip-tcp"
	GossipUDP       Code = "gossip-udp"
	EncapLost       Code = "encap-lost"
	EncryptedLost   Code = "encrypted-lost"
	KeysStalled     Code = "keys-stalled"
	EncapNarrow     Code = "encap-narrow"
	EncapLossy      Code = "encap-lossy"
	EncapSource     Code = "encap-source"
	EncapPortShared Code = "encap-port-shared"
	EncryptionFails Code = "encryption-fails"
	HostUnencrypted Code = "host-unencrypted"
	IPsecMissing    Code = "ipsec-missing"
	ClientsFail     Code = "clients-fail"
	ClientLost      Code = "client-lost"

	SwitchFails     Code = "switch-fails"
	SwitchHangs     Code = "switch-hangs"
	SwitchDown      Code = "switch-down"
	SwitchRival     Code = "switch-rival"
	GuardFails      Code = "guard-fails"
	FirewallDrops   Code = "firewall-drops"
	FirewallUnread  Code = "firewall-unread"
	ForwardingOff   Code = "forwarding-off"
	FamilyOff       Code = "family-off"
	FamilyNarrow    Code = "family-narrow"
	RouteTaken      Code = "route-taken"
	OutsideLost     Code = "outside-lost"
	FastPathOff     Code = "fastpath-off"
	SubnetBarred    Code = "subnet-barred"
	HostRangeBarred Code = "host-range-barred"
	NetworkAnew     Code = "network-anew"
	NetworkForeign  Code = "network-foreign"
	IdentityEarlier Code = "identity-earlier"

	PortTaken          Code = "port-taken"
	LimitFails         Code = "limit-fails"
	GroupsRefused      Code = "groups-refused"
	ServicesFail       Code = "services-fail"
	ServiceSick        Code = "service-sick"
	ExposeTaken        Code = "expose-taken"
	ExposeFails        Code = "expose-fails"
	SourceAbsent       Code = "source-absent"
	EdgeHadDocker      Code = "edge-had-docker"
	EdgeNames          Code = "edge-names"
	EgressUnheld       Code = "egress-unheld"
	EgressTaken        Code = "egress-taken"
	EgressClash        Code = "egress-clash"
	EgressUnfit        Code = "egress-unfit"
	BGPDown            Code = "bgp-down"
	BGPUnsaid          Code = "bgp-unsaid"
	EgressPassedBy     Code = "egress-passed-by"
	EgressUnanswered   Code = "egress-unanswered"
	AliasesUntold      Code = "aliases-untold"
	LabelsUntold       Code = "labels-untold"
	NetworkUntold      Code = "network-untold"
	NetworkNamesake    Code = "network-namesake"
	SwarmBarred        Code = "swarm-barred"
	NetworkRefused     Code = "network-refused"
	PolicyUnenforced   Code = "policy-unenforced"
	AddressUnheard     Code = "address-unheard"
	ConnectionsFull    Code = "connections-full"
	PolicyUnread       Code = "policy-unread"
	PolicyLost         Code = "policy-lost"
	PolicyKeysDiffer   Code = "policy-keys-differ"
	NetworksApart      Code = "networks-apart"
	NetworkWordLost    Code = "network-word-lost"
	NamesFull          Code = "names-full"
	InterfaceGone      Code = "interface-gone"
	ContainerUnstarted Code = "container-unstarted"
)

// Kinds are all kinds of problems.
var Kinds = []Kind{
	{AgentSilent, Fault, "no agent answers on this host's socket", "start it: `systemctl start grapevine`, or `docker plugin enable grapevine`; `grapevine doctor` works without it"},
	{AgentDown, Fault, "the agent cannot run, and says why", "mend the setting that it names: [install.md](install.md#when-it-does-not-run)"},
	{HostLeft, Fault, "this host has left its cluster", "`grapevine join` brings it back"},
	{LeaveHalf, Fault, "`grapevine leave` did not come to its end", "run it again; to stay, restart the agent"},
	{DockerSilent, Fault, "Docker does not answer the agent", "`systemctl start docker`, or see in its log why it hangs"},
	{DockerSocket, Fault, "Docker cannot call the agent", "remove what is in the place of the agent's socket: `ls -l /run/docker/plugins`"},
	{DiskFails, Fault, "this host's state cannot be written", "make its disk writable, with room"},
	{DiskFull, Fault, "this host's disk has no room for its state", "make room: until then nothing new is made here"},
	{DiskNearlyFull, Warning, "this host's disk will soon have no room for its state", "make room"},
	{DiskHangs, Fault, "this host's disk does not take a write", "`dmesg`: until it answers nothing new begins"},
	{MetricsPort, Warning, "the port for Prometheus cannot be served", "another GRAPEVINE_METRICS, or free the port"},
	{MetricsToken, Warning, "the token for Prometheus cannot be read, is none, or others can read it", "`chmod 600` its file, which is read again when it changes; [metrics.md](metrics.md)"},

	{ClusterWaits, Fault, "this host waits for a cluster, or to learn who owns which addresses", "start the agent on a host of GRAPEVINE_JOIN, open TCP and UDP 7947, set the same key"},
	{ClusterOther, Fault, "a host that was named belongs to another cluster", "have one of the two leave, as `status` says"},
	{GossipKey, Fault, "a host has another gossip key", "put the cluster's key on it, or keep strangers from port 7947"},
	{GossipRefused, Fault, "gossip keeps a host out", "it says what differs: let it be the same on both"},
	{HostForgotten, Fault, "the cluster has forgotten this host, or one host says so", "wait: it joins as a new one by itself, or says what for"},
	{HostSuspect, Fault, "a host says what is not its own to say", "see `grapevine status` there; if all is well there, stop it for good and `grapevine forget` it"},
	{HostTwice, Fault, "another host has this host's ID: a cloned disk", "stop the copy, and remove its state directory"},
	{NameTwice, Warning, "several hosts have one name", "give them others by GRAPEVINE_NAME, or `grapevine forget` the old one"},
	{StateOld, Fault, "this host's state is older than what the others know of it", "[upgrade.md](upgrade.md#back-again)"},
	{StateUnproven, Fault, "this host was restored, and the others have not said that nothing is missing", "start the hosts that do not answer, or `grapevine forget` them"},
	{EncapDiffers, Fault, "another host wraps what containers send in another way: nothing passes between the two", "GRAPEVINE_ENCAP the same on every host: [encapsulation.md](../use/encapsulation.md)"},
	{SettingsDiffer, Fault, "a setting that must be the same on all hosts is not", "set it to the same everywhere, and restart the agents where it was not"},
	{HostSilent, Fault, "a host does not answer", "start it, or open the port; only if it is gone for good: `grapevine forget` it"},
	{HostDoubtful, Warning, "a host does not answer just now", "wait some seconds, until it is known which"},
	{UnderlayCut, Fault, "this host itself is cut off from all others", "mend its own network: cable, address, switch"},
	{UnderlayVRF, Fault, "the underlay's interface is in a VRF: what goes to other hosts is led by the main routing table, and finds no way there", "take it out of the VRF, or choose another interface (GRAPEVINE_ADVERTISE)"},
	{GossipTCP, Fault, "gossip's TCP port does not pass to a host", "let TCP 7947 pass between the two, both ways"},
	{GossipUDP, Warning, "gossip's UDP port does not pass to a host", "let UDP 7947 pass between the two, both ways"},
	{EncapLost, Fault, "containers' packets are lost between this host and another", "let UDP pass to the port of VXLAN or Geneve, or GRE, between the two, both ways (`grapevine status` names it); `grapevine doctor` says where they end"},
	{EncryptedLost, Fault, "what encrypted networks send is lost between this host and another", "let UDP 7948 pass between the two, both ways; `kill` the process wireguard-device of a host where it hangs: the agent begins another one"},
	{KeysStalled, Warning, "`grapevine keys wireguard` has begun and waits for a host", "start that host's agent, or let UDP 7950 pass; a host where another program has that port says so"},
	{EncapNarrow, Fault, "large packets of containers are lost between this host and another", "make the path carry them, or set GRAPEVINE_MTU on every host"},
	{EncapLossy, Warning, "a part of what containers send is lost between this host and another", "find what loses them: `grapevine ping` that host, `ip -s link` on both, cables and switches between"},
	{EncapSource, Fault, "what containers send leaves this host, wrapped, with another source than its VTEP", "`ip route replace`, as `status` prints it, or GRAPEVINE_ADVERTISE"},
	{EncapPortShared, Fault, "Docker Swarm's overlay has the same UDP port", "GRAPEVINE_VXLAN_PORT=4790 on every host"},
	{EncryptionFails, Fault, "what goes to other hosts cannot be encrypted, and is not sent", "it says what is missing; `/run/grapevine/wireguard.log` is the log of WireGuard's process"},
	{HostUnencrypted, Fault, "of two hosts one encrypts and the other does not or cannot: they have no way to each other, or none in encrypted networks", "the same GRAPEVINE_ENCRYPTION on every host, and what it says that one lacks: [encryption.md](../use/encryption.md)"},
	{IPsecMissing, Fault, "VXLAN is to go by IPsec, and no policy of this host's protects it on the way to a host", "have policies for it, each way, or GRAPEVINE_IPSEC=off on every host: [encryption.md](../use/encryption.md#ipsec)"},
	{ClientsFail, Fault, "clients of WireGuard that were added here are not let in, or not all of them", "it says what is wrong; `/run/grapevine/clients.log` is the log of WireGuard's process: [clients.md](../use/clients.md)"},
	{ClientLost, Warning, "the network of a client of WireGuard is gone, or was made anew", "`grapevine client remove` the client, and add it to another network: [clients.md](../use/clients.md)"},

	{SwitchFails, Fault, "the switch is not as it should be", "the agent goes on trying; its log says more"},
	{SwitchHangs, Fault, "ovs-vswitchd or ovsdb-server does not answer", "`top`: is it busy? if it hangs, end it: the agent starts it again"},
	{SwitchDown, Fault, "a daemon of the agent's Open vSwitch does not come back, or cannot be reached", "mend what it says is in the way (`ls -l /run/grapevine/ovs`, `df /run`): it begins anew by itself"},
	{SwitchRival, Fault, "this host's own Open vSwitch has the datapath", "GRAPEVINE_OVS=host"},
	{GuardFails, Fault, "the rules of what may enter and leave the overlay could not be set", "load nf_tables, or give the agent CAP_NET_ADMIN"},
	{FirewallDrops, Fault, "this host's firewall drops what grapevine needs, or its NAT leads it elsewhere", "let it pass: `status` names the rule and the command"},
	{FirewallUnread, Warning, "this host has rules of nftables that cannot be read: what they drop is named by nobody", "install the program nft"},
	{ForwardingOff, Fault, "forwarding is off on the underlay's interface", "`sysctl -w`, as `status` prints it"},
	{FamilyOff, Warning, "IPv6 is off on the underlay's interface, and containers on networks with IPv6 have no way out by it", "`sysctl -w`, as `status` prints it, and set the interface up anew"},
	{FamilyNarrow, Warning, "a host's underlay carries less than IPv6 needs, 1280 bytes of containers", "let that underlay carry more, as `status` says, or make the networks that it names without IPv6"},
	{RouteTaken, Fault, "a routing rule of another program leads containers' packets elsewhere", "`ip rule add`, as `status` prints it"},
	{OutsideLost, Fault, "this host has lost its route to the outside, and its containers with it", "see what set the default route; a host that has had none since its agent began is not named"},
	{FastPathOff, Warning, "the fast path that was asked for is off, rests, or is not direct", "nothing is lost, the switch carries all, slower: GRAPEVINE_FASTPATH=auto"},
	{SubnetBarred, Fault, "a host cannot take a network's subnet: it has something else there", "have the other thing elsewhere, or make the network with another `--subnet`"},
	{HostRangeBarred, Warning, "a host has something else in the range from which hosts speak to containers", "have the other thing elsewhere, if hosts are to reach containers by address"},
	{NetworkAnew, Fault, "a network was made anew, and a host has the one from before", "make its containers there anew"},
	{NetworkForeign, Warning, "a network of another driver takes its addresses from grapevine", "create it with grapevine's driver as well, or without `--ipam-driver`"},
	{IdentityEarlier, Fault, "Docker has networks or containers from before this host joined as a new one", "`docker restart` them, or make them anew, as `status` says"},

	{PortTaken, Warning, "a published port is another program's as well", "end the program, or publish another port"},
	{SourceAbsent, Warning, "a network is to reach the outside from an address that this host does not have", "`ip addr add` it, or run the network's containers where it is"},
	{EdgeHadDocker, Fault, "a host without Docker (GRAPEVINE_DOCKER=none) still has endpoints from when it had Docker", "`grapevine leave --force`, then `grapevine join`: [edge.md](../use/edge.md)"},
	{EdgeNames, Warning, "programs of a host without Docker cannot ask for containers by name", "what `status` says; another resolver may listen on all addresses: [edge.md](../use/edge.md)"},
	{EgressUnheld, Fault, "no host holds an egress address, so its networks' containers do not reach the outside", "start one of its gateways; `status` there says why it does not take the address: [egress.md](../use/egress.md)"},
	{EgressTaken, Fault, "an egress address is another machine's, or given to a host that does not hold it", "take it away there, or give the egress another one: `grapevine egress set`"},
	{EgressClash, Fault, "two egresses have one address, one network, or one network's same labels, as two sides of a partition may make them", "take from one of them what both have: `grapevine egress set`, `grapevine egress remove`"},
	{EgressUnfit, Warning, "a host that is to be a gateway of an egress cannot hold its address: it has no interface on the address' LAN, or that has no link", "give it an interface in the address' subnet, see to its cable, or name other gateways: `grapevine egress set`"},
	{BGPDown, Fault, "a router is not told by BGP which addresses are on a host", "compare GRAPEVINE_BGP with the router's settings: [bgp.md](../use/bgp.md)"},
	{BGPUnsaid, Warning, "a router is not told by BGP of all addresses that it is to be told of", "do what `status` says: [bgp.md](../use/bgp.md)"},
	{EgressPassedBy, Fault, "containers of a network that has an egress address leave by their own hosts", "create the network anew without `-o vnid=0`, or remove the egress; upgrade agents that know of no `--label`"},
	{EgressUnanswered, Fault, "who comes in by a published port is not answered by containers that leave by another host's egress address, since this host's switch cannot tell answers from what they send out", "boot a kernel whose Open vSwitch tracks connections by zones, or publish them on the host that holds the address: [egress.md](../use/egress.md#what-it-does-not-do)"},
	{ServicesFail, Warning, "a container's connections to services do not go where they should", "restart it; one with NET_ADMIN may have changed its own rules, or keeps loading so many that nobody else can"},
	{ServiceSick, Fault, "all containers behind a service, or behind an exposed port, are paused or not healthy: connections are led there, and may wait for ever", "`docker unpause` them, or see with `docker inspect` what their HEALTHCHECK says: [services.md](../use/services.md#who-gets-connections)"},
	{GroupsRefused, Warning, "a container has joined more multicast groups than one may", "find out which program joins so many, and have it join fewer: [multicast.md](../use/multicast.md)"},
	{ExposeTaken, Fault, "this host does not answer an exposed port, since somebody else has it, or no host of its containers can answer by another one", "end who has the port here, or expose another one, or upgrade those hosts: [services.md](../use/services.md)"},
	{ExposeFails, Fault, "an exposed port does not lead where it should", "see what `status` says: [services.md](../use/services.md)"},
	{LimitFails, Warning, "a container's bandwidth is not limited as it should be, or what it sends is not delayed", "see which qdisc stands in the way, or `modprobe sch_tbf`, `modprobe sch_netem`"},
	{AliasesUntold, Warning, "other hosts do not know some aliases of a container", "give it fewer or shorter ones"},
	{LabelsUntold, Fault, "other hosts do not know the labels of a container, so policies do not apply as they are meant", "give it fewer or shorter ones"},
	{NetworkUntold, Fault, "other hosts do not have a network of this one, since its name cannot be told", "remove it by its ID, and create it with a name of characters that can be printed"},
	{NetworkNamesake, Fault, "a network of the cluster is not on this host, since its Docker has another one of that name", "remove that one, and the cluster's comes by itself; or make one of the two anew under another name"},
	{SwarmBarred, Fault, "tasks of Docker Swarm wait on this host (`Starting`) for a network that Docker cannot make, since containers were put on the one of its name that was here before", "remove these containers, or `docker network disconnect` them: Swarm's network comes by itself, and they can be put on that one: [swarm.md](../use/swarm.md)"},
	{NetworkRefused, Fault, "a network of the cluster is not on this host, since its Docker does not make it: an engine before 28.0 makes none without IPv4", "mend what `status` says that Docker says, and the network comes by itself; or create it as all hosts' Docker can make it"},
	{PolicyUnenforced, Fault, "a host does not enforce the cluster's policies", "upgrade its agent; `grapevine status` there says what its switch lacks"},
	{AddressUnheard, Fault, "a container has the address of a former one, and a host that has not heard of it may take it for that one: nothing passes between the two", "see that the agent runs there and that gossip passes: `grapevine doctor`"},
	{ConnectionsFull, Fault, "containers that policies are about have as many connections as this host has room for: some, or all of them, begin no more", "find out who opens so many: `grapevine traffic`; more room: `sysctl net.netfilter.nf_conntrack_max`, of which half is for these"},
	{PolicyUnread, Fault, "this host does not understand a part of a policy, of a newer agent, or a label of a container, and denies it", "upgrade this host's agent, or mend the label"},
	{PolicyLost, Warning, "of two edits of a policy on two hosts at the same time one was lost", "`grapevine policy get` shows both: apply what it is to be"},
	{PolicyKeysDiffer, Warning, "hosts go by different keys for policies, and so may not enforce the same", "set GRAPEVINE_POLICY_KEYS to the same on every host"},
	{NetworksApart, Fault, "a host of an older agent keeps networks apart that are one (`grapevine network join`)", "upgrade its agent"},
	{NetworkWordLost, Warning, "two hosts said at the same time what a network is one with, and one of the two was lost", "say again what it is to be: `grapevine network join`, `isolate` or `global`"},
	{NamesFull, Warning, "a container that reaches others by name has as many addresses open as it may, or asks for new ones too fast: new names fail there", "find out what it asks for (`grapevine capture NAME --port 53`); one that needs so many is to have prefixes, or `internet`"},
	{InterfaceGone, Fault, "somebody on this host has deleted a container's interface", "`docker restart` it"},
	{ContainerUnstarted, Fault, "a container that was to start with Docker could not", "`docker start` it; the agent tries again by itself"},
}

// Severity of a kind; what is not known is a Fault.
func (c Code) Severity() Severity {
	for _, k := range Kinds {
		if k.Code == c {
			return k.Severity
		}
	}
	return Fault
}
