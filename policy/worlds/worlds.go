// Package worlds makes of a snapshot of the cluster what policies are about: networks for
// namespaces, endpoints for pods, and the policies themselves, parsed. It follows one snapshot
// after the other, and makes anew only what changed. Where there are no policies it makes nothing.
package worlds

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/policy"
	"github.com/grapevine-net/grapevine/policy/k8s"
	"github.com/grapevine-net/grapevine/policy/plain"
)

// HostLabel is a label that each endpoint has: the name of its host. Who signs the endpoint's record
// says it, and no container's own label does.
const HostLabel = "grapevine.io/host"

// awaitedLabel is one that each endpoint has whose labels are not known: whether nothing passes until they are.
const awaitedLabel = "grapevine.io/awaited"

// World is what a snapshot says.
type World struct {
	policy.World
	// Records are those of the policies, as they are in Policies.
	Records []cluster.Record
	// Unread are the policies that this agent cannot read.
	Unread []Unread
	// Signed says that there are policies, and that operators have signed some.
	Signed bool
	// Fenced says that an EgressNetworkPolicy is among the policies.
	Fenced bool
	// Plain says that options of networks or labels of containers are among the policies.
	Plain bool
}

// Level is up to which level a host has to enforce policies, to enforce these.
func (w World) Level() uint8 {
	switch {
	case w.Signed:
		return cluster.EnforcesV4
	case w.Fenced:
		return cluster.EnforcesV3
	case w.Plain:
		return cluster.EnforcesV2
	case len(w.Records) > 0:
		return cluster.EnforcesV1
	}
	return 0
}

// Unread is a policy that this agent cannot read, or parts of it: a newer one wrote it. What is not read
// is taken for what is no more open, whatever it says.
type Unread struct {
	Policy cluster.Policy
	Err    error
}

// Follower makes Worlds of one host's snapshots. The zero value has seen none.
type Follower struct {
	snap      *cluster.Snapshot
	world     World
	parsed    map[cluster.Key]parsed
	names     map[cluster.NodeID]string // of hosts
	endpoints map[string]policy.Endpoint
	plain     plain.Maker
	awaited   bool // some endpoint's labels are: see cluster.Endpoint
	always    bool // a world is made even where there are no policies
}

type parsed struct {
	version cluster.Version
	policy  policy.Policy
	err     error
}

// Of is the world of one snapshot.
func Of(snap *cluster.Snapshot, self cluster.NodeID) World {
	w, _ := new(Follower).Follow(snap, self)
	return w
}

// Whole is the world of one snapshot, whether there are policies or not.
func Whole(snap *cluster.Snapshot, self cluster.NodeID) World {
	w, _ := (&Follower{always: true}).Follow(snap, self)
	return w
}

// Follow returns the world of a snapshot, and whether it may be another one than that of the snapshot before. The
// world is not to be changed.
func (f *Follower) Follow(snap *cluster.Snapshot, self cluster.NodeID) (w World, changed bool) {
	keys, known := snap.Since(f.snap)
	first := f.snap == nil
	f.snap = snap
	if known && !f.concerned(snap, self, keys) {
		return f.world, false
	}
	had := f.any()
	f.read(snap)
	isolated, marked, labelled, awaited := asking(snap)
	f.awaited = awaited
	if f.world.Plain = len(isolated) > 0 || labelled; !f.any() {
		f.names, f.endpoints = nil, nil
		return f.world, had || first
	}
	if names := namesOf(snap); !known || f.endpoints == nil || !maps.Equal(names, f.names) {
		f.names, f.endpoints = names, map[string]policy.Endpoint{}
	}
	f.world.Networks, f.world.Ranges, f.world.Endpoints = nil, nil, nil
	for n := range cluster.All[cluster.Network](snap) {
		if !n.Provisional() {
			f.world.Networks = append(f.world.Networks, policy.Network{Name: n.Name, Labels: n.Labels})
		} else {
			f.world.Policies = append(f.world.Policies, nameless(n.Name))
		}
	}
	for s := range cluster.All[cluster.Subnet](snap) {
		f.world.Ranges = append(f.world.Ranges, policy.Range{Network: s.Network, Prefix: s.Prefix})
	}
	now := make(map[string]policy.Endpoint, len(f.endpoints))
	for e := range cluster.All[cluster.Endpoint](snap) {
		of, ok := f.endpoints[e.ID]
		if !ok {
			of = f.endpoint(e, self)
		}
		now[e.ID] = of
		f.world.Endpoints = append(f.world.Endpoints, of)
	}
	f.endpoints = now
	f.world.fence()
	f.world.Policies = append(f.world.Policies, f.plain.Policies(isolated, marked, f.world.Endpoints)...)
	if f.awaited {
		f.world.Policies = append(f.world.Policies, plain.Awaited(awaitedLabel))
	}
	f.world.Endpoints = apart(f.world.Endpoints)
	return f.world, true
}

// any reports whether there are any policies.
func (f *Follower) any() bool {
	return f.always || len(f.world.Records) > 0 || f.world.Plain || f.awaited
}

// asking are the networks that are isolated, those on which labels may ask for policies, and whether any do, or are awaited.
func asking(snap *cluster.Snapshot) (isolated, marked []string, labelled, awaited bool) {
	for n := range cluster.All[cluster.Network](snap) {
		if n.Isolated() {
			isolated = append(isolated, n.Name)
		}
		if n.Labelled {
			marked, labelled = append(marked, n.Name), true
		}
	}
	for e := range cluster.All[cluster.Endpoint](snap) {
		labelled, awaited = labelled || plain.Asks(e.Labels), awaited || e.Awaited
	}
	return isolated, marked, labelled, awaited
}

// concerned reports whether changed records change the world. It forgets the endpoints among them that
// are not what they were.
func (f *Follower) concerned(snap *cluster.Snapshot, self cluster.NodeID, keys []cluster.Key) (yes bool) {
	for _, k := range keys {
		switch k.Kind {
		case cluster.KindPolicy, cluster.KindSignedPolicy:
			yes = true
		case cluster.KindNetwork:
			n, _ := cluster.Get[cluster.Network](snap, k.ID)
			yes = yes || f.any() || n.Isolated() || n.Labelled
		case cluster.KindSubnet:
			yes = yes || f.any()
		case cluster.KindNode:
			yes = yes || f.any() && !maps.Equal(f.names, namesOf(snap))
		case cluster.KindEndpoint:
			was, had := f.endpoints[k.ID]
			e, live := cluster.Get[cluster.Endpoint](snap, k.ID)
			if !f.any() {
				yes = yes || plain.Asks(e.Labels) || e.Awaited
				continue
			}
			if live && had && equal(was, f.endpoint(e, self)) {
				continue
			}
			yes = yes || live || had
			delete(f.endpoints, k.ID)
		}
	}
	return yes
}

func equal(a, b policy.Endpoint) bool {
	return a.ID == b.ID && a.Network == b.Network && a.Host == b.Host && a.Local == b.Local && a.Known == b.Known &&
		slices.Equal(a.Addrs, b.Addrs) && maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Ports, b.Ports)
}

func namesOf(snap *cluster.Snapshot) map[cluster.NodeID]string {
	names := map[cluster.NodeID]string{}
	for n := range cluster.All[cluster.Node](snap) {
		names[n.ID] = n.Name
	}
	return names
}

// read parses the policies.
func (f *Follower) read(snap *cluster.Snapshot) {
	before := f.parsed
	f.parsed, f.world = nil, World{}
	for rec, p := range cluster.PoliciesOf(snap).InForce() {
		one, known := before[rec.Key]
		if !known || one.version != rec.Version {
			one = parse(p, rec.Version)
		}
		if f.parsed == nil {
			f.parsed = map[cluster.Key]parsed{}
		}
		f.parsed[rec.Key] = one
		if one.err != nil {
			f.world.Unread = append(f.world.Unread, Unread{p, one.err})
		}
		f.world.Policies = append(f.world.Policies, one.policy)
		f.world.Records = append(f.world.Records, rec)
	}
	for range cluster.All[cluster.SignedPolicy](snap) {
		f.world.Signed = len(f.world.Records) > 0
		break
	}
}

func parse(p cluster.Policy, v cluster.Version) parsed {
	one := parsed{version: v}
	one.policy, one.err = k8s.Stored([]byte(p.Text))
	switch {
	case one.policy.Kind == 0:
		one.policy = closed(p)
	case KeyOf(one.policy.Key) != p.Key():
		one.err = fmt.Errorf("its text is of %s %s", one.policy.Kind, one.policy.Key)
		one.policy = closed(p)
	}
	one.policy.Author, one.policy.Version = p.Author, fmt.Sprint(v.Counter)
	return one
}

// KeyOf is the key of a policy's record.
func KeyOf(k policy.Key) cluster.Key { return RecordOf(k).Key() }

// RecordOf is a policy's record, but for what is in it.
func RecordOf(k policy.Key) cluster.Policy {
	switch k.Kind {
	case policy.ClusterNetworkPolicy:
		return cluster.Policy{Scope: cluster.ScopeCluster, Name: k.Name}
	case policy.EgressNetworkPolicy:
		return cluster.Policy{Scope: cluster.ScopeNetwork, Network: k.Network, Name: cluster.EgressPolicyName}
	}
	return cluster.Policy{Scope: cluster.ScopeNetwork, Network: k.Network, Name: k.Name}
}

// any selects all endpoints of all networks.
var anyone = policy.Set{}

// closed stands for a policy of which nothing can be read: whatever it isolates or denies, this does as well.
func closed(p cluster.Policy) policy.Policy {
	if p.Scope == cluster.ScopeNetwork {
		out := isolation(p.Network)
		out.Name = p.Name
		return out
	}
	deny := []policy.Rule{{Name: "cannot be read", Action: policy.Drop, AnyPeer: true, AnyPort: true}}
	return policy.Policy{
		Key:  policy.Key{Kind: policy.ClusterNetworkPolicy, Name: p.Name},
		Tier: policy.Admin, Subject: anyone, Ingress: deny, Egress: deny,
	}
}

// isolation lets nothing reach the endpoints of a network, nor them anything.
func isolation(network string) policy.Policy {
	return policy.Policy{
		Key: policy.Key{Kind: policy.NetworkPolicy, Network: network}, Subject: policy.Set{Network: network},
		IsolatesIngress: true, IsolatesEgress: true,
	}
}

// nameless is for a network of which Docker has not told the name yet, as it does within milliseconds: policies
// may be for it.
func nameless(network string) policy.Policy {
	p := isolation(network)
	p.Name = "its-name-is-not-known-yet"
	return p
}

// endpoint is what policies know of an endpoint.
func (f *Follower) endpoint(e cluster.Endpoint, self cluster.NodeID) policy.Endpoint {
	out := policy.Endpoint{ID: e.ID, Network: e.Network, Host: f.names[e.Host], Local: e.Host == self, Known: e.Labelled}
	for _, a := range e.Addrs {
		if a = a.Unmap().WithZone(""); a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() && !slices.Contains(out.Addrs, a) {
			out.Addrs = append(out.Addrs, a)
		}
	}
	out.Labels = map[string]string{HostLabel: f.names[e.Host]}
	if !e.Labelled {
		out.Labels[awaitedLabel] = strconv.FormatBool(e.Awaited)
	}
	for k, v := range e.Labels {
		if k != HostLabel && k != awaitedLabel {
			out.Labels[k] = v
		}
	}
	// What cannot be read names no port: status of its host says so.
	out.Ports, _ = policy.ParsePorts(e.Labels[policy.PortsLabel])
	return out
}

// apart sees to it that no address is two endpoints'. A local one has it: its packets go there. What several others say is
// theirs, as while records are on their way, may be either's: it is one of which nothing is known.
func apart(list []policy.Endpoint) []policy.Endpoint {
	holder, twice := make(map[netip.Addr]int, len(list)), map[netip.Addr]bool{}
	for i, e := range list {
		for _, a := range e.Addrs {
			other, taken := holder[a]
			switch {
			case !taken || e.Local && !list[other].Local:
				holder[a] = i
			case !list[other].Local:
				twice[a] = true
			}
			if taken && !twice[a] {
				twice[a] = false // it is to be taken from whom it is not
			}
		}
	}
	if len(twice) == 0 {
		return list
	}
	list = slices.Clone(list)
	for a, nobody := range twice {
		if list[holder[a]].Local {
			nobody = false
		}
		for i := range list {
			if at := slices.Index(list[i].Addrs, a); at >= 0 && (nobody || holder[a] != i) {
				list[i].Addrs = slices.Delete(slices.Clone(list[i].Addrs), at, at+1)
			}
		}
		if nobody {
			list = append(list, policy.Endpoint{ID: a.String(), Network: list[holder[a]].Network, Addrs: []netip.Addr{a}})
		}
	}
	slices.SortFunc(list, func(a, b policy.Endpoint) int { return strings.Compare(a.ID, b.ID) })
	return list
}

// Endpoints are those of a snapshot, whether there are policies or not.
func Endpoints(snap *cluster.Snapshot) (list []policy.Endpoint) {
	f := Follower{names: namesOf(snap)}
	for e := range cluster.All[cluster.Endpoint](snap) {
		list = append(list, f.endpoint(e, ""))
	}
	return list
}
