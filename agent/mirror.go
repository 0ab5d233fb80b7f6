package agent

import (
	"errors"
	"fmt"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/packets"
	"github.com/grapevine-net/grapevine/observe/mirror"
)

// mirroring is what this host does for copies of a container's packets.
type mirroring struct{ agent *Agent }

// desk makes where mirrors are begun.
func (m mirroring) desk() *mirror.Desk {
	a := m.agent
	return mirror.New(mirror.Config{Self: a.self(), Snapshot: func() *cluster.Snapshot { return a.replica.Snapshot() }, Open: m.open, Log: a.log})
}

// open copies what endpoints send and get to a device inside the container of another one.
func (m mirroring) open(from []cluster.Endpoint, to cluster.Endpoint) (mirror.Copy, error) {
	target := sandboxOf(m.agent.driver, to.ID)
	if target == "" {
		return nil, errors.New("the one that is to get them does not run: start it first (a client can get none)")
	}
	var inside []link.Link
	var sandboxes []string
	mtu := 0
	for _, e := range from {
		sandbox := sandboxOf(m.agent.driver, e.ID)
		switch sandbox {
		case "":
			return nil, errors.New("it does not run: start it first (of a client nothing can be mirrored)")
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
