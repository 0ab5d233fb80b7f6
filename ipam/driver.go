package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	dockeripam "github.com/docker/go-plugins-helpers/ipam"

	"github.com/grapevine-net/grapevine/host/plugin"
)

// AddressSpace is the name of both our address spaces. They must be one, or
// Docker asks for pool after pool as long as what it gets overlaps a route of the
// host, and our own gateway's does.
const AddressSpace = "grapevine"

// typeGateway and its key mark Docker's request for the gateway's address.
const (
	addressType = "RequestAddressType"
	typeGateway = "com.docker.network.gateway"
)

// Driver answers Docker's IpamDriver calls (libnetwork/docs/ipam.md). Every call
// may be repeated, and none waits for the Docker API.
type Driver struct {
	alloc *Allocator
	keep  func(netip.Prefix) error
	may   func(subnet netip.Prefix, exact bool) error
}

// NewDriver returns a Driver that hands out what alloc has. keep, which may be nil, is to
// bring a subnet of this host's networks back that another host has just ended, not having
// heard that it is used here. may, which may be nil, says why no container is to have an address of
// a subnet, or that very one (exact).
func NewDriver(alloc *Allocator, keep func(netip.Prefix) error, may func(subnet netip.Prefix, exact bool) error) *Driver {
	return &Driver{alloc: alloc, keep: keep, may: may}
}

// Capabilities is the reply to GetCapabilities; go-plugins-helpers lacks the
// second field.
type Capabilities struct {
	RequiresMACAddress bool
	// RequiresRequestReplay would make Docker request all pools and addresses again when it
	// starts. What it was given is on this agent's disk, and docs/design/decisions.md says what
	// becomes of a Docker that does so.
	RequiresRequestReplay bool
}

// Empty is the reply of calls that return nothing.
type Empty struct{}

// Register adds the driver's methods to s.
func (d *Driver) Register(s *plugin.Server) {
	plugin.HandleNoBody(s, plugin.IPAM, "GetCapabilities", d.GetCapabilities)
	plugin.HandleNoBody(s, plugin.IPAM, "GetDefaultAddressSpaces", d.GetDefaultAddressSpaces)
	plugin.Handle(s, plugin.IPAM, "RequestPool", d.RequestPool)
	plugin.Handle(s, plugin.IPAM, "ReleasePool", d.ReleasePool)
	plugin.Handle(s, plugin.IPAM, "RequestAddress", d.RequestAddress)
	plugin.Handle(s, plugin.IPAM, "ReleaseAddress", d.ReleaseAddress)
}

// GetCapabilities implements IpamDriver.GetCapabilities.
func (d *Driver) GetCapabilities(context.Context) (*Capabilities, error) {
	return &Capabilities{}, nil
}

// GetDefaultAddressSpaces implements IpamDriver.GetDefaultAddressSpaces.
func (d *Driver) GetDefaultAddressSpaces(context.Context) (*dockeripam.AddressSpacesResponse, error) {
	return &dockeripam.AddressSpacesResponse{
		LocalDefaultAddressSpace: AddressSpace, GlobalDefaultAddressSpace: AddressSpace,
	}, nil
}

// RequestPool implements IpamDriver.RequestPool: --subnet, --ip-range and
// --ipam-opt of docker network create.
func (d *Driver) RequestPool(ctx context.Context, r *dockeripam.RequestPoolRequest) (*dockeripam.RequestPoolResponse, error) {
	o, err := parseOptions(r.Options, options{bits: d.alloc.core.cfg.Bits, bits6: Bits6})
	if err != nil {
		return nil, err
	}
	id, err := d.requestPool(ctx, r, o)
	if err != nil {
		return nil, err
	}
	d.alloc.prefixes.noteAsked(id.Prefix)
	return &dockeripam.RequestPoolResponse{PoolID: id.String(), Pool: id.Prefix.String(), Data: map[string]string{}}, nil
}

func (d *Driver) requestPool(ctx context.Context, r *dockeripam.RequestPoolRequest, o options) (PoolID, error) {
	_, chosen := r.Options["hostsubnetlength"]
	if r.Pool == "" {
		if r.SubPool != "" {
			return PoolID{}, fmt.Errorf("IP range %.60q needs a subnet: give --subnet as well", r.SubPool)
		}
		if !chosen {
			o.hostBits = d.alloc.core.cfg.HostBits
		}
		family, bits, room := 4, o.bits, 32-o.bits
		if r.V6 {
			family, bits, room = 6, o.bits6, 128-o.bits6
		}
		if chosen && o.hostBits > 0 && (o.hostBits < 2 || o.hostBits > room) {
			return PoolID{}, fmt.Errorf("hostsubnetlength=%d does not fit into a /%d; it must be between 2 and %d", o.hostBits, bits, room)
		}
		held := d.alloc.prefixes.held()
		if held >= mostHeld { // the range is the other hosts' as well
			return PoolID{}, refusedByDocker(held)
		}
		prefix, err := d.alloc.Prefix(ctx, family, bits, min(o.hostBits, room))
		if err == nil {
			d.alloc.prefixes.noteAutomatic(prefix)
		} else if held > 1 && errors.Is(err, ErrNoSpace) {
			err = fmt.Errorf("%w; or else: %w", err, refusedByDocker(held))
		}
		return PoolID{Prefix: prefix}, err
	}
	prefix, err := parsePool("subnet", r.Pool)
	if err != nil {
		return PoolID{}, err
	}
	if r.V6 != prefix.Addr().Is6() {
		is := map[bool]string{false: "IPv4", true: "IPv6"}
		return PoolID{}, fmt.Errorf("subnet %s is of %s, and was asked for as %s's; give one of that", prefix, is[!r.V6], is[r.V6])
	}
	if err := errors.Join(checkSubnet(prefix), CheckHostBits(prefix, o.hostBits)); err != nil {
		return PoolID{}, err
	}
	name, bits := "prefixlen", o.bits
	if prefix.Addr().Is6() {
		name, bits = "prefixlen6", o.bits6
	}
	if _, given := r.Options[name]; given && bits != prefix.Bits() {
		return PoolID{}, fmt.Errorf("option %s=%d contradicts the subnet %s; leave one out", name, bits, prefix)
	}
	id, err := newPool(prefix, r.SubPool)
	if err != nil {
		return id, err
	}
	d.alloc.prefixes.noteChosen(prefix)
	return id, d.alloc.Pool(ctx, id, o.hostBits)
}

// refusedByDocker is why Docker has so many subnets and no network of them: up to Engine 26 it takes none
// that a route of its host without a router leads to, and asks for another one for ever.
func refusedByDocker(held int) error {
	return fmt.Errorf("docker has asked for %d subnets and taken none: it refuses those that a route of this host without a router leads to, such as a VPN's 0.0.0.0/1 (see `ip route`); give a --subnet, which it takes all the same", held)
}

// ReleasePool implements IpamDriver.ReleasePool. Docker calls it before
// DeleteNetwork and when a creation fails, and the prefix may be that of another
// network as well: so it only ends the reservation of a pool that has no network
// yet.
func (d *Driver) ReleasePool(_ context.Context, r *dockeripam.ReleasePoolRequest) (*Empty, error) {
	id, err := ParsePoolID(r.PoolID)
	if err != nil {
		return nil, err
	}
	return &Empty{}, d.alloc.PoolDone(id.Prefix)
}

// RequestAddress implements IpamDriver.RequestAddress: a gateway, an exact
// address (--ip, --aux-address, replays), or any.
func (d *Driver) RequestAddress(ctx context.Context, r *dockeripam.RequestAddressRequest) (*dockeripam.RequestAddressResponse, error) {
	id, err := ParsePoolID(r.PoolID)
	if err != nil {
		return nil, err
	}
	var want netip.Addr
	if r.Address != "" {
		if want, err = parseAddr(r.Address); err != nil {
			return nil, err
		}
	}
	var got netip.Addr
	if r.Options[addressType] == typeGateway {
		got, err = d.alloc.Gateway(id.Prefix, want)
	} else {
		got, err = d.address(ctx, id, want)
	}
	if err != nil {
		return nil, err
	}
	return &dockeripam.RequestAddressResponse{
		Address: netip.PrefixFrom(got, id.Prefix.Bits()).String(), Data: map[string]string{},
	}, nil
}

// address leases an address for a container.
func (d *Driver) address(ctx context.Context, id PoolID, want netip.Addr) (netip.Addr, error) {
	if d.may != nil {
		if err := d.may(id.Prefix, want.IsValid()); err != nil {
			return netip.Addr{}, err
		}
	}
	const tries = 3
	for try := 1; ; try++ {
		got, err := d.alloc.Address(ctx, id.Prefix, id.Range, want)
		if !errors.Is(err, ErrNoSubnet) || d.keep == nil || try == tries {
			return got, err
		}
		if err := d.keep(id.Prefix); err != nil {
			return got, err
		}
	}
}

// ReleaseAddress implements IpamDriver.ReleaseAddress. Releasing the gateway, or
// what is free, is no error.
func (d *Driver) ReleaseAddress(_ context.Context, r *dockeripam.ReleaseAddressRequest) (*Empty, error) {
	if _, err := ParsePoolID(r.PoolID); err != nil {
		return nil, err
	}
	addr, err := parseAddr(r.Address)
	if err != nil {
		return nil, err
	}
	return &Empty{}, d.alloc.Release(addr)
}

func parseAddr(s string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(s)
	switch {
	case err != nil:
		return addr, fmt.Errorf("address %.60q is not an IP address: %w", s, err)
	case addr.Zone() != "":
		return addr, fmt.Errorf("address %s has a zone; leave it out", s)
	}
	return addr.Unmap(), nil
}
