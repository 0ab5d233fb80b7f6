package driver

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/docker"
)

// view is what the watcher sees at one moment. The snapshot is the newest part:
// what Docker lists had its records written before.
type view struct {
	self       cluster.NodeID
	now        time.Time
	grace      time.Duration
	replicate  bool
	driver     string // local driver name, "" if not known yet
	local      map[string]localNetwork
	endpoints  map[string]localEndpoint
	networks   []docker.Network
	containers []docker.Container
	inspected  map[string]inspected // by endpoint
	snap       *cluster.Snapshot
	// missing says since when a network or endpoint of ours is not in Docker's
	// lists. They leave those before Docker calls us to remove them.
	missing map[string]time.Time
	// deleteLost is when Docker deleted an endpoint without being able to say which, or this
	// agent could not store that one goes.
	deleteLost time.Time
	// removeFailed is when Docker failed to remove a network, and so may list it no more, or
	// this agent could not store that one goes.
	removeFailed time.Time
	// earlier are the endpoints that the agent before this one left.
	earlier map[string]bool
	// dockerBegan is when Docker was last started; zero: before this agent.
	dockerBegan time.Time
	// unplugged are the missing endpoints that were joined and have no interface: their host was off.
	unplugged map[string]bool
	// orphaned says since when Docker has what this agent does not know (orphans), removed
	// which networks it does not know because Docker has called for their end.
	orphaned map[string]time.Time
	removed  map[string]bool
	renewed  bool // Config.Renewed
	settled  bool // what the snapshot has not is not in the cluster
	// remade are the networks, by name, that were removed in Docker to be made as the cluster has
	// them, and what it had then (likeness).
	remade map[string]string
	// outdated says, by Docker's ID, in what a local network is not what the cluster has.
	outdated map[string]string
	// barred are the subnets that this host cannot take, and why.
	barred map[netip.Prefix]error
}

// plan is what the watcher shall do. Every item is checked again when it is done.
type plan struct {
	adopt   []docker.Network // that this agent does not know
	learn   []docker.Network // local networks whose name Docker tells
	lost    []string         // local networks that Docker has forgotten
	unseen  map[string]bool  // of lost, those that a user has removed
	lostEPs []string         // local endpoints likewise
	uses    []string         // IDs of local networks to note as used, and to announce again if need be
	unused  []string         // IDs of local networks that are not used any more
	names   []cluster.Endpoint
	retire  []string          // names of networks to delete from the cluster
	create  []docker.Network  // in this host's Docker
	remove  []docker.Network  // in whose place there is a user's
	vanish  []docker.Network  // that are gone from the cluster
	old     []cluster.Subnet  // of networks made anew, which nobody uses any more
	remade  map[string]string // of vanish, by ID, those that are to come back, and as what (likeness)
	// outdated are the networks that are from before they were made anew, and stay for now.
	outdated []Outdated
	untold   []Untold
	// untellable are local networks, by Docker's ID, whose names can be nobody's in the cluster.
	untellable []string
	namesakes  []Namesake
	barred     []Barred
	// unlabelled are containers whose labels do not fit into their endpoints' records.
	unlabelled []Unlabelled
	labelled   []string // networks of such as ask for something, to be marked
	encrypted  []string // networks that are so for who made them here, and not in the cluster
}

// decide is the whole of the watcher's rules. It is pure.
func decide(v view) plan {
	var p plan
	v.outdated = v.seeOutdated()
	used := v.usedNetworks()
	usedNames, names := map[string]bool{}, v.localNames()
	for id, n := range v.local {
		usedNames[n.Name] = usedNames[n.Name] || used[id] && n.Conflict == ""
	}
	byID := map[string]docker.Network{}
	for _, n := range v.networks {
		byID[n.ID] = n
	}
	for id, n := range v.local {
		dn, listed := byID[id]
		if listed && n.Replica && v.inhabited(id) && v.awaited(dn.Name) {
			p.barred = append(p.barred, v.barring(dn))
		}
		switch {
		case !listed && v.lostNetwork(n):
			p.lost = append(p.lost, id)
			if v.removedUnseen(n) {
				if p.unseen == nil {
					p.unseen = map[string]bool{}
				}
				p.unseen[id] = true
			}
		case listed && !n.Learnt && cluster.TellableName(nameOf(dn)) != nil:
			p.untellable = append(p.untellable, id)
		case listed && !n.Learnt:
			p.learn = append(p.learn, dn)
		case listed && n.Replica && !used[id] && (names[n.Name] > 1 || v.awaited(dn.Name)):
			p.remove = append(p.remove, dn) // a user made it at the same moment, or Swarm is to make it
		case listed && n.Conflict == "":
			v.decideUse(&p, n, dn, usedNames[n.Name])
			v.decideOutdated(&p, n, dn, used[id])
		}
	}
	v.decideAdopt(&p, used, names)
	v.decideEndpoints(&p)
	v.decideAsking(&p)
	v.decideCluster(&p, names)
	p.sort()
	return p
}

// localNames returns how many local networks have each of the cluster's names, which in Docker
// may be others (-o name=).
func (v view) localNames() map[string]int {
	names := map[string]int{}
	for _, n := range v.local {
		if n.Conflict == "" {
			names[n.Name]++
		}
	}
	return names
}

// missingFor reports whether something is not in Docker's lists for longer than t.
func (v view) missingFor(id string, t time.Duration) bool {
	since, missing := v.missing[id]
	return missing && v.now.Sub(since) > t
}

// forgottenAfter is how long something is missing before it is taken for what Docker has
// forgotten at a moment at which it may have. Otherwise it is view.grace, which is longer than
// Docker takes to list something, or to call us to remove it.
const forgottenAfter = 3 * time.Second

// forgotten reports whether Docker has forgotten, at a moment not long ago, what there was before.
func (v view) forgotten(id string, created, moment time.Time) bool {
	return created.Before(moment) && v.now.Sub(moment) < v.grace && v.missingFor(id, forgottenAfter)
}

// lostNetwork reports whether Docker has no such network any more.
func (v view) lostNetwork(n localNetwork) bool {
	return v.removedUnseen(n) || v.missingFor(n.ID, v.grace) || v.forgotten(n.ID, n.Created, v.removeFailed) || v.forgotten(n.ID, n.Created, v.dockerBegan)
}

// removedUnseen reports whether a user has removed a network while no agent ran: it was in the list, and the
// same Docker has it no more. One whose files were wiped, or on a new disk, has other networks of its own.
func (v view) removedUnseen(n localNetwork) bool {
	if !v.earlier[n.ID] || n.Store == "" || n.Store != v.store() || !v.missingFor(n.ID, forgottenAfter) {
		return false
	}
	rec, live := cluster.Get[cluster.Network](v.snap, n.Name)
	return live && rec.Made == n.Made
}

// store tells Docker's stores of networks apart: each has a network "none" of its own, which is made
// with it, and stays.
func (v view) store() string {
	for _, n := range v.networks {
		if n.Name == "none" && n.Driver == "null" {
			return n.ID
		}
	}
	return ""
}

// lostEndpoint is lostNetwork for an endpoint.
func (v view) lostEndpoint(e localEndpoint) bool {
	return v.missingFor(e.ID, v.grace) || v.unplugged[e.ID] && v.missingFor(e.ID, forgottenAfter) ||
		v.forgotten(e.ID, e.Created, v.deleteLost) || v.forgotten(e.ID, e.Created, v.dockerBegan)
}

// stillMissing returns what is missing of ours in Docker's lists, and since when,
// given what was before. Of a container that has ended Docker may list an endpoint that it has
// no more, as after its disk took no write: if it is bare, which is to have no interface, it
// counts as missing, until Docker's network says otherwise (attach).
func (v view) stillMissing(before map[string]time.Time, bare func(id string) bool) map[string]time.Time {
	listed := map[string]bool{}
	for _, n := range v.networks {
		listed[n.ID] = true
	}
	for _, c := range v.containers {
		for _, at := range c.Networks {
			listed[at.EndpointID] = !ended(c) || !bare(at.EndpointID)
		}
	}
	missing := map[string]time.Time{}
	note := func(id string) {
		if since, known := before[id]; known && !listed[id] {
			missing[id] = since
		} else if !listed[id] {
			missing[id] = v.now
		}
	}
	for id := range v.local {
		note(id)
	}
	for id := range v.endpoints {
		note(id)
	}
	return missing
}

// attach adds to the containers the endpoints that were missing, each of one container of a list.
func (v *view) attach(list []docker.Container) {
	for _, c := range list {
		id := c.Networks[0].EndpointID
		if _, missing := v.missing[id]; !missing {
			continue
		}
		delete(v.missing, id)
		i := slices.IndexFunc(v.containers, func(listed docker.Container) bool { return listed.ID == c.ID })
		if i < 0 {
			v.containers = append(v.containers, c)
			continue
		}
		at := &v.containers[i].Networks
		*at = append(slices.DeleteFunc(*at, func(a docker.Attachment) bool {
			return a.EndpointID == id || a.EndpointID == "" && (a.NetworkID == c.Networks[0].NetworkID || a.Network == c.Networks[0].Network)
		}), c.Networks[0])
	}
}

// usedNetworks returns the IDs of the local networks that containers, running or
// not, are configured on. A container that never ran has only the network's name.
func (v view) usedNetworks() map[string]bool {
	ids := v.idsByName()
	used := map[string]bool{}
	for _, c := range v.containers {
		for _, at := range c.Networks {
			id := at.NetworkID
			if id == "" {
				id = ids[at.Network]
			}
			used[id] = true
		}
	}
	for _, e := range v.endpoints {
		used[e.Network] = true
	}
	return used
}

// awaited reports whether a task of Swarm's waits for its network of this name, which Docker makes on a host with the first task there.
// From Docker 25 on it does not while another network has the name: it tries again without a pause, for ever.
func (v view) awaited(name string) bool {
	return slices.ContainsFunc(v.containers, func(c docker.Container) bool { return v.waits(c, name) })
}

// waits reports whether a container is a task of Swarm's that waits for its network of this name.
func (v view) waits(c docker.Container, name string) bool {
	const swarmID = 25 // is how long Swarm's IDs are
	return c.State == "created" && slices.ContainsFunc(c.Networks, func(at docker.Attachment) bool {
		return at.Network == name && at.EndpointID == "" && len(at.NetworkID) == swarmID &&
			!slices.ContainsFunc(v.networks, func(n docker.Network) bool { return n.ID == at.NetworkID })
	})
}

// idsByName are Docker's networks. Of two with one name (Docker before 25) a container can be put on neither until one is
// gone, and the agent's goes: the name is the user's.
func (v view) idsByName() map[string]string {
	ids := map[string]string{}
	for _, n := range v.networks {
		if _, taken := ids[n.Name]; !taken || !v.local[n.ID].Replica {
			ids[n.Name] = n.ID
		}
	}
	return ids
}

// decideUse keeps the records of a network that has containers here, and removes
// the Docker network of one that has none and is gone from the cluster.
func (v view) decideUse(p *plan, n localNetwork, dn docker.Network, used bool) {
	rec, live := cluster.Get[cluster.Network](v.snap, n.Name)
	if used && live && n.record().Encrypted() && !rec.Encrypted() && v.outdated[n.ID] == "" {
		p.encrypted = append(p.encrypted, n.Name)
	}
	_, noted := cluster.Get[cluster.Use](v.snap, cluster.Use{Network: n.Name, Host: v.self}.Key().ID)
	switch {
	case used && (!live || !noted || !v.subnetsLive(n) && (v.outdated[n.ID] == "" || v.hasEndpoints(n.ID))):
		p.uses = append(p.uses, n.ID)
	case !used && noted && live:
		p.unused = append(p.unused, n.ID)
	case !used && !live && v.replicate && v.snap.Tombstone(cluster.Network{Name: n.Name}.Key()):
		p.vanish = append(p.vanish, dn)
	}
}

func (v view) subnetsLive(n localNetwork) bool {
	for _, prefix := range n.Prefixes {
		if _, live := cluster.Get[cluster.Subnet](v.snap, prefix.String()); !live {
			return false
		}
	}
	return true
}

// decideEndpoints finds endpoints that no container has, and what records of
// endpoints lack of their containers' names.
func (v view) decideEndpoints(p *plan) {
	owner := map[string]docker.Container{}
	type place struct{ container, network string }
	taken := map[place]bool{} // a container has one endpoint on a network
	for _, c := range v.containers {
		for _, at := range c.Networks {
			if _, missing := v.missing[at.EndpointID]; at.EndpointID != "" && !missing {
				owner[at.EndpointID] = c
				taken[place{c.ID, at.NetworkID}] = true
			}
		}
	}
	for id, e := range v.endpoints {
		c, known := owner[id]
		rec, live := cluster.Get[cluster.Endpoint](v.snap, id)
		if !known {
			// One whose container is on record was in an earlier list: what Docker lists in
			// its place is newer, and Docker did not reach us to remove this one. Nor did it
			// if it was in a list of the agent before, and is in none of this one: Docker takes an
			// endpoint out of its container after its calls, and before it makes the next one.
			listed := live && rec.Container != ""
			if v.lostEndpoint(e) || listed && (v.earlier[id] || taken[place{rec.Container, e.Network}]) {
				p.lostEPs = append(p.lostEPs, id)
			}
			continue
		}
		now, left := cluster.Endpoint{
			ID: id, Container: c.ID, Name: c.Name, LinkLocal: v.linkLocalOf(c, id, rec), Outdated: v.outdated[e.Network] != "", Unready: c.Unready, Sick: c.Sick, Paused: c.Paused,
		}.WithAliases(v.aliasesOf(c, id, rec))
		if len(left) > 0 {
			p.untold = append(p.untold, Untold{Container: c.Name, Network: v.local[e.Network].Name, Aliases: left})
		}
		v.decideLabels(p, &now, rec, c, v.local[e.Network].Name)
		if live && (rec.Container != now.Container || rec.Name != now.Name || !slices.Equal(rec.AllAliases(), now.AllAliases()) || !slices.Equal(rec.LinkLocal, now.LinkLocal) || rec.Outdated != now.Outdated || rec.Awaited != now.Awaited ||
			rec.Unready != now.Unready || rec.Sick != now.Sick || rec.Paused != now.Paused || rec.Labelled != now.Labelled || !maps.Equal(rec.Labels, now.Labels)) {
			p.names = append(p.names, now)
		}
	}
}

// decideCluster compares the cluster's networks with what Docker has here; names are localNames.
func (v view) decideCluster(p *plan, names map[string]int) {
	here := map[string]docker.Network{}
	for _, n := range v.networks {
		here[n.Name] = n
	}
	inUse := map[string]bool{}
	for u := range cluster.All[cluster.Use](v.snap) {
		inUse[u.Network] = true
	}
	for n := range cluster.All[cluster.Network](v.snap) {
		if strings.HasPrefix(n.Name, provisional) {
			continue
		}
		if n.Removed && !inUse[n.Name] {
			if idle(v.snap, n.Name) {
				p.retire = append(p.retire, n.Name)
			}
			continue
		}
		p.old = append(p.old, v.oldSubnets(n)...)
		if names[n.Name] > 0 || !v.replicate || v.awaited(n.Name) {
			continue
		}
		if other, taken := here[n.Name]; taken {
			if other.Driver != v.driver {
				p.namesakes = append(p.namesakes, Namesake{Network: n.Name, Driver: other.Driver})
			}
			continue
		}
		if dn, ok := v.replica(n); ok {
			p.create = append(p.create, dn)
		}
	}
}

// replica is the Docker network that makes n appear on this host. It has the
// subnets that came with the first one; others are reached by routing.
func (v view) replica(n cluster.Network) (docker.Network, bool) {
	out := docker.Network{
		Name: n.Name, Driver: v.driver, IPAMDriver: v.driver,
		Internal: n.Internal, Attachable: n.Attachable, Options: n.Options, Labels: n.Labels,
	}
	var own []cluster.Subnet
	for s := range cluster.All[cluster.Subnet](v.snap) {
		if s.Network == n.Name && !slices.Contains(n.Old, s.Prefix) && (len(own) == 0 || s.Home == own[0].Home) {
			own = append(own, s)
		}
	}
	slices.SortStableFunc(own, func(a, b cluster.Subnet) int {
		return cmp.Or(a.Prefix.Addr().BitLen()-b.Prefix.Addr().BitLen(), cmp.Compare(a.Place, b.Place))
	})
	for _, s := range own {
		if v.barred[s.Prefix] != nil {
			return out, false // status says why
		}
		out.Pools = append(out.Pools, poolOf(s))
	}
	return out, len(out.Pools) > 0 && v.driver != ""
}

func poolOf(s cluster.Subnet) docker.IPAM {
	p := docker.IPAM{Subnet: s.Prefix.String()}
	if s.Gateway.IsValid() && !s.Implied { // else our IPAM driver says it
		p.Gateway = s.Gateway.String()
	}
	if s.Range.IsValid() {
		p.Range = s.Range.String()
	}
	for name, addr := range s.Aux {
		if p.Aux == nil {
			p.Aux = map[string]string{}
		}
		p.Aux[name] = addr.String()
	}
	return p
}

// sort makes the plan the same for the same view.
func (p *plan) sort() {
	byID := func(a, b docker.Network) int { return strings.Compare(a.ID+a.Name, b.ID+b.Name) }
	for _, list := range [][]docker.Network{p.adopt, p.learn, p.create, p.remove, p.vanish} {
		slices.SortFunc(list, byID)
	}
	for _, list := range [][]string{p.lost, p.lostEPs, p.uses, p.unused, p.retire, p.untellable} {
		slices.Sort(list)
	}
	slices.SortFunc(p.outdated, func(a, b Outdated) int { return strings.Compare(a.Network, b.Network) })
	slices.SortFunc(p.untold, func(a, b Untold) int {
		return cmp.Or(strings.Compare(a.Container, b.Container), strings.Compare(a.Network, b.Network))
	})
	slices.SortFunc(p.barred, func(a, b Barred) int { return strings.Compare(a.Network, b.Network) })
	slices.SortFunc(p.namesakes, func(a, b Namesake) int { return strings.Compare(a.Network, b.Network) })
	slices.Sort(p.labelled)
	slices.Sort(p.encrypted)
	slices.SortFunc(p.unlabelled, func(a, b Unlabelled) int {
		return cmp.Or(strings.Compare(a.Container, b.Container), strings.Compare(a.Network, b.Network))
	})
	slices.SortFunc(p.names, func(a, b cluster.Endpoint) int { return strings.Compare(a.ID, b.ID) })
}
