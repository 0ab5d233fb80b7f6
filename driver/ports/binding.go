package ports

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
)

// Binding leads a port of the host to one of a container. Both are of one family.
type Binding struct {
	Proto Proto
	// Host is what is connected to; of the unspecified address, all of the host's
	// addresses of its family.
	Host netip.AddrPort
	// To is the container's.
	To netip.AddrPort
}

// String is the binding as `docker ps` shows it: "0.0.0.0:8080->80/tcp".
func (b Binding) String() string { return fmt.Sprintf("%s->%d/%s", b.Host, b.To.Port(), b.Proto) }

// Overlaps reports whether a packet could be for both: then only one can be had.
func (b Binding) Overlaps(o Binding) bool {
	x, y := b.Host.Addr(), o.Host.Addr()
	return b.Proto == o.Proto && b.Host.Port() == o.Host.Port() && x.Is4() == y.Is4() &&
		(x == y || x.IsUnspecified() || y.IsUnspecified())
}

// Compare is an order of bindings: by the host's port, then all else.
func (b Binding) Compare(o Binding) int {
	return cmp.Or(cmp.Compare(b.Host.Port(), o.Host.Port()), cmp.Compare(b.Proto, o.Proto),
		b.Host.Addr().Compare(o.Host.Addr()), b.To.Compare(o.To))
}

// TakenError says that somebody has the port of a binding.
type TakenError struct {
	Binding Binding
	// By finds out who; "" if that cannot be known. It may take its time.
	By func() string
}

// Error says port, protocol, who has it and what to do, in words like Docker's own.
func (e *TakenError) Error() string {
	by := e.By()
	if by == "" {
		by = "another process of this host"
	}
	return fmt.Sprintf("bind for %s/%s failed: port is already in use by %s; stop that, or publish another port of the host (-p OTHER:%d)",
		e.Binding.Host, e.Binding.Proto, by, e.Binding.To.Port())
}

func taken(err error) bool {
	_, is := errors.AsType[*TakenError](err)
	return is
}
