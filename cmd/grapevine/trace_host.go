package main

import (
	"fmt"
	"strings"

	"github.com/grapevine-net/grapevine/api"
)

// hostNote says of an end that is a host's own address whose it is, and to which container a published port of this host
// leads; "": it is none's. Policies and switch see such a connection as one to the host.
func hostNote(e api.Explanation, nodes []api.Node, endpoints []api.Endpoint) string {
	if e.To.Host != "" {
		return ""
	}
	for _, n := range nodes {
		if n.VTEP.Unmap() != e.To.Addr.Unmap() {
			continue
		}
		is := fmt.Sprintf("%s is host %s itself", e.To.Addr, n.Name)
		for _, end := range endpoints {
			for _, p := range end.Ports {
				for i := range p.More + 1 {
					if n.Self && strings.EqualFold(e.What, fmt.Sprintf("port %d/%s", p.Host.Port()+i, p.Proto)) && (p.Host.Addr().IsUnspecified() || p.Host.Addr() == n.VTEP) {
						return is + fmt.Sprintf(", where this port is published for container %s: it leads to its port %d", end.Name, p.Container+i)
					}
				}
			}
		}
		if !n.Self {
			is += "; whether a container has this port published, `grapevine ps` there says"
		}
		return is
	}
	return ""
}
