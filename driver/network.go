package driver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"sync"

	"github.com/docker/go-plugins-helpers/network"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/ipam"
	"github.com/grapevine-net/grapevine/replica"
)

// networks makes networks, and takes up those that are there.
type networks struct {
	core    *core
	refused map[string]refusal // networks that cannot be adopted, by Docker's ID
	taking  sync.Mutex         // held while a former network is taken up; taken before mu
}

// CreateNetwork is Driver.CreateNetwork.
func (d *networks) CreateNetwork(ctx context.Context, r *network.CreateNetworkRequest) (*Empty, error) {
	if r.NetworkID == "" {
		return nil, errors.New("network ID is empty")
	}
	o, err := parseOptions(r.Options)
	if err != nil {
		return nil, err
	}
	if err := o.fitsEncap(d.core.cfg.Encap); err != nil {
		return nil, err
	}
	pools, err := parsePools(r, o)
	if err != nil {
		return nil, err
	}
	if err := d.fitsIPv6(pools, o); err != nil {
		return nil, err
	}
	for _, p := range pools {
		// Again: the reservation may be gone, if a second creation with the same
		// subnet failed meanwhile and released it.
		if err := d.core.alloc.Pool(ctx, ipam.PoolID{Prefix: p.Prefix}, 0); err != nil {
			return nil, err
		}
	}
	own, err := d.ownCreation(pools[0].Prefix, o)
	if err != nil {
		return nil, err
	}
	if own == nil && !d.core.has(r.NetworkID) { // of other hosts' the containers here are named, which have no delay
		if err := d.core.canLimit(o.limits); err != nil {
			return nil, fmt.Errorf("a network with delay, jitter or loss: %w", err)
		}
	}
	name, learnt := d.nameFor(r.NetworkID, pools, o, own)
	if err := canEncrypt(d.core.replica.Snapshot(), d.core.cfg.Self, d.core.cfg.CannotEncrypt, name, o); err != nil {
		return nil, err
	}
	if err := canIsolate(d.core.replica.Snapshot(), d.core.cfg.Self, name, o); err != nil {
		return nil, err
	}
	vnid, fresh, err := d.vnidFor(ctx, name, o)
	if err != nil {
		return nil, err
	}
	if err := d.addNetwork(r.NetworkID, name, learnt, vnid, pools, o, own); err != nil {
		if fresh {
			err = errors.Join(err, d.core.alloc.ReleaseVNID(vnid))
		}
		return nil, err
	}
	for _, p := range pools {
		if err := d.core.alloc.PoolDone(p.Prefix); err != nil {
			d.core.cfg.Log.Warn("end the reservation of a subnet", "subnet", p.Prefix, "err", err)
		}
	}
	d.core.poke()
	return &Empty{}, nil
}

// errOtherIPAM says what to do by hand, in Compose, and in a swarm, which drops the --ipam-driver that it is given.
var errOtherIPAM = errors.New("the network's addresses come from another IPAM driver, which does not know the other hosts; " +
	"add --ipam-driver with the same name as -d (in Compose: ipam: driver:); " +
	"for Swarm's services: docker network create --config-only --ipam-driver NAME addresses (on each host), " +
	"docker network create -d NAME --scope swarm --config-from addresses NETWORK (on a manager)")

// parsePools reads the subnets that Docker got from its IPAM driver, which must
// be ours.
func parsePools(r *network.CreateNetworkRequest, o networkOptions) ([]cluster.Subnet, error) {
	var out []cluster.Subnet
	for i, data := range slices.Concat(r.IPv4Data, r.IPv6Data) {
		if data == nil {
			return nil, errors.New("an entry of IPv4Data or IPv6Data is null")
		}
		if data.AddressSpace != ipam.AddressSpace {
			return nil, errOtherIPAM
		}
		s, err := parsePool(data, i >= len(r.IPv4Data))
		if err != nil {
			return nil, err
		}
		if err := o.fits(s.Prefix); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	if len(out) == 0 {
		return nil, errors.New("the network has no subnet; grapevine needs one")
	}
	return out, nil
}

// fitsIPv6 refuses IPv6 subnets on a network whose MTU is too small for them: the
// kernel would not give its interfaces IPv6 addresses.
func (d *networks) fitsIPv6(pools []cluster.Subnet, o networkOptions) error {
	const least = 1280 // RFC 8200, 5
	mtu := o.mtu
	if mtu == 0 {
		mtu = d.core.replica.Snapshot().MTU(d.core.cfg.MTU)
		if o.encrypted {
			mtu = d.core.replica.Snapshot().EncryptedMTU(d.core.cfg.MTU)
		}
	}
	for _, p := range pools {
		if p.Prefix.Addr().Is6() && mtu < least {
			return fmt.Errorf("subnet %s: IPv6 needs an MTU of %d, and that of this network's containers is %d; raise the option mtu or the underlay's MTU, or leave IPv6 out", p.Prefix, least, mtu)
		}
	}
	return nil
}

func parsePool(data *network.IPAMData, v6 bool) (cluster.Subnet, error) {
	prefix, err := netip.ParsePrefix(data.Pool)
	if err != nil || prefix != prefix.Masked() || prefix.Addr().Is6() != v6 {
		return cluster.Subnet{}, fmt.Errorf("pool %.60q is not a prefix like %s", data.Pool, map[bool]string{false: "10.1.0.0/16", true: "fd12:3456:789a:1::/64"}[v6])
	}
	s := cluster.Subnet{Prefix: prefix}
	if data.Gateway != "" {
		gw, err := netip.ParsePrefix(data.Gateway)
		if err != nil || !prefix.Contains(gw.Addr()) {
			return s, fmt.Errorf("gateway %.60q is not in the subnet %s", data.Gateway, prefix)
		}
		s.Gateway = gw.Addr()
	}
	for name, v := range data.AuxAddresses {
		text, _ := v.(string)
		aux, err := netip.ParsePrefix(text)
		if err != nil || !prefix.Contains(aux.Addr()) {
			return s, fmt.Errorf("auxiliary address %.60q=%.60v is not in the subnet %s", name, v, prefix)
		}
		if s.Aux == nil {
			s.Aux = map[string]netip.Addr{}
		}
		s.Aux[name] = aux.Addr()
	}
	return s, nil
}

// ownCreation returns what the agent is just making in Docker, if this call comes of
// that, or else nil. It is an error if somebody else is making a network as well: the
// agent makes its own later.
func (d *networks) ownCreation(p netip.Prefix, o networkOptions) (*creation, error) {
	if !o.replica {
		return nil, nil
	}
	d.core.mu.Lock()
	defer d.core.mu.Unlock()
	c := d.core.ours.creating[p]
	if c == nil {
		return nil, fmt.Errorf("option %s marks what the agent makes; leave it out", optReplica)
	}
	if _, made := d.core.local.withPrefix(p); made || d.core.othersCreate(c) {
		c.off = true
		return nil, fmt.Errorf("network %s is not made now, since another one is being made on this host", c.Name)
	}
	if c.alone && d.core.docker.NewAPIClients() > 0 {
		c.off = true
		for _, p := range prefixesOfPools(c.Pools) {
			d.core.alloc.Unasked(p)
		}
		return nil, fmt.Errorf("network %s is not made now, since somebody is at docker's API", c.Name)
	}
	return c, nil
}

// nameFor returns the cluster's network that a new Docker network is part of,
// and whether all is known of it that Docker tells later.
func (d *networks) nameFor(id string, pools []cluster.Subnet, o networkOptions, own *creation) (name string, learnt bool) {
	if own != nil {
		return own.Name, true
	}
	if o.name != "" {
		return o.name, false
	}
	if s, ok := cluster.Get[cluster.Subnet](d.core.replica.Snapshot(), pools[0].Prefix.String()); ok {
		return s.Network, false
	}
	return provisional + id, false
}

// vnidFor returns the VNID of the network called name, and whether it was handed
// out just now.
func (d *networks) vnidFor(ctx context.Context, name string, o networkOptions) (vnid uint32, fresh bool, err error) {
	n, known := cluster.Get[cluster.Network](d.core.replica.Snapshot(), name)
	switch {
	case known && o.hasVNID && o.vnid != n.VNID:
		return 0, false, fmt.Errorf("option vnid=%d: network %s has the VNID %d; leave the option out to join it", o.vnid, name, n.VNID)
	case known:
		return n.VNID, false, nil
	case o.hasVNID:
		return o.vnid, o.vnid != 0, d.core.alloc.VNIDExact(ctx, o.vnid, name)
	}
	vnid, err = d.core.alloc.VNID(ctx)
	return vnid, true, err
}

// addNetwork makes the network durable here and in the cluster.
func (d *networks) addNetwork(id, name string, learnt bool, vnid uint32, pools []cluster.Subnet, o networkOptions, own *creation) error {
	d.core.mu.Lock()
	defer d.core.mu.Unlock()
	if _, again := d.core.local.networks[id]; again {
		return nil
	}
	n := localNetwork{
		ID: id, Name: name, Learnt: learnt, Internal: o.internal, Options: o.given, VNID: vnid, MTU: o.mtu, Created: d.core.cfg.Now(),
	}
	n.Made, n.Automatic = making(id), d.core.alloc.Automatic(pools[0].Prefix)
	if rec, live := cluster.Get[cluster.Network](d.core.replica.Snapshot(), name); live && !rec.Removed {
		n.Made = rec.Made
	}
	if own != nil {
		n.Labels, n.Replica = own.Labels, true
	}
	for i, p := range pools {
		// If a user makes what the agent has made at the same moment, the agent's goes.
		// Had that one been there longer, Docker itself would have refused its name: then this
		// is another network.
		if other, ok := d.core.local.withPrefix(p.Prefix); ok && (!other.Replica || d.core.local.used(other.ID) || d.core.cfg.Now().Sub(other.Created) > creationTime) {
			return fmt.Errorf("subnet %s is used by network %s (%.12s) of this host; choose another one", p.Prefix, other.Name, other.ID)
		}
		full, _ := d.core.alloc.Subnet(p.Prefix)
		if pools[i] = merged(full, p, o); own == nil {
			pools[i].Place = place(pools, i)
		}
		if err := d.core.alloc.Begin(pools[i]); err != nil {
			return err
		}
		n.Prefixes, n.Gateways = append(n.Prefixes, p.Prefix), append(n.Gateways, pools[i].Gateway)
		n.Subnets = append(n.Subnets, pools[i])
	}
	// The local note first: what is in the cluster but not noted, nobody collects.
	if err := d.core.local.setNetwork(n); err != nil {
		return err
	}
	_, joined := cluster.Get[cluster.Network](d.core.replica.Snapshot(), name)
	_, err := d.core.replica.Update(func(tx *replica.Tx) error {
		if own != nil {
			return own.still(tx)
		}
		return announce(tx, d.core.cfg.Self, n, pools, true)
	})
	if err != nil {
		return errors.Join(fmt.Errorf("announce network %s: %w", name, err), d.core.local.dropNetwork(id))
	}
	d.core.unstored[id] = joined
	return nil
}

// place is a subnet's among those of its family.
func place(pools []cluster.Subnet, i int) (before uint8) {
	for _, p := range pools[:i] {
		if p.Prefix.Addr().Is4() == pools[i].Prefix.Addr().Is4() && before < math.MaxUint8 {
			before++
		}
	}
	return before
}

// still fails if the network has left the cluster while it was made here: it must not
// come back by that.
func (c *creation) still(tx *replica.Tx) error {
	if _, live := cluster.Get[cluster.Network](tx.Snapshot(), c.Name); !live {
		c.off = true
		return errors.New("it has been removed from the cluster meanwhile")
	}
	return nil
}

// merged is the subnet that results from what is known of it (full) and what
// Docker says at its network's creation.
func merged(full, said cluster.Subnet, o networkOptions) cluster.Subnet {
	out := full
	out.Prefix = said.Prefix
	if said.Gateway.IsValid() && full.Network == "" {
		out.Gateway = said.Gateway
	}
	if o.hostBits != 0 && full.Network == "" {
		out.HostBits = uint8(o.hostBits)
	}
	if len(said.Aux) > 0 {
		out.Aux = map[string]netip.Addr{}
		for _, aux := range []map[string]netip.Addr{full.Aux, said.Aux} {
			for name, addr := range aux {
				out.Aux[name] = addr
			}
		}
	}
	return out
}

func (l *local) withPrefix(p netip.Prefix) (localNetwork, bool) {
	for _, n := range l.networks {
		for _, q := range n.Prefixes {
			if q == p && n.Conflict == "" {
				return n, true
			}
		}
	}
	return localNetwork{}, false
}

// DeleteNetwork is Driver.DeleteNetwork.
func (d *endpoints) DeleteNetwork(ctx context.Context, r *network.DeleteNetworkRequest) (*Empty, error) {
	d.core.mu.Lock()
	byUser := !d.core.ours.removing[r.NetworkID] && !d.core.unstored[r.NetworkID]
	d.core.removed[r.NetworkID] = true
	d.core.mu.Unlock()
	err := d.removeNetwork(ctx, r.NetworkID, byUser)
	if err != nil {
		d.core.noteRemoveFailed()
	}
	return &Empty{}, err
}

// removeNetwork ends this host's part in a network, with the endpoints that are
// left over. It is no error if there is none.
func (d *endpoints) removeNetwork(ctx context.Context, id string, byUser bool) error {
	var errs []error
	for _, e := range d.core.endpointsOf(id) {
		errs = append(errs, d.removeEndpoint(ctx, e))
	}
	d.core.mu.Lock()
	defer d.core.mu.Unlock()
	delete(d.core.unstored, id)
	n, ok := d.core.local.networks[id]
	if !ok {
		return errors.Join(errs...)
	}
	_, err := d.core.replica.Update(func(tx *replica.Tx) error {
		if n.Conflict != "" || d.core.local.named(n.Name, id) {
			return nil // the other one goes on
		}
		tx.Delete(cluster.Use{Network: n.Name, Host: d.core.cfg.Self}.Key())
		if n.Name == provisional+id {
			retire(tx, n.Name)
			return nil
		}
		rec, live := cluster.Get[cluster.Network](tx.Snapshot(), n.Name)
		if !live {
			dropOrphans(tx, d.core.cfg.Self, n)
		}
		if live && byUser && n.Conflict == "" && !rec.Removed {
			rec.Removed = true
			_ = tx.Put(rec) // Update reports it
		}
		if live && byUser && n.Conflict == "" {
			d.core.userRemoved[n.Name] = d.core.cfg.Now()
			if dropUnused(tx, n); idle(tx.Snapshot(), n.Name) {
				retire(tx, n.Name) // at once: the user's next command may make it anew
			}
		}
		return nil
	})
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("remove network %s: %w", n.Name, err))...)
	}
	d.core.poke()
	return errors.Join(append(errs, d.core.local.dropNetwork(id))...)
}
