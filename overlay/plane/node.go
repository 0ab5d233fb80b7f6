package plane

import (
	"context"
	"net/netip"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/overlay"
	"github.com/grapevine-net/grapevine/overlay/secure"
	"github.com/grapevine-net/grapevine/replica"
)

// Node is what this host's own record says of its data plane.
func (p *Plane) Node(snap *cluster.Snapshot) cluster.Node {
	s, at := p.cfg.Settings, p.cfg.Underlay.Addr
	n := cluster.Node{
		VTEP: at, VXLANPort: s.VXLANPort, MTU: p.cfg.wire().MTU, Datapath: string(p.Datapath()), Encap: s.Encapsulation().Mark(), Bind: behindNAT(s, at),
		Realms: true, KnowsEncrypted: true, HoldsIPv6: true, LabelEgress: true, Edge: s.Edge(),
		PolicyKeys: cluster.KeyPrints(cluster.PoliciesOf(snap).Keys()),
	}
	can, lacks := enforcesYet(p.overlay)
	was, _ := cluster.Get[cluster.Node](snap, string(p.cfg.Self))
	n.Enforces = enforces(can, lacks, was.Enforces)
	n.Exposes = n.Enforces > 0 // both need a switch that tracks connections
	seals(&n, p.cfg.Secure, snap)
	return n
}

// enforcesYet is overlay.Enforces for who is not to wait: neither is said while it is not known.
func enforcesYet(o *overlay.Overlay) (can bool, lacks string) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return o.Enforces(ctx)
}

// Lacks is why this host enforces no policies; "": it does, or that is not known yet.
func Lacks(o *overlay.Overlay) string {
	_, lacks := enforcesYet(o)
	return lacks
}

// enforces is up to which level this host enforces policies; until that is known, as before.
func enforces(can bool, lacks string, before uint8) uint8 {
	switch {
	case can:
		return cluster.EnforcesV4
	case lacks != "":
		return 0
	}
	return before
}

// seals adds what others need to encrypt for this host, if they are to.
func seals(n *cluster.Node, k *secure.Keeper, snap *cluster.Snapshot) {
	switch {
	case k == nil:
	case k.All(): // whoever does not encrypt has nowhere to send to
		n.VTEP = netip.Addr{}
		n.WireGuard, n.KeyProof, n.WireGuardAt, n.Turn = k.Record(snap)
	default:
		n.NetworksKey, n.KeyProof, n.WireGuardAt, n.Turn = k.Record(snap)
	}
}

// behindNAT is this host's own address if the others know it by another one; else it is invalid.
func behindNAT(cfg config.Config, underlay netip.Addr) netip.Addr {
	own := cfg.Bind.Unmap().WithZone("")
	if own.IsUnspecified() || own == underlay.Unmap() {
		return netip.Addr{}
	}
	return own
}

// TellEnforced has this host described again as soon as it is known whether its switch enforces policies.
func TellEnforced(ctx context.Context, o *overlay.Overlay, describe func() error) {
	o.Enforces(ctx)
	tellUntil(ctx, describe)
}

func tellUntil(ctx context.Context, describe func() error) {
	for ctx.Err() == nil && describe() != nil {
		select { // the disk takes nothing: again
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// TellBare writes what a host says of packets without headers, or takes it away.
func TellBare(r *replica.Replica, self cluster.NodeID) func(cluster.Body) error {
	return func(b cluster.Body) error {
		_, err := r.Update(func(tx *replica.Tx) error {
			if b == nil {
				tx.Delete(cluster.Bare{Host: self}.Key())
				return nil
			}
			return tx.Put(b)
		})
		return err
	}
}
