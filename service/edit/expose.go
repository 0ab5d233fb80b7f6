package edit

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
	"github.com/grapevine-net/grapevine/service"
	"github.com/grapevine-net/grapevine/service/expose"
)

// Expose has all hosts answer ports for a service, or no more.
func (d Desk) Expose(_ context.Context, r api.ExposeRequest) (api.Done, error) {
	listed, ok := d.find(r.Name)
	if !ok {
		return api.Done{}, d.unknown(r.Name)
	}
	key := listed.Key()
	said := ""
	_, err := d.Replica.Update(func(tx *replica.Tx) error {
		s, there := cluster.Get[cluster.Service](tx.Snapshot(), key.ID)
		if !there {
			return d.unknown(r.Name)
		}
		before := slices.Clone(s.Exposed)
		s.Exposed = slices.Clone(s.Exposed)
		var err error
		if r.Not {
			said, err = hide(&s, r.Ports)
		} else {
			said, err = d.show(tx.Snapshot(), &s, r.Ports)
		}
		if err != nil || slices.Equal(before, s.Exposed) {
			return err
		}
		if err := cluster.Validate(s); err != nil {
			return api.Errorf(http.StatusBadRequest, "expose service %s: %v", key.ID, err)
		}
		return tx.Put(s)
	})
	if err != nil {
		if _, ok := err.(*api.Error); ok { //nolint:errorlint // ours, as it is
			return api.Done{}, err
		}
		return api.Done{}, fmt.Errorf("expose service %s: %w", key.ID, err)
	}
	return api.Done{Text: said}, nil
}

// show adds ports of all hosts to what a service has.
func (d Desk) show(snap *cluster.Snapshot, s *cluster.Service, ports []string) (said string, err error) {
	at := s.Key().ID
	if n, _ := cluster.Get[cluster.Network](snap, s.Network); n.Internal {
		return "", api.Errorf(http.StatusConflict, "expose service %s: its network %s is internal, and has no way to the outside: make the service on another one", at, s.Network)
	}
	if len(ports) == 0 {
		return "", api.Errorf(http.StatusBadRequest, "expose service %s: no port: write one of %s", at, portTexts(s.Ports))
	}
	for _, text := range ports {
		x, err := service.ParsePort(text)
		if err != nil {
			return "", api.Errorf(http.StatusBadRequest, "expose service %s: %v", at, err)
		}
		if !slices.ContainsFunc(s.Ports, func(p cluster.ServicePort) bool { return p.Proto == x.Proto && p.Port == x.Target }) {
			return "", api.Errorf(http.StatusBadRequest, "expose service %s: it has no port %d/%s, only %s: write HOST-PORT:SERVICE-PORT/PROTOCOL with one of these", at, x.Target, x.Proto, portTexts(s.Ports))
		}
		if why := d.Reserved[fmt.Sprintf("%d/%s", x.Port, x.Proto)]; why != "" {
			return "", api.Errorf(http.StatusConflict, "expose service %s: port %d/%s of all hosts is %s: take another one, as in 1%04d:%d", at, x.Port, x.Proto, why, x.Port%10000, x.Target)
		}
		for _, e := range expose.All(snap) {
			// What labels ask for comes after services.
			if e.Service != "" && e.Port == (expose.Port{UDP: x.Proto == "udp", Port: x.Port}) && (e.Network != s.Network || e.Service != s.Name) {
				return "", api.Errorf(http.StatusConflict, "expose service %s: port %s of all hosts leads to %s already: take another one, or end that first", at, e.Text(), e.Name())
			}
		}
		s.Exposed = slices.DeleteFunc(s.Exposed, func(o cluster.ServicePort) bool { return o.Proto == x.Proto && o.Port == x.Port })
		s.Exposed = append(s.Exposed, x)
	}
	said = fmt.Sprintf("every host answers %s for service %s", portTexts(s.Exposed), at)
	if unable := d.unable(snap, *s); len(unable) > 0 {
		said += fmt.Sprintf("\nits containers on host %s answer by that host alone: its agent or its switch cannot answer by others", strings.Join(unable, ", "))
	}
	return said, nil
}

// unable are the hosts of a service's containers that cannot answer by another host.
func (d Desk) unable(snap *cluster.Snapshot, s cluster.Service) (names []string) {
	for e := range cluster.All[cluster.Endpoint](snap) {
		if e.Network != s.Network || !service.Selects(s, e) {
			continue
		}
		if n, ok := cluster.Get[cluster.Node](snap, string(e.Host)); ok && !n.Exposes && !slices.Contains(names, n.Name) {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names
}

// hide takes ports of all hosts from a service, all if none is named.
func hide(s *cluster.Service, ports []string) (said string, err error) {
	at := s.Key().ID
	if len(ports) == 0 {
		s.Exposed = nil
		return fmt.Sprintf("no host answers for service %s any more", at), nil
	}
	for _, text := range ports {
		x, err := service.ParsePort(text)
		if err != nil {
			return "", api.Errorf(http.StatusBadRequest, "unexpose service %s: %v", at, err)
		}
		n := len(s.Exposed)
		s.Exposed = slices.DeleteFunc(s.Exposed, func(o cluster.ServicePort) bool { return o.Proto == x.Proto && o.Port == x.Port })
		if len(s.Exposed) == n {
			return "", api.Errorf(http.StatusNotFound, "unexpose service %s: no host answers %d/%s for it: see `grapevine service show %s`", at, x.Port, x.Proto, at)
		}
	}
	return fmt.Sprintf("no host answers %s for service %s any more", strings.Join(ports, " and "), at), nil
}

func portTexts(ports []cluster.ServicePort) string {
	var list []string
	for _, p := range ports {
		list = append(list, service.PortText(p))
	}
	return strings.Join(list, ", ")
}
