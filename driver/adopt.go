package driver

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/docker/go-plugins-helpers/network"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/ipam"
)

// A host that was forgotten, or whose state is lost, is a new one, and its Docker has networks
// from before. They go on, so that their users need not make them anew: as the network of
// that name that the cluster has, or, if this host is known to have been another one of this
// cluster, as one that is made now. Containers' addresses from before do not: they may be
// other hosts' by now.

// decideAdopt finds what becomes of networks of our driver that this agent does not know. Those
// that an agent has made, or that this host has besides, and that no container is on, are there
// because Docker could not store their end, as on a full disk: they go. used are usedNetworks,
// names are localNames.
func (v view) decideAdopt(p *plan, used map[string]bool, names map[string]int) {
	for _, n := range v.networks {
		if !v.unknown(n) || v.removed[n.ID] {
			continue
		}
		name := nameOf(n)
		rec, live := cluster.Get[cluster.Network](v.snap, name)
		same := live && !rec.Removed && v.poolsOf(n, name)
		switch {
		case same && (used[n.ID] || names[name] == 0):
			p.adopt = append(p.adopt, n) // of which the cluster does not even hear
		case !v.settled:
		case v.replicate && !used[n.ID] && (same || n.Options[optReplica] != ""):
			p.vanish = append(p.vanish, n)
		case !v.renewed || !v.overdue(n.ID):
		case used[n.ID] || !live && !v.snap.Tombstone(cluster.Network{Name: name}.Key()):
			p.adopt = append(p.adopt, n)
		case v.replicate:
			p.vanish = append(p.vanish, n) // the cluster has no such network any more
		}
	}
}

// nameOf is the name in the cluster of a network that a user has made in Docker.
func nameOf(n docker.Network) string {
	if name := n.Options["name"]; name != "" {
		return name
	}
	return n.Name
}

// poolsOf reports whether the subnets of n are live ones of that network of the cluster.
func (v view) poolsOf(n docker.Network, name string) bool {
	prefixes := prefixesOfPools(n.Pools)
	for _, p := range prefixes {
		if s, live := cluster.Get[cluster.Subnet](v.snap, p.String()); !live || s.Network != name {
			return false
		}
	}
	return len(prefixes) > 0
}

// adopt makes a network that Docker has this agent's: as if Docker had just called for it.
func (d *networks) adopt(ctx context.Context, n docker.Network) error {
	hostBits, err := ipam.ParseBits("hostsubnetlength", orZero(n.IPAMOptions["hostsubnetlength"]), 0, 24)
	if err != nil {
		return err
	}
	r := &network.CreateNetworkRequest{NetworkID: n.ID}
	for _, p := range n.Pools {
		if err := d.adoptPool(ctx, r, p, hostBits); err != nil {
			return err
		}
	}
	options := map[string]any{}
	for key, v := range n.Options {
		if key != optReplica {
			options[key] = v
		}
	}
	r.Options = map[string]any{optGeneric: options, optInternal: n.Internal}
	_, err = d.CreateNetwork(ctx, r)
	return err
}

func orZero(s string) string {
	if s == "" {
		return "0"
	}
	return s
}

// adoptPool asks for a subnet and its gateway, as Docker did once, and adds them to r.
func (d *networks) adoptPool(ctx context.Context, r *network.CreateNetworkRequest, p docker.IPAM, hostBits int) error {
	prefix, err := netip.ParsePrefix(p.Subnet)
	if err != nil {
		return fmt.Errorf("subnet: %w", err)
	}
	id := ipam.PoolID{Prefix: prefix}
	if p.Range != "" {
		if id.Range, err = netip.ParsePrefix(p.Range); err != nil {
			return fmt.Errorf("range of %s: %w", prefix, err)
		}
	}
	if err := d.core.alloc.Pool(ctx, id, hostBits); err != nil {
		return err
	}
	data := &network.IPAMData{AddressSpace: ipam.AddressSpace, Pool: prefix.String(), AuxAddresses: map[string]any{}}
	if text, _, _ := strings.Cut(p.Gateway, "/"); text != "" { // some engines add the length
		gateway, err := netip.ParseAddr(text)
		if err == nil {
			gateway, err = d.core.alloc.Gateway(prefix, gateway)
		}
		if err != nil {
			return err
		}
		data.Gateway = netip.PrefixFrom(gateway, prefix.Bits()).String()
	}
	for name, aux := range p.Aux {
		data.AuxAddresses[name] = fmt.Sprintf("%s/%d", aux, prefix.Bits())
	}
	if prefix.Addr().Is6() {
		r.IPv6Data = append(r.IPv6Data, data)
	} else {
		r.IPv4Data = append(r.IPv4Data, data)
	}
	return nil
}

// refusal is why a network was not adopted, and when.
type refusal struct {
	err error
	at  time.Time
}

// adoptAll adopts networks, and notes which cannot be, and why, for status.
func (d *networks) adoptAll(ctx context.Context, list []docker.Network) (more bool) {
	refused := map[string]refusal{}
	for _, n := range list {
		before, again := d.refused[n.ID]
		if again && d.core.cfg.Now().Sub(before.at) < idleLook {
			refused[n.ID] = before
			continue
		}
		err := d.adopt(ctx, n)
		if err == nil {
			d.core.cfg.Log.Info("a network from before this host was a new one goes on", "network", n.Name)
			more = true
			continue
		}
		refused[n.ID] = refusal{err, d.core.cfg.Now()}
		if !again || before.err.Error() != err.Error() {
			d.core.cfg.Log.Warn("a network from before this host was a new one cannot go on", "network", n.Name, "err", err)
		}
	}
	d.refused = refused
	return more
}

// errUnknownNetwork is in the errors about networks of which this agent knows nothing.
var errUnknownNetwork = errors.New("is not known to this agent, whose state may be new")
