package ports

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
)

// Binding leads a port of the host to one of a container, or a run of ports to a run of the
// same length.
type Binding struct {
	Proto Proto
	// Host is what is connected to; of the unspecified address, all of the host's
	// addresses of its family.
	Host netip.AddrPort
	// To is the container's. If it is of the other family, no rule can lead packets there: the
	// host answers, and asks the container.
	To netip.AddrPort
	// More ports than these lead there, each of the host to the one of the container that is as
	// far behind To's: 0 is one port.
	More uint16 `json:",omitempty"`
}

// String is the binding as `docker ps` shows it: "0.0.0.0:8080->80/tcp", or
// "0.0.0.0:8080-8089->80-89/tcp".
func (b Binding) String() string {
	if b.More == 0 {
		return fmt.Sprintf("%s->%d/%s", b.Host, b.To.Port(), b.Proto)
	}
	return fmt.Sprintf("%s-%d->%d-%d/%s", b.Host, b.Host.Port()+b.More, b.To.Port(), b.To.Port()+b.More, b.Proto)
}

// Overlaps reports whether a packet could be for both: then only one can be had.
func (b Binding) Overlaps(o Binding) bool {
	x, y := b.Host.Addr(), o.Host.Addr()
	return b.Proto == o.Proto && b.Host.Port() <= o.last() && o.Host.Port() <= b.last() && x.Is4() == y.Is4() &&
		(x == y || x.IsUnspecified() || y.IsUnspecified())
}

// last is the host's last port.
func (b Binding) last() uint16 { return b.Host.Port() + b.More }

// Crosses reports whether the container's address is of the other family than the host's.
func (b Binding) Crosses() bool { return b.Host.Addr().Is4() != b.To.Addr().Is4() }

// Nth is the binding of the nth port alone.
func (b Binding) Nth(n int) Binding {
	b.Host = netip.AddrPortFrom(b.Host.Addr(), b.Host.Port()+uint16(n))
	b.To = netip.AddrPortFrom(b.To.Addr(), b.To.Port()+uint16(n))
	b.More = 0
	return b
}

// Each yields the bindings of all ports, one each.
func (b Binding) Each() iter.Seq[Binding] {
	return func(yield func(Binding) bool) {
		for n := range int(b.More) + 1 {
			if !yield(b.Nth(n)) {
				return
			}
		}
	}
}

// Runs returns the same bindings in as few runs as can be, in order.
func Runs(list []Binding) (out []Binding) {
	for _, b := range slices.SortedFunc(slices.Values(list), byTarget) {
		if n := len(out) - 1; n >= 0 && out[n].continues(b) {
			out[n].More += b.More + 1
			continue
		}
		out = append(out, b)
	}
	slices.SortFunc(out, Binding.Compare)
	return out
}

// continues reports whether o begins where b ends.
func (b Binding) continues(o Binding) bool {
	return b.Proto == o.Proto && b.Host.Addr() == o.Host.Addr() && b.To.Addr() == o.To.Addr() &&
		int(b.last())+1 == int(o.Host.Port()) && int(b.To.Port())+int(b.More)+1 == int(o.To.Port())
}

func byTarget(a, b Binding) int {
	return cmp.Or(cmp.Compare(a.Proto, b.Proto), a.Host.Addr().Compare(b.Host.Addr()), a.To.Addr().Compare(b.To.Addr()),
		cmp.Compare(a.Host.Port(), b.Host.Port()), cmp.Compare(a.To.Port(), b.To.Port()))
}

// Compare is an order of bindings: by the host's port, then all else.
func (b Binding) Compare(o Binding) int {
	return cmp.Or(cmp.Compare(b.Host.Port(), o.Host.Port()), cmp.Compare(b.Proto, o.Proto),
		b.Host.Addr().Compare(o.Host.Addr()), b.To.Compare(o.To), cmp.Compare(b.More, o.More))
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
