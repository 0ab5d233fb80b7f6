// Package api is the agent's own interface, for the command line and for
// monitoring: HTTP and JSON over a unix socket that only root can open. The
// types here are the bodies; server and client share them, and the command's
// `-o json` prints them as they are.
package api

import (
	"fmt"
	"net/netip"
	"time"
)

// Status says how the agent and its cluster are. All is well if there are no
// Problems.
type Status struct {
	Version  string     `json:"version"`
	Node     string     `json:"node"`
	Name     string     `json:"name"`
	Cluster  string     `json:"cluster"` // empty: not part of one yet
	VTEP     netip.Addr `json:"vtep"`
	Since    time.Time  `json:"since"` // start of the agent
	Problems []Problem  `json:"problems"`
	// Notes are what containers of this host have done to themselves, which is no fault of the host's.
	Notes []string `json:"notes,omitempty"`

	Hosts     Count `json:"hosts"` // alive of known ones, this one included
	Networks  int   `json:"networks"`
	Endpoints Count `json:"endpoints"` // here of all
	// Driver is what Docker on this host knows the drivers by: "grapevine:latest", "grapevine".
	Driver   string `json:"driver,omitempty"`
	OVS      string `json:"ovs"`      // host or embedded
	Datapath string `json:"datapath"` // kernel or userspace
	// Kernel is what the kernel's datapath counts, if that is the one.
	Kernel    *KernelDatapath `json:"kernelDatapath,omitempty"`
	FastPath  string          `json:"fastPath"` // on or direct, or "off: ", "rests: " or "on, not direct: " and why
	MTU       int             `json:"mtu"`      // of the underlay, bytes
	VXLANPort uint16          `json:"vxlanPort"`
	// Aside are files of hosts that this one was before the cluster had forgotten them.
	Aside []string `json:"aside,omitempty"`
	// Refused counts gossip messages that were not accepted, by reason.
	Refused map[string]uint64 `json:"refused,omitempty"`
	// Foreign counts VXLAN packets that were dropped since no host of the cluster sent them:
	// as long as the switch has its flows, or in userspace the tunnel's device is there.
	Foreign uint64   `json:"foreign"`
	Names   Resolver `json:"names"`
	// Shared are the names that containers of more than one host answer to.
	Shared []SharedName `json:"shared,omitempty"`
	// Leases are the addresses that this host has handed out.
	Leases  int     `json:"leases"`
	Process Process `json:"process"`
}

// KernelDatapath is what Open vSwitch's datapath in the kernel counts since it was made, for all bridges of the host.
type KernelDatapath struct {
	Hit    uint64 `json:"hit"`    // packets that found a flow
	Missed uint64 `json:"missed"` // packets that asked ovs-vswitchd for one
	Lost   uint64 `json:"lost"`   // of those, which ovs-vswitchd did not take in time
	Flows  uint64 `json:"flows"`
	Masks  uint32 `json:"masks"`
}

// SharedName is a name on a network, and the hosts whose containers answer to it.
type SharedName struct {
	Network string   `json:"network"`
	Name    string   `json:"name"`
	Hosts   []string `json:"hosts"`
}

// Process is what the agent itself uses.
type Process struct {
	Goroutines int    `json:"goroutines"`
	Heap       uint64 `json:"heap"` // bytes, with what is not collected yet
}

// Resolver counts the questions for names since the start of the agent: Queries are
// all of them, the others what became of them.
type Resolver struct {
	Queries   uint64 `json:"queries"`
	Answered  uint64 `json:"answered"`  // here
	Forwarded uint64 `json:"forwarded"` // by another server
	Failed    uint64 `json:"failed"`    // no other server answered
	Refused   uint64 `json:"refused"`
	// Inside is how many containers it serves in their own network namespaces,
	// Outside how many it cannot: those depend on what Docker's resolver passes on.
	Inside  int `json:"inside"`
	Outside int `json:"outside"`
}

// Count is some of all.
type Count struct {
	Part int `json:"part"`
	All  int `json:"all"`
}

// Problem is something that is not as it should be, and what to do about it.
type Problem struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	What     string   `json:"what"`
	Do       string   `json:"do"`
}

// Node is a host of the cluster.
type Node struct {
	ID       string         `json:"id"`
	Name     string         `json:"name"`
	VTEP     netip.Addr     `json:"vtep"`
	Gossip   netip.AddrPort `json:"gossip"`
	Alive    bool           `json:"alive"`
	Doubtful bool           `json:"doubtful"` // alive, but silent for a moment: it may be dead
	Self     bool           `json:"self"`
	// Path is whether containers' packets pass to and from it: "ok", what is lost, or empty: it is too early to say,
	// or it does not answer.
	Path     string `json:"path,omitempty"`
	Version  string `json:"version"`
	Datapath string `json:"datapath"`
	MTU      int    `json:"mtu"`
	// VXLANPort is the UDP port of its VTEP.
	VXLANPort uint16 `json:"vxlanPort"`
	// CIDR4 and CIDR6 are its settings of these names; of CIDR6 there need be none.
	CIDR4 netip.Prefix `json:"cidr4,omitzero"`
	CIDR6 netip.Prefix `json:"cidr6,omitzero"`
}

// Network is a network of the cluster.
type Network struct {
	Name      string   `json:"name"`
	VNID      uint32   `json:"vnid"`
	Subnets   []Subnet `json:"subnets"`
	Hosts     []string `json:"hosts"` // names of the hosts with containers on it
	Endpoints int      `json:"endpoints"`
	Internal  bool     `json:"internal"`
	MTU       int      `json:"mtu,omitempty"` // of its containers, 0: from the underlay
	Removed   bool     `json:"removed"`       // goes when no host uses it any more
	Here      bool     `json:"here"`          // this host's Docker has it, as the cluster does
	// Notes say which hosts cannot take its subnets, and why.
	Notes []string `json:"notes,omitempty"`
}

// Subnet is a prefix of a network.
type Subnet struct {
	Prefix  netip.Prefix `json:"prefix"`
	Gateway netip.Addr   `json:"gateway"`
}

// Endpoint is a container's place in a network.
type Endpoint struct {
	ID        string       `json:"id"`
	Network   string       `json:"network"`
	Name      string       `json:"name"`      // container's name, empty until learnt
	Container string       `json:"container"` // container's ID, empty until learnt
	Addrs     []netip.Addr `json:"addrs"`
	LinkLocal []netip.Addr `json:"link_local,omitempty"` // those of --link-local-ip
	MAC       string       `json:"mac"`
	Host      string       `json:"host"` // name of the host
	Here      bool         `json:"here"` // on the host that is asked
	// Ports are those published for it, as far as they are of the host that is asked.
	Ports []Port `json:"ports,omitempty"`
	// Aliases are the names that it answers to beside its own.
	Aliases []string `json:"aliases,omitempty"`
	// Shared are the names of this endpoint that containers of other hosts answer to as well.
	Shared []string `json:"shared,omitempty"`
}

// Port is a published port.
type Port struct {
	Proto string `json:"proto"` // "tcp", "udp" or "sctp"
	// Host is what is connected to; of the unspecified address, any of the host's.
	Host      netip.AddrPort `json:"host"`
	Container uint16         `json:"container"`
	// More ports behind the two lead there as well.
	More uint16 `json:"more,omitempty"`
}

// String is the port as `docker ps` shows it: "0.0.0.0:8080->80/tcp", or
// "0.0.0.0:8080-8089->80-89/tcp".
func (p Port) String() string {
	if p.More == 0 {
		return fmt.Sprintf("%s->%d/%s", p.Host, p.Container, p.Proto)
	}
	return fmt.Sprintf("%s-%d->%d-%d/%s", p.Host, p.Host.Port()+p.More, p.Container, p.Container+p.More, p.Proto)
}

// Pool says who owns the addresses of a prefix: a network's, or, with Network
// empty, the cluster's own.
type Pool struct {
	Network string       `json:"network"`
	Prefix  netip.Prefix `json:"prefix"`
	Shares  []Share      `json:"shares"` // in address order of their first block
}

// Share is what one host owns of a pool.
type Share struct {
	Host   string         `json:"host"` // name; the node ID if the name is not known
	Node   string         `json:"node"`
	Blocks []netip.Prefix `json:"blocks"` // in address order
	// Part of the pool, 0 to 1.
	Part float64 `json:"part"`
}

// Flow is an OpenFlow flow of this host's switch, with its counters.
type Flow struct {
	Table    uint8  `json:"table"`
	Stage    string `json:"stage"`
	Priority uint16 `json:"priority"`
	Match    string `json:"match"`
	Actions  string `json:"actions"`
	Object   string `json:"object"` // what the flow is there for; empty: its stage
	Cookie   uint64 `json:"cookie"`
	Packets  uint64 `json:"packets"`
	Bytes    uint64 `json:"bytes"`
}

// Diagnosis is what `grapevine doctor` found: what is wrong comes first.
type Diagnosis struct {
	Version string  `json:"version"`
	Name    string  `json:"name"`  // of the host that was asked
	Agent   bool    `json:"agent"` // it runs: the other hosts have been asked too
	Checks  []Check `json:"checks"`
}

// Verdict is what came of a check.
type Verdict string

// The verdicts. Unknown: it could not be found out, and What says why.
const (
	OK      Verdict = "ok"
	Wrong   Verdict = "wrong"
	Unknown Verdict = "unknown"
)

// Check is one thing that was looked at.
type Check struct {
	Subject string  `json:"check"` // "vxlan", "firewall", ...
	Verdict Verdict `json:"verdict"`
	// Code is that of the problem, if status names it as well.
	Code Code   `json:"code,omitempty"`
	What string `json:"what"`
	// Do is what to do; with OK it is advice.
	Do string `json:"do,omitempty"`
}

// Ping is what came back from another host, each way once.
type Ping struct {
	Host string     `json:"host"`
	VTEP netip.Addr `json:"vtep"`
	// Error says why the host could not be asked to answer; then there is nothing else.
	Error    string `json:"error,omitempty"`
	Underlay Echo   `json:"underlay"` // UDP between the agents
	Tunnel   Echo   `json:"tunnel"`   // a small packet, the way that containers' packets go
	Full     Echo   `json:"full"`     // the largest that containers send
}

// Echo is a packet there and back.
type Echo struct {
	Bytes        int     `json:"bytes"`
	Milliseconds float64 `json:"milliseconds,omitempty"`
	// Lost says what is known of one that did not come back.
	Lost string `json:"lost,omitempty"`
}

// JoinCommand has the lines that add a host to the cluster. They contain the
// gossip key.
type JoinCommand struct {
	Plugin  string `json:"plugin"`
	Service string `json:"service"`
}

// LeaveRequest takes this host out of the cluster. Force does so even though
// containers are attached: they lose their network.
type LeaveRequest struct {
	Force bool `json:"force"`
}

// JoinRequest brings a host back that has left.
type JoinRequest struct{}

// ForgetRequest names dead hosts (by name or node ID) whose addresses this host
// takes over.
type ForgetRequest struct {
	Hosts []string `json:"hosts"`
}

// Key is a gossip key that some hosts have.
type Key struct {
	ID    string `json:"id"`    // a fingerprint: it does not give the key away
	On    int    `json:"on"`    // hosts that have it
	Using int    `json:"using"` // hosts that encrypt with it
	Hosts int    `json:"hosts"` // all hosts, those that do not answer as well
}

// KeysRequest changes the gossip keys of all hosts. Key is a fingerprint or the
// key itself; empty, with install, a new one is made.
type KeysRequest struct {
	Verb string `json:"verb"` // "install", "use" or "remove"
	Key  string `json:"key,omitempty"`
}

// FastPathRequest switches this host's fast path.
type FastPathRequest struct {
	Mode string `json:"mode"` // auto, on, off or direct
}

// Done says in words what was done.
type Done struct {
	Text string `json:"text"`
}
