package limit

import (
	"errors"
	"fmt"
	"maps"
	"net/http"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
)

// made is asked for in place of a limit: what the network was made with.
const made = "made"

// network changes what each container of a network may send and get, on all hosts, or says what that is.
func (d Desk) network(r api.LimitRequest) (api.Done, error) {
	asked := options(r)
	lags := false
	for option, text := range asked {
		if text == cluster.NoLimit || text == made {
			continue
		}
		var one cluster.Limits
		if err := one.Set(option, text); err != nil {
			return api.Done{}, api.Errorf(http.StatusBadRequest, "limit network %.80s: %v", r.Network, err)
		}
		lags = lags || one.Lags()
	}
	if lags && d.CanLag != nil {
		if err := d.CanLag(); err != nil {
			return api.Done{}, api.Errorf(http.StatusBadRequest, "limit network %.80s: nothing is changed: %v", r.Network, err)
		}
	}
	find := func(snap *cluster.Snapshot) (n cluster.Network, err error) {
		n, there := cluster.Get[cluster.Network](snap, r.Network)
		if !there || n.Provisional() {
			err = api.Errorf(http.StatusNotFound, "there is no network %.80s: see `grapevine networks`", r.Network)
		}
		return n, err
	}
	if len(asked) > 0 {
		_, err := d.Replica.Update(func(tx *replica.Tx) error {
			n, err := find(tx.Snapshot())
			if err != nil {
				return err
			}
			said, _ := cluster.Get[cluster.NetworkLimits](tx.Snapshot(), n.Name)
			now := cluster.NetworkLimits{Network: n.Name, VNID: n.VNID, Made: n.Made, Options: map[string]string{}, Author: d.Name}
			if said.Applies(n) {
				maps.Copy(now.Options, said.Options)
			}
			maps.Copy(now.Options, asked)
			maps.DeleteFunc(now.Options, func(_, text string) bool { return text == made })
			if len(now.Options) == 0 {
				tx.Delete(now.Key())
				return nil
			}
			return tx.Put(now)
		})
		if _, said := errors.AsType[*api.Error](err); err != nil && !said {
			err = fmt.Errorf("limit network %s: %w", r.Network, err)
		}
		if err != nil {
			return api.Done{}, err
		}
	}
	snap := d.Replica.Snapshot()
	n, err := find(snap)
	if err != nil {
		return api.Done{}, err
	}
	return api.Done{Text: fmt.Sprintf("each container on network %s without limits of its own %s", n.Name, limitWords(cluster.LimitsOf(snap, n)))}, nil
}
