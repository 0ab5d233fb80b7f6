package api

import (
	"context"
	"net/http"
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

	Hosts     Count `json:"hosts"`          // alive of known ones, this one included
	Tried     Count `json:"tried,omitzero"` // to and from how many of the other hosts that are alive packets were just tried, and pass
	Networks  int   `json:"networks"`
	Endpoints Count `json:"endpoints"` // here of all
	// Driver is what Docker on this host knows the drivers by: "grapevine:latest", "grapevine".
	Driver   string `json:"driver,omitempty"`
	OVS      string `json:"ovs"`      // host or embedded
	Datapath string `json:"datapath"` // kernel or userspace
	// Kernel is what the kernel's datapath counts, if that is the one.
	Kernel   *KernelDatapath `json:"kernelDatapath,omitempty"`
	FastPath string          `json:"fastPath"` // on or direct, or "off: ", "rests: ", "on, not direct: " or "direct, but cut at a bridge: " and why
	// Encryption is how what goes to other hosts is encrypted, and by what; empty: it is not.
	Encryption string `json:"encryption,omitempty"`
	MTU        int    `json:"mtu"` // of the underlay, bytes
	VXLANPort  uint16 `json:"vxlanPort"`
	// Encap is how what goes to other hosts is wrapped, by VXLANPort; empty: in VXLAN.
	Encap string `json:"encap,omitempty"`
	// Aside are files of hosts that this one was before the cluster had forgotten them.
	Aside []string `json:"aside,omitempty"`
	// Refused counts gossip messages that were not accepted, by reason.
	Refused map[string]uint64 `json:"refused,omitempty"`
	// Foreign counts VXLAN packets that were dropped since no host of the cluster sent them:
	// as long as the switch has its flows, or in userspace the tunnel's device is there.
	Foreign uint64   `json:"foreign"`
	Names   Resolver `json:"names"`
	// Edge is there on a host without Docker.
	Edge *Edge `json:"edge,omitempty"`
	// Shared are the names that containers of more than one host answer to.
	Shared []SharedName `json:"shared,omitempty"`
	// Leases are the addresses that this host has handed out.
	Leases  int     `json:"leases"`
	Process Process `json:"process"`
}

// Edge is what a host without Docker reaches.
type Edge struct {
	Networks []string `json:"networks"` // of those that it is told, the ones that there are
	// Server is where its programs can ask for containers by name; Split says that systemd-resolved asks there.
	Server netip.Addr `json:"server"`
	Split  bool       `json:"split"`
	// First is the first nameserver in /etc/resolv.conf; "": there is none.
	First string `json:"first,omitempty"`
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

// Status and the others call the handler of the same name.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return call[Status](ctx, c, http.MethodGet, "status", nil)
}

var _ = resource(Handlers.addStatus, func(h Handlers, to *Handlers) { to.Status = h.Status })

func (h Handlers) addStatus(mux *routes) {
	get(mux, "/v1/status", graded(h.Status))
}

// graded adds to problems what follows from their codes.
func graded(status func(context.Context) (Status, error)) func(context.Context) (Status, error) {
	if status == nil {
		return nil
	}
	return func(ctx context.Context) (Status, error) {
		s, err := status(ctx)
		for i, p := range s.Problems {
			s.Problems[i].Severity = p.Code.Severity()
		}
		return s, err
	}
}
