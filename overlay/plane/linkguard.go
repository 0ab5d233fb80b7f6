package plane

import (
	"errors"
	"fmt"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/overlay"
)

// linkGuard sees whether the host's interfaces of containers are as they were made: the
// port of the bridge, and in userspace the two beside it (userspaceLinks). It implements
// overlay.Links.
type linkGuard struct{ userspace bool }

func (p *Plane) linkGuard() overlay.Links {
	return linkGuard{userspace: p.Bridge.Datapath == ovs.Userspace}
}

// names are a port's interfaces, the container's end of them last.
func (g linkGuard) names(port string) []string {
	if !g.userspace {
		return []string{port}
	}
	return []string{port, link.Beside(link.InnerPrefix, port), link.Beside(link.OuterPrefix, port)}
}

// Missing implements overlay.Links.
func (g linkGuard) Missing(port string) (list []string) {
	for _, name := range g.names(port) {
		switch l, err := link.Get(name); {
		case errors.Is(err, link.ErrNotFound):
			return nil // nothing can put it back: unlinked says it
		case err == nil && !l.Up:
			list = append(list, fmt.Sprintf("the interface %s of a container is down", name))
		}
	}
	for _, name := range g.unprogrammed(port) {
		list = append(list, fmt.Sprintf("the program of the interface %s of a container is gone (tc)", name))
	}
	return list
}

// unprogrammed are the interfaces that have lost the program that hands packets on.
func (g linkGuard) unprogrammed(port string) (names []string) {
	if !g.userspace {
		return nil
	}
	if !link.Consumes(port) {
		names = append(names, port)
	}
	for _, name := range g.names(port)[1:] {
		if !link.Splices(name) {
			names = append(names, name)
		}
	}
	return names
}

// Mend implements overlay.Links.
func (g linkGuard) Mend(port string) error {
	var errs []error
	in, out := link.Beside(link.InnerPrefix, port), link.Beside(link.OuterPrefix, port)
	for _, name := range g.unprogrammed(port) {
		switch name {
		case port:
			errs = append(errs, link.Consume(port))
		case in:
			errs = append(errs, link.Splice(in, out))
		case out:
			errs = append(errs, link.Splice(out, in))
		}
	}
	for _, name := range g.names(port) {
		if l, err := link.Get(name); err == nil && !l.Up {
			errs = append(errs, link.Up(name))
		}
	}
	return errors.Join(errs...)
}
