package agent

import (
	"context"
	"net/netip"
	"strings"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/view"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/gossip"
)

func (a *Agent) handlers() api.Handlers {
	return api.Handlers{
		Status: a.status,
		Nodes: func(context.Context) ([]api.Node, error) {
			return a.member.Nodes(a.replica.Snapshot()), nil
		},
		Networks: func(context.Context) ([]api.Network, error) {
			snap := a.replica.Snapshot()
			return a.here(a.reached.Note(view.Networks(snap), snap)), nil
		},
		Endpoints: a.endpoints,
		Ring: func(context.Context) ([]api.Pool, error) {
			return view.Pools(a.replica.Snapshot(), a.member.CIDRs()...), nil
		},
		Flows:       a.plane.Flows,
		Doctor:      a.doctor,
		JoinCommand: a.joinCommand,
		Leave:       a.leave,
		Join:        a.join,
		Forget:      a.member.Forget,
		Keys:        a.member.Keys.List,
		Backup:      a.member.Backup,
		ChangeKeys:  a.member.Keys.Change,
		FastPath:    a.plane.SwitchFastPath,
		Metrics:     a.exporter.Handler(),
	}
}

// joinListLength is how many hosts a join command names: enough that one is there.
const joinListLength = 5

// joinCommand names this host first, then others that are alive.
func (a *Agent) joinCommand(ctx context.Context) (api.JoinCommand, error) {
	self, err := a.selfPlugin(ctx)
	if err != nil {
		return api.JoinCommand{}, err
	}
	snap := a.replica.Snapshot()
	join := []string{a.address(a.gossip.Addr())}
	for _, id := range a.gossip.Alive() {
		if n, ok := cluster.Get[cluster.Node](snap, id); ok && len(join) < joinListLength {
			join = append(join, a.address(n.Gossip))
		}
	}
	line := strings.Join(append([]string{"GRAPEVINE_JOIN=" + strings.Join(join, ",")}, a.cfg.Shared()...), " ")
	key := keyCommand(gossip.FormatKey(a.gossip.ListKeys()[0]))
	return api.JoinCommand{
		Plugin:  key + pluginCommand(self, line),
		Service: key + "scripts/install-service " + line,
	}, nil
}

// keyCommand puts the gossip key where an agent looks for it and nobody but root: as a setting it
// would be in the command line of a process, and in what Docker tells of a plugin.
func keyCommand(key string) string {
	return "(umask 077; mkdir -p " + hostState + "; echo " + key + " > " + hostState + "/key) && "
}

// hostState is the state directory on hosts that nobody has told another.
const hostState = "/var/lib/grapevine"

// address leaves the default port out.
func (a *Agent) address(at netip.AddrPort) string {
	if at.Port() == a.cfg.Port {
		return at.Addr().String()
	}
	return at.String()
}
