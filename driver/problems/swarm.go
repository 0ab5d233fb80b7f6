package problems

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/encap"
	"github.com/grapevine-net/grapevine/host/docker"
)

// swarmPatience bounds the question for the swarm: a manager without a quorum takes long.
const swarmPatience = time.Second

// Swarm knows this host's part in a Docker swarm.
type Swarm struct {
	Docker *docker.Client
	last   atomic.Pointer[docker.Swarm]
}

// Problems are for status; port is that of VXLAN.
func (w *Swarm) Problems(ctx context.Context, port uint16) []api.Problem {
	return swarmProblems(w.ask(ctx), port)
}

// ask returns this host's part in a Docker swarm; if Docker does not say, what it
// said last.
func (w *Swarm) ask(ctx context.Context) docker.Swarm {
	ctx, cancel := context.WithTimeout(ctx, swarmPatience)
	defer cancel()
	if w.Docker != nil {
		if s, err := w.Docker.Swarm(ctx); err == nil {
			w.last.Store(&s)
		}
	}
	if s := w.last.Load(); s != nil {
		return *s
	}
	return docker.Swarm{}
}

// swarmPort is the UDP port of a swarm's overlay networks, unless it was begun with
// --data-path-port: that of VXLAN.
var swarmPort = encap.VXLAN.Port

// swarmProblems are those of a host that is part of a Docker swarm as well. The kernel
// gives the port to who comes first, and the other one's containers get no interface, or
// reach no other host.
func swarmProblems(s docker.Swarm, port uint16) []api.Problem {
	said, theirs := "", s.VXLANPort
	if theirs == 0 {
		said, theirs = " (Docker tells the swarm's port on its managers only; this is taken for it)", swarmPort
	}
	if !s.Active || theirs != port {
		return nil
	}
	return []api.Problem{{
		Code: api.EncapPortShared,
		What: fmt.Sprintf("Docker Swarm is active on this host, and its overlay networks use UDP port %d as well: only one of the two can have it%s", theirs, said),
		Do:   "set GRAPEVINE_VXLAN_PORT to another one, such as 4790, the same on every host",
	}}
}
