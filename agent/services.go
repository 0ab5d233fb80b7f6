package agent

import (
	"github.com/grapevine-net/grapevine/dns"
	"github.com/grapevine-net/grapevine/driver"
	"github.com/grapevine-net/grapevine/ipam"
	"github.com/grapevine-net/grapevine/service/edit"
	"github.com/grapevine-net/grapevine/service/inside"
)

// lead makes what leads containers' connections to services, before the resolver tells anybody of these.
func (n *naming) lead(next *dns.Server) {
	n.services = inside.New(inside.Config{Source: n.replica, Hosts: n.hosts.Of, Next: next, Off: n.unserved != "", Log: n.log.With("room", "services")})
}

// desk is what people do with services here.
func (n *naming) desk(alloc *ipam.Allocator) edit.Desk {
	return edit.Desk{Name: n.host, Replica: n.replica, Addresses: alloc.ServiceAddresses, Published: driver.Published, Hosts: n.hosts.Of, Lacks: n.unserved, Reserved: n.reserved, Self: n.hosts.Self, Heeds: n.heed.Heeds}
}
