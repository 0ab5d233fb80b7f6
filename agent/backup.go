package agent

import (
	"context"
	"io"
	"time"

	"github.com/grapevine-net/grapevine/membership/backup"
)

// backup writes this host's state to w.
func (a *Agent) backup(_ context.Context, w io.Writer) error {
	return backup.Write(w, backup.Manifest{
		Node: a.id.Node, Cluster: a.gossip.ClusterID(), Name: a.cfg.Name, Agent: a.version, Made: time.Now().UTC(),
	}, a.cfg.State, a.db)
}
