package plane

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/host/ipsec"
	"github.com/grapevine-net/grapevine/host/link"
)

// withoutIPsec are the hosts to which nothing passes, since no policy of this host protects what goes there and comes from
// there. What they have themselves they say.
func withoutIPsec(c Config, snap *cluster.Snapshot) []api.Problem {
	const do = "have a policy for VXLAN each way (`ip xfrm policy`; strongSwan: a child of type transport with start or trap): docs/use/encryption.md"
	unprotected := func(what string) []api.Problem {
		return []api.Problem{{Code: api.IPsecMissing, What: what, Do: do}}
	}
	device, err := link.Get(c.Underlay.Interface)
	if err != nil {
		return nil // the underlay's own problem
	}
	if err := ipsec.Disabled(c.Underlay.Interface); err != nil {
		return []api.Problem{{Code: api.IPsecMissing, What: "what goes to other hosts is to go by IPsec (GRAPEVINE_IPSEC), and this host passes IPsec by: " + err.Error(), Do: "set it to 0 (`sysctl -w`)"}}
	}
	var policies [2][]netlink.XfrmPolicy
	for i := range policies {
		if policies[i], err = ipsec.Policies(i == 1); err != nil {
			return unprotected("what goes to other hosts is to go by IPsec (GRAPEVINE_IPSEC), and it is not known what this host protects: " + err.Error())
		}
	}
	here := Here(c.Settings, c.Underlay)
	var names []string
	var first error
	others := 0
	for n := range cluster.All[cluster.Node](snap) {
		there := n.Tunnel().Unmap()
		if n.ID == c.Self || !there.IsValid() {
			continue
		}
		others++
		of := policies[0]
		if there.Is6() {
			of = policies[1]
		}
		err := ipsec.Unprotected(of, ipsec.Way{Here: here, There: there, Port: c.Settings.VXLANPort, Device: device.Index})
		if err == nil {
			continue
		}
		names = append(names, cmp.Or(n.Name, string(n.ID)))
		if first == nil {
			first = err
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	if errors.Is(first, ipsec.ErrBare) { // the rules ask whether there is a transformation, and not which
		return unprotected(fmt.Sprintf("IPsec does not encrypt what containers here and those of %s send each other, and it may pass so, where AH or IPComp is what is asked for: %v", words.SomeHosts(names, others), first))
	}
	return unprotected(fmt.Sprintf("IPsec does not protect what containers here and those of %s send each other, and so nothing passes (GRAPEVINE_IPSEC): %v", words.SomeHosts(names, others), first))
}

// Here is the address with which what this host sends to others leaves it, which NAT may change on the way.
func Here(settings config.Config, underlay link.Underlay) netip.Addr {
	here := settings.Bind.Unmap().WithZone("")
	if !here.IsValid() || here.IsUnspecified() {
		here = underlay.Addr.Unmap()
	}
	return here
}
