package edit

import (
	"context"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/view"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/policy"
)

// replay says what would have become of the connections that all hosts have seen. Where none was counted yet, counting begins.
func (d Desk) replay(ctx context.Context, snap *cluster.Snapshot, list []policy.Policy) (*api.Replay, error) {
	t, err := d.Traffic(ctx, true)
	if err != nil {
		return nil, err
	}
	out := view.Replay(snap, d.Self, d.told(), list, seen(t.Connections), hosts(snap))
	out.Notes = counted(t)
	return &out, nil
}
