package driver

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/ipam"
)

// A container may have more addresses than Docker gave it: those that it was declared with, by the
// driver-opt `addresses` of its attachment. Each is leased to that one endpoint, as --ip's is, so
// nobody else can have it meanwhile, on any host, and the switch and the fast path know it as they know
// the others. So the spoof guard is as strict as before, and which host an address is on needs no
// message of a container.

// optAddresses is the option's name.
const optAddresses = "addresses"

// maxBesides is how many addresses an endpoint may have besides Docker's.
const maxBesides = 8

// besides reads the addresses that an endpoint is to have besides Docker's.
func besides(options map[string]any) (out []netip.Addr, err error) {
	text, given := options[optAddresses].(string)
	if !given && options[optAddresses] != nil {
		return nil, fmt.Errorf("driver-opt %s is a %T, not a string", optAddresses, options[optAddresses])
	}
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		a, err := netip.ParseAddr(word)
		if err != nil || a.Zone() != "" {
			return nil, fmt.Errorf("driver-opt %s: %.60q is no address; give some of the network's, such as 10.1.2.3, with blanks between them", optAddresses, word)
		}
		out = append(out, a.Unmap())
	}
	if given && len(out) == 0 || len(out) > maxBesides {
		return nil, fmt.Errorf("driver-opt %s has %d addresses; give 1 to %d", optAddresses, len(out), maxBesides)
	}
	return out, nil
}

// checkBesides refuses addresses that are in no subnet of the network, or there already.
func (e localEndpoint) checkBesides(n localNetwork) error {
	all := e.addrs()
	for _, a := range e.Besides {
		if _, _, ok := n.subnetOf(a); !ok {
			return fmt.Errorf("driver-opt %s: address %s is in none of the network's subnets %s", optAddresses, a, prefixList(n.Prefixes))
		}
		if slices.Contains(all, a) {
			return fmt.Errorf("driver-opt %s: address %s is the container's already; leave it out", optAddresses, a)
		}
		all = append(all, a)
	}
	return nil
}

// leaseBesides leases an endpoint's addresses besides Docker's, which Docker asks nobody for.
func (d *endpoints) leaseBesides(ctx context.Context, n localNetwork, e localEndpoint) error {
	for _, a := range e.Besides {
		p, _, _ := n.subnetOf(a)
		if _, err := d.core.alloc.Address(ctx, p, netip.Prefix{}, a); err != nil {
			return fmt.Errorf("driver-opt %s: %w", optAddresses, err)
		}
	}
	return nil
}

// freeBesides gives them back. What another endpoint has is left (ipam.Allocator.Release).
func freeBesides(alloc *ipam.Allocator, e localEndpoint) (err error) {
	for _, a := range e.Besides {
		err = errors.Join(err, alloc.Release(a))
	}
	return err
}
