package ipam

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/reach"
	"github.com/grapevine-net/grapevine/ring"
)

// room is where in a range of the cluster a new network can be.
type room struct {
	cidr  netip.Prefix
	avoid []netip.Prefix // what hosts have there
	parts []netip.Prefix // the rest, in which one fits: the widest first
}

// roomIn returns where in cidr a /bits can be. That there is nowhere is an error that names
// what is in the way: it is no use to ask peers then, whatever they give.
func (a *prefixes) roomIn(cidr netip.Prefix, bits int) (room, error) {
	taken := a.core.cfg.Reach().Avoid(cidr)
	in := roomBeside(cidr, bits, taken)
	if len(in.parts) == 0 {
		in = roomBeside(cidr, bits, slices.DeleteFunc(slices.Clone(taken), func(t reach.Taken) bool { return t.Soft }))
	}
	if len(in.parts) > 0 || len(taken) == 0 {
		return in, nil
	}
	widest := slices.MinFunc(taken, func(x, y reach.Taken) int { return cmp.Compare(x.Prefix.Bits(), y.Prefix.Bits()) })
	return in, fmt.Errorf("%w: of the cluster's range %s no /%d is left beside %s; give a --subnet, or set GRAPEVINE_CIDR%d to a range that nothing else uses, the same on every host",
		ErrNoSpace, cidr, bits, widest.By, map[bool]int{true: 4, false: 6}[cidr.Addr().Is4()])
}

func roomBeside(cidr netip.Prefix, bits int, taken []reach.Taken) room {
	in := room{cidr: cidr}
	for _, t := range taken {
		in.avoid = append(in.avoid, t.Prefix.Masked())
	}
	in.parts = slices.DeleteFunc(ring.Subtract([]netip.Prefix{cidr}, in.avoid), func(p netip.Prefix) bool { return p.Bits() > bits })
	slices.SortStableFunc(in.parts, func(x, y netip.Prefix) int { return cmp.Compare(x.Bits(), y.Bits()) })
	return in
}

// maxParts bounds how many parts of a range peers are asked for, one after the other.
const maxParts = 8

// askRoom asks peers for a /bits, and for nothing that no network could have.
func (a *prefixes) askRoom(ctx context.Context, in room, bits int) (err error) {
	for _, p := range in.parts[:min(len(in.parts), maxParts)] {
		err = a.asker.ask(ctx, askGive{Kind: giveSpace, Within: p, Unit: bits, Need: true})
		if !errors.Is(err, ErrNoSpace) {
			return err
		}
	}
	return err
}

// stockRoom sees to it that this host can make a network without asking anybody.
func (a *prefixes) stockRoom(ctx context.Context, cidr netip.Prefix, bits int) {
	in, err := a.roomIn(cidr, bits)
	if err != nil {
		return // whoever makes a network is told
	}
	for _, p := range in.parts[:min(len(in.parts), maxParts)] {
		if a.hasPrefix(in, bits) {
			return
		}
		a.asker.fetch(ctx, askGive{Kind: giveSpace, Within: p, Unit: bits})
	}
}

// barred are the subnets of the cluster that this host cannot take.
func (a *prefixes) barred() map[netip.Prefix]error {
	var all []netip.Prefix
	for s := range cluster.All[cluster.Subnet](a.core.replica.Snapshot()) {
		all = append(all, s.Prefix)
	}
	return a.core.cfg.Reach().Barred(all, false)
}
