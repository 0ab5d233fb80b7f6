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
	endpoints := worlds.Endpoints(d.Replica.Snapshot())
	p, err := plain.Allow(r.From, r.To, endpoints)
	if err != nil {
		return api.Done{}, api.Errorf(http.StatusBadRequest, "%v", err)
	}
	if err := unsigned(d.Replica.Snapshot(), "`grapevine policy apply`"); err != nil {
		return api.Done{}, api.Errorf(http.StatusForbidden, "%v. This would be it:\n%s", err, k8s.Format(p))
	}
	done, err := d.Apply(ctx, api.ApplyRequest{Text: string(k8s.Format(p))})
	if err == nil {
		done.Text += "\n" + r.To + " takes calls of those alone that policies allow: see `grapevine policy list`"
		if plain.Nobody(r.From, endpoints) {
			done.Text += "\nthere is no " + r.From + " yet: if that is a mistake, `grapevine policy delete netpol " + p.Key.Network + "/" + p.Key.Name + "`"
		}
	}
	return done, err
}
