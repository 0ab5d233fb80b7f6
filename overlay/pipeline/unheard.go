package pipeline

import (
	"net/netip"
	"slices"
)

// Unheard is an address of a local endpoint that another one had before, and ranges of hosts which may not have heard of that: rules
// there would take the one for the other. Nothing passes between the address and the ranges, in either direction.
type Unheard struct {
	Endpoint string
	Addr     netip.Addr
	Ranges   []netip.Prefix // of the address's family
}

func (u Unheard) equal(o Unheard) bool {
	return u.Endpoint == o.Endpoint && u.Addr == o.Addr && slices.Equal(u.Ranges, o.Ranges)
}

// forwardUnheard drops what is between an address and hosts that may not have heard whose it is. To endpoints of this host all of its
// packets go, and to the host, to the outside and to groups, of which no endpoint with rules gets any.
func forwardUnheard(c *compiler) {
	for _, u := range c.in.Unheard {
		for _, r := range u.Ranges {
			c.drop(Forwarding, forwardingUnheardIn, DropUnheard, match{}.reg(regClass, classTunnel).ipSrc(r).andDst(host(u.Addr)))
			c.drop(Forwarding, forwardingUnheardOut, DropUnheard, match{}.reg(regClass, classEndpoint).ipSrc(host(u.Addr)).andDst(r))
		}
	}
}
