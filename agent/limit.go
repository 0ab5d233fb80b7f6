package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/view"
	"github.com/grapevine-net/grapevine/cluster"
)

// limiting changes what this host's containers may send and get.
type limiting struct{ agent *Agent }

// limit is the verb of that name.
func (l limiting) limit(_ context.Context, r api.LimitRequest) (api.Done, error) {
	refuse := func(err error) (api.Done, error) {
		return api.Done{}, api.Errorf(http.StatusBadRequest, "limit %.80s: %v", r.Container, err)
	}
	egress, err := ownRate(r.Egress)
	ingress, errIn := ownRate(r.Ingress)
	switch err := errors.Join(err, errIn); {
	case err != nil:
		return refuse(err)
	case egress == nil && ingress == nil:
		return refuse(errors.New("to what? add --egress 10mbit, --ingress 10mbit, or none in place of a rate"))
	}
	snap := l.agent.replica.Snapshot()
	list, err := l.endpoints(snap, r)
	if err != nil {
		return refuse(err)
	}
	var lines []string
	for _, e := range list {
		if err := l.agent.driver.SetLimits(e.ID, egress, ingress); err != nil {
			return api.Done{}, fmt.Errorf("limit %s on network %s: %w", e.Name, e.Network, err)
		}
		snap := l.agent.replica.Snapshot()
		now, _ := cluster.Get[cluster.Endpoint](snap, e.ID)
		sends, gets := snap.Limits(now)
		said := func(r cluster.Rate) string { return cmp.Or(r.String(), "as much as it can") }
		lines = append(lines, fmt.Sprintf("%s on network %s sends at most %s, and gets at most %s", e.Name, e.Network, said(sends), said(gets)))
	}
	return api.Done{Text: strings.ReplaceAll(strings.Join(lines, "\n"), "at most as much", "as much")}, nil
}

// ownRate reads a rate, or that there is none, 0; nil: nothing is said.
func ownRate(text string) (*cluster.Rate, error) {
	switch text {
	case "":
		return nil, nil
	case "none":
		return new(cluster.Rate), nil
	}
	r, err := cluster.ParseRate(text)
	return &r, err
}

// endpoints are those that a request is about, all of this host.
func (l limiting) endpoints(snap *cluster.Snapshot, r api.LimitRequest) (list []cluster.Endpoint, err error) {
	all, err := view.EndpointsOf(snap, r.Container)
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		switch {
		case e.Container != all[0].Container:
			return nil, fmt.Errorf("several containers are called so, %.12s and %.12s: name one by its ID (`grapevine ps` lists them)", all[0].Container, e.Container)
		case e.Host != l.agent.self():
			return nil, fmt.Errorf("it is on host %s: run it there, or with -H ssh://root@%s", snap.HostName(e.Host), snap.HostName(e.Host))
		case len(e.Client) > 0:
			return nil, errors.New("it is a client, of which nothing is limited")
		case r.Network == "" || e.Network == r.Network:
			list = append(list, e)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("it is not on network %.80s: see `grapevine show %.80s`", r.Network, r.Container)
	}
	if l.agent.driver == nil {
		return nil, errors.New("the agent is starting, or this host has no containers: try again")
	}
	return list, nil
}
