// Package taps opens what is looked at: the ends of containers' interfaces in their sandboxes, and the interface that leads to other hosts.
package taps

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/net/bpf"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/packets"
	"github.com/grapevine-net/grapevine/observe/capture"
	"github.com/grapevine-net/grapevine/observe/frames"
	"github.com/grapevine-net/grapevine/observe/mirror"
	"github.com/grapevine-net/grapevine/observe/trace"
)

// Taps are those of one host.
type Taps struct {
	// Sandbox is the network namespace of a container of this host, "" if it does not run, and Client that in which a client's
	// interface is.
	Sandbox, Client func(endpoint string) string
	Underlay        string        // the interface that leads to other hosts
	Encryption      func() string // how what leaves by it is encrypted; "": it is not
}

var errStopped = errors.New("it does not run: start it first")

// Capture reads the packets at the container's end of an endpoint.
func (t Taps) Capture(endpoint string, filter []bpf.RawInstruction) (capture.Tap, capture.Place, error) {
	sandbox := t.Sandbox(endpoint)
	if sandbox == "" {
		sandbox = t.Client(endpoint)
	}
	if sandbox == "" {
		return nil, capture.Place{}, errStopped
	}
	inside, err := link.Inside(endpoint, sandbox)
	if err != nil {
		return nil, capture.Place{}, err
	}
	tap, err := packets.Open(sandbox, inside.Index, filter)
	if err != nil {
		return nil, capture.Place{}, err
	}
	return tap, capture.Place{Name: inside.Name, MAC: inside.MAC}, nil
}

// Trace reads there for a trace.
func (t Taps) Trace(endpoint string, filter []bpf.RawInstruction) (trace.Tap, string, error) {
	tap, place, err := t.Capture(endpoint, filter)
	return tap, place.Name, err
}

// Wire reads what goes to other hosts and comes from there.
func (t Taps) Wire(filter []bpf.RawInstruction) (trace.Tap, string, error) {
	if t.Encryption() != "" {
		return nil, "", errors.New("what leaves it is encrypted")
	}
	l, err := link.Get(t.Underlay)
	if err != nil {
		return nil, t.Underlay, err
	}
	tap, err := packets.Open("/proc/self/ns/net", l.Index, filter)
	return tap, t.Underlay, err
}

// Send sends a packet as a program in the container would.
func (t Taps) Send(endpoint string, p frames.Probe) error {
	sandbox := t.Sandbox(endpoint)
	if sandbox == "" {
		return fmt.Errorf("%w (of a client none can be sent)", errStopped)
	}
	return packets.Send(sandbox, p.Src, p.Dst, p.Proto, p.Body())
}

// Routed fails if a container has no route from its address to another one.
func (t Taps) Routed(endpoint string, from, to netip.Addr) error {
	sandbox := t.Sandbox(endpoint)
	if sandbox == "" {
		return errStopped
	}
	return packets.Routed(sandbox, from, to)
}

// Mirror copies what endpoints send and get to a device inside the container of another one.
func (t Taps) Mirror(from []cluster.Endpoint, to cluster.Endpoint) (mirror.Copy, error) {
	target := t.Sandbox(to.ID)
	if target == "" {
		return nil, errors.New("the one that is to get them does not run: start it first (a client can get none)")
	}
	var inside []link.Link
	var sandboxes []string
	mtu := 0
	for _, e := range from {
		sandbox := t.Sandbox(e.ID)
		switch sandbox {
		case "":
			return nil, fmt.Errorf("%w (of a client nothing can be mirrored)", errStopped)
		case target:
			return nil, errors.New("both are in one sandbox: name a container with a network of its own")
		}
		l, err := link.Inside(e.ID, sandbox)
		if err != nil {
			return nil, err
		}
		inside, sandboxes, mtu = append(inside, l), append(sandboxes, sandbox), max(mtu, l.MTU)
	}
	c, err := packets.NewCopy(target, mtu)
	if err != nil {
		return nil, err
	}
	for i, l := range inside {
		if err := c.Add(sandboxes[i], l.Index); err != nil {
			_ = c.Close()
			return nil, fmt.Errorf("copy what %s sends and gets: %w", l.Name, err)
		}
	}
	return c, nil
}
