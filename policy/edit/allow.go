package edit

import (
	"context"
	"net/http"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/policy/k8s"
	"github.com/grapevine-net/grapevine/policy/plain"
	"github.com/grapevine-net/grapevine/policy/worlds"
)

// Allow applies a policy that lets one thing pass.
func (d Desk) Allow(ctx context.Context, r api.AllowRequest) (api.Done, error) {
	p, err := plain.Allow(r.From, r.To, worlds.Endpoints(d.Replica.Snapshot()))
	if err != nil {
		return api.Done{}, wrong(http.StatusBadRequest, "%v", err)
	}
	done, err := d.Apply(ctx, api.ApplyRequest{Text: string(k8s.Format(p))})
	if err == nil {
		done.Text += "\n" + r.To + " takes calls of those alone that policies allow: see `grapevine policy list`"
	}
	return done, err
}
