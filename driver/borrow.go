package driver

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/host/docker"
)

// `docker network create -d bridge --ipam-driver grapevine` cannot be refused: Docker asks for the pool
// and its gateway without a word of the network's driver. But of our own networks we hear before their
// first container does: what comes for the address of any other is refused with the reason.

// Borrower is a network in Docker whose addresses are ours and whose driver is another one.
type Borrower struct {
	Network    string
	Driver     string
	Subnets    []netip.Prefix
	Containers []string // that are on it, running or not
}

// borrowers are those that Docker lists.
func (v view) borrowers() (list []Borrower) {
	for _, n := range v.networks {
		if v.driver == "" || n.IPAMDriver != v.driver || n.Driver == v.driver {
			continue
		}
		b := Borrower{Network: n.Name, Driver: n.Driver, Subnets: prefixesOfPools(n.Pools)}
		if len(b.Subnets) == 0 {
			continue // a configuration for other networks (--config-only)
		}
		for _, c := range v.containers {
			if slices.ContainsFunc(c.Networks, func(at docker.Attachment) bool {
				return at.NetworkID == n.ID || at.NetworkID == "" && at.Network == n.Name
			}) {
				b.Containers = append(b.Containers, c.Name)
			}
		}
		slices.Sort(b.Containers)
		list = append(list, b)
	}
	slices.SortFunc(list, func(a, b Borrower) int { return strings.Compare(a.Network, b.Network) })
	return list
}

// Borrowers is Driver.Borrowers.
func (d *mirror) Borrowers() []Borrower {
	if list := d.borrowers.Load(); list != nil {
		return slices.Clone(*list)
	}
	return nil
}

// borrowed are all their subnets.
func borrowed(list []Borrower) (all []netip.Prefix) {
	for _, b := range list {
		all = append(all, b.Subnets...)
	}
	return all
}

// errNotOurs is in the errors about addresses for networks of other drivers.
var errNotOurs = errors.New("its addresses are for networks of its own driver alone")

// MayLease is Driver.MayLease.
func (d *mirror) MayLease(p netip.Prefix, exact bool) error {
	if d.knows(p) {
		return nil
	}
	for _, b := range d.Borrowers() {
		if slices.Contains(b.Subnets, p) {
			return fmt.Errorf("network %s takes its addresses from grapevine, and its driver is %s: %w; remove it, and create it with -d of grapevine as well, or without --ipam-driver", b.Network, b.Driver, errNotOurs)
		}
	}
	if exact {
		return nil
	}
	return fmt.Errorf("subnet %s is of no network that grapevine has on this host: %w; if `docker network ls` says that the network's driver is another one, remove it, and create it with -d of grapevine as well, or without --ipam-driver; else see `grapevine status`", p, errNotOurs)
}

// knows reports whether a network of ours has a subnet, whatever its state.
func (d *mirror) knows(p netip.Prefix) bool {
	d.core.mu.Lock()
	defer d.core.mu.Unlock()
	for _, list := range []map[string]localNetwork{d.core.local.networks, d.core.local.carried} {
		for _, n := range list {
			if slices.Contains(n.Prefixes, p) {
				return true
			}
		}
	}
	return false
}
