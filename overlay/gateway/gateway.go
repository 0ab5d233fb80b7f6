// Package gateway is the host's own leg in the overlay: gv0, an internal port of the
// bridge, with the gateway address of every subnet (the same on every host) and the
// routes to the networks. OpenShift SDN calls its counterpart tun0.
//
// The port is made by the overlay; this package sets it up, and sets it up again when
// ovs-vswitchd has made it anew. It touches no other interface. Masquerading is
// package host/nat's.
package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link"
)

// Port is the name of the gateway's interface and port.
const Port = link.Gateway

// Gateway sets up gv0 in the network namespace of the calling thread.
type Gateway struct {
	// BeforeForwarding, if it is not nil, is called before Ensure turns a family's forwarding
	// on for the whole host where it is off; after an error it stays off. learning are the
	// interfaces that it then has go on learning from routers (Unlearn takes that back).
	BeforeForwarding func(v6 bool, learning []string) error
	// WithoutIPv6, if it is not nil, is called by Ensure when there is nothing of IPv6 (any more).
	WithoutIPv6 func() error
	// Edge says that nobody but this host itself sends by gv0: forwarding stays as it is.
	Edge bool
	// Nowhere, if it is not nil, is looked after with the rest: Missing names what of it is gone, Ensure puts it back.
	Nowhere *Nowhere

	mac  net.HardwareAddr
	held helds
}

// New returns the gateway of the host whose node ID is node. The MAC address is made
// of the node ID: it stays the same across restarts and differs between hosts.
func New(node string) *Gateway { return &Gateway{mac: macOf(node)} }

// Config is all that gv0 is to have.
type Config struct {
	// MTU in bytes: that of the containers, so that the kernel tells the outside of it
	// (RFC 1191). MTUs are those of subnets whose containers have less.
	MTU  int
	MTUs map[netip.Prefix]int
	// Addrs are the gateway addresses with the prefix lengths of their subnets: each subnet
	// gets a route with its gateway as the source, so that a container is spoken to by its
	// own gateway. A host prefix gets the address only.
	Addrs []netip.Prefix
	// Host are this host's own addresses, with the prefix lengths of what all hosts' lie in,
	// and the same goes for them. Remote are the ranges of other hosts: their containers are
	// spoken to from Host. Own are this host's, which may lie within those.
	Host, Remote, Own []netip.Prefix
	// Subnets are those in use that this host can take: what is routed here, and nothing else.
	Subnets []netip.Prefix
	// Closed are clients' addresses, which NAT leads to no port of this host's.
	Closed []netip.Prefix
	// Exposed are ports that this host has for the outside as others do, in order: by none of them NAT lets containers leave.
	Exposed []uint16
	// CIDRs are what NAT is about, and no routes: the subnets and, where this host has nothing
	// of its own in them, the cluster's ranges.
	CIDRs []netip.Prefix
}

// macOf returns a locally administered unicast address (IEEE 802-2014, 8.2) outside of
// the prefixes 02:00 and 02:01 of the tunnel's header bits, and of Docker's 02:42.
func macOf(node string) net.HardwareAddr {
	sum := sha256.Sum256([]byte("grapevine gateway " + node))
	return net.HardwareAddr{0x0a, 0x67, sum[0], sum[1], sum[2], sum[3]}
}

// MAC is the address of gv0, for the flows.
func (g *Gateway) MAC() net.HardwareAddr { return bytes.Clone(g.mac) }

// PortName is the name of gv0.
func (g *Gateway) PortName() string { return Port }

// Ensure gives gv0 its MAC address, MTU and sysctls, sets it up, and makes its addresses
// and routes those of cfg and no others. What is wanted is added before what is not is
// removed. No gv0 is an error that wraps link.ErrNotFound. On a host without IPv6 what
// is IPv4's is done, and the error says that IPv6 is missing.
func (g *Gateway) Ensure(_ context.Context, cfg Config) error {
	return errors.Join(g.ensure(cfg), g.Nowhere.mend()) // this one also without gv0
}

func (g *Gateway) ensure(cfg Config) error {
	want, without, err := wanted(cfg, g.mac)
	if err != nil {
		return fmt.Errorf("gateway %s: %w", Port, err)
	}
	l, err := g.device(cfg.MTU)
	if err != nil {
		return fmt.Errorf("gateway %s: %w", Port, err)
	}
	if err := g.setSysctls(want.hasV6()); err != nil {
		return fmt.Errorf("gateway %s: %w", Port, err)
	}
	if err := ensureRules(want.hasV6()); err != nil {
		return fmt.Errorf("gateway %s: %w", Port, err)
	}
	if without == nil && !want.hasV6() && g.WithoutIPv6 != nil {
		without = g.WithoutIPv6()
	}
	have, err := read(l)
	if err != nil {
		return fmt.Errorf("gateway %s: %w", Port, err)
	}
	d := difference(have, want)
	own := func(a netip.Addr) bool {
		return slices.ContainsFunc(cfg.Host, func(h netip.Prefix) bool { return h.Addr() == a })
	}
	return errors.Join(without,
		each("add address", d.addAddrs, func(a netip.Addr) error { return netlink.AddrReplace(l, address(a, own(a))) }),
		each("add route", d.addRoutes, func(r route) error { return netlink.RouteReplace(r.netlink(l)) }),
		each("remove route", d.removeRoutes, func(r route) error { return gone(netlink.RouteDel(r.netlink(l))) }),
		each("remove address", d.removeAddrs, func(a netip.Addr) error { return gone(netlink.AddrDel(l, address(a, false))) }),
	)
}

// wanted is all that cfg means on this host; without says what of it cannot be here.
func wanted(cfg Config, mac net.HardwareAddr) (want config, without, err error) {
	if want, err = plan(cfg); err != nil {
		return want, nil, err
	}
	if want.hasV6() && !hostHasIPv6() {
		want, without = want.onlyV4(), errNoIPv6
	}
	if want.hasV6() {
		want.addrs[linkLocal(mac)] = true
		want.routes[loopback6] = via{}
	}
	return want, without, nil
}

var errNoIPv6 = fmt.Errorf("gateway %s: this host's kernel has no IPv6 (it was started with ipv6.disable=1, or the module is missing): "+
	"the cluster's IPv6 networks have no gateway here; turn IPv6 on, or keep containers of those networks off this host", Port)

// each calls do for all, and returns what failed.
func each[T any](what string, all []T, do func(T) error) error {
	var errs []error
	for _, x := range all {
		if err := do(x); err != nil {
			errs = append(errs, fmt.Errorf("gateway %s: %s %v: %w", Port, what, x, err))
		}
	}
	return errors.Join(errs...)
}

// gone makes "not there" of a deletion no error.
func gone(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// device sets gv0's own properties and returns it.
func (g *Gateway) device(mtu int) (netlink.Link, error) {
	l, err := netlink.LinkByName(Port)
	if err != nil {
		if _, notFound := errors.AsType[netlink.LinkNotFoundError](err); notFound {
			err = link.ErrNotFound
		}
		return nil, err
	}
	if err := link.Stranger(Port); err != nil {
		return nil, err
	}
	if err := link.NoIPv6Address(Port); err != nil {
		return nil, err
	}
	if !bytes.Equal(l.Attrs().HardwareAddr, g.mac) {
		if err := netlink.LinkSetHardwareAddr(l, g.mac); err != nil {
			return nil, fmt.Errorf("set address %s: %w", g.mac, err)
		}
	}
	if err := link.SetMTU(Port, mtu); err != nil {
		return nil, err
	}
	if l.Attrs().Flags&net.FlagUp == 0 {
		if err := netlink.LinkSetUp(l); err != nil {
			return nil, fmt.Errorf("set up: %w", err)
		}
	}
	return l, nil
}
