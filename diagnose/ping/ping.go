// Package ping answers `grapevine ping`: whether packets go to another host and back, by the underlay and through the tunnel.
package ping

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/diagnose/probe"
	"github.com/grapevine-net/grapevine/encap"
)

// patience bounds one ping: the call, and what comes back.
const patience = 8 * time.Second

// Desk is where people ask for pings of other hosts.
type Desk struct {
	Nodes    func() []api.Node
	Prober   *probe.Prober
	InnerMTU func() int // of this host's containers
	Encap    encap.Kind
	Lost     func(host string) string // what is lost of what is encrypted on its way to a host
}

// Ping answers GET /v1/ping.
func (d Desk) Ping(ctx context.Context, host string) (api.Ping, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var to api.Node
	for _, n := range d.Nodes() {
		if n.Name == host || n.ID == host || n.VTEP.String() == host || n.Underlay().String() == host {
			to = n
		}
	}
	switch {
	case to.ID == "":
		return api.Ping{}, api.Errorf(http.StatusNotFound, "there is no host %s: `grapevine nodes` lists them", host)
	case to.Self:
		return api.Ping{}, &api.Error{Status: http.StatusBadRequest, Message: host + " is this host: name another one"}
	}
	pong, err := d.Prober.Ping(ctx, to.ID, min(d.InnerMTU(), d.innerMTUOf(to)))
	out := pinged(to, pong, err)
	if out.Error == "" {
		out.Encrypted = d.Lost(to.ID)
	}
	return out, nil
}

// innerMTUOf is the MTU of containers on another host.
func (d Desk) innerMTUOf(n api.Node) int {
	if n.MTU == 0 {
		return d.InnerMTU()
	}
	return n.MTU - d.Encap.Overhead(n.VTEP)
}

// pinged is pure: what is said of a ping.
func pinged(to api.Node, pong probe.Pong, err error) api.Ping {
	p := api.Ping{Host: to.Name, VTEP: to.VTEP}
	switch {
	case errors.Is(err, probe.ErrOld):
		p.Error = "its agent is of an older version, which answers no ping: `grapevine doctor` tries the ways to it"
		return p
	case err != nil && !to.Alive:
		p.Error = "it does not answer, as `grapevine status` says: " + err.Error()
		return p
	case errors.Is(err, syscall.ECONNREFUSED):
		p.Error = fmt.Sprintf("its agent does not run: nothing listens at TCP %s", to.Gossip)
		return p
	case err != nil:
		p.Error = fmt.Sprintf("it could not be asked, by TCP to %s: %v", to.Gossip, err)
		return p
	}
	echo := func(e probe.Echo) api.Echo {
		out := api.Echo{Bytes: e.Size, Milliseconds: float64(e.Took.Microseconds()) / 1000}
		switch {
		case e.Err != nil:
			out.Lost = "could not be sent: " + e.Err.Error()
		case e.Took > 0:
			out.Milliseconds = max(out.Milliseconds, 0.001)
		case e.Arrived:
			out.Lost = fmt.Sprintf("arrived at %s, and the answer was lost", to.Name)
		default:
			out.Lost = "did not arrive at " + to.Name
		}
		return out
	}
	p.Underlay, p.Tunnel, p.Full = echo(pong.Underlay), echo(pong.Tunnel), echo(pong.Full)
	return p
}
