package edit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/egress"
	"github.com/grapevine-net/grapevine/replica"
)

// Set changes an egress. What the request does not name stays. There is an egress all the while, so that nothing leaves
// with the address of a host, as it would if one were removed and created again.
func (d Desk) Set(_ context.Context, r api.SetEgressRequest) (api.Done, error) {
	if reflect.DeepEqual(r, api.SetEgressRequest{Name: r.Name}) {
		return api.Done{}, api.Errorf(http.StatusBadRequest, "egress %.80s: nothing is to be changed: say what, as --gateways or --address (`grapevine egress set --help`)", r.Name)
	}
	var was, e cluster.Egress
	_, err := d.Replica.Update(func(tx *replica.Tx) error {
		var there bool
		if was, there = egress.Get(tx.Snapshot(), r.Name); !there {
			return api.Errorf(http.StatusNotFound, "there is no egress %.80s: see `grapevine egress list`", r.Name)
		}
		var err error
		if e, err = d.changed(was, r); err == nil {
			err = cluster.Validate(e.Body())
		}
		if err != nil {
			return api.Errorf(http.StatusBadRequest, "egress %.80s: %v", r.Name, err)
		}
		if err := fits(tx.Snapshot(), e, was); err != nil || reflect.DeepEqual(e, was) {
			return err
		}
		return tx.Put(e.Body())
	})
	switch {
	case said(err):
		return api.Done{}, err
	case err != nil:
		return api.Done{}, fmt.Errorf("change egress %s: %w", r.Name, err)
	}
	return api.Done{Text: strings.Join(slices.Concat(differs(was, e), d.shut(e), d.unaware(added(e.Networks, was.Networks))), "\n")}, nil
}

// changed is an egress as a request wants it.
func (d Desk) changed(e cluster.Egress, r api.SetEgressRequest) (cluster.Egress, error) {
	if len(r.Networks) > 0 {
		e.Networks = names(r.Networks)
	}
	if len(r.Labels) > 0 {
		if len(e.Labels) == 0 {
			return e, errors.New("it is of all containers of its networks: create another egress with --label, which comes before this one")
		}
		var err error
		if e.Labels, err = d.terms(r.Labels); err != nil {
			return e, err
		}
	}
	switch {
	case r.AllGateways && len(r.Gateways) > 0:
		return e, fmt.Errorf("its gateways are to be all hosts, and %s alone: say one of the two", strings.Join(r.Gateways, ", "))
	case r.AllGateways:
		e.Gateways = nil
	case len(r.Gateways) > 0:
		e.Gateways = names(r.Gateways)
	}
	if r.Quorum != nil {
		e.Quorum = *r.Quorum
	}
	if len(r.Addresses) == 0 {
		return e, nil
	}
	var err error
	e.Addrs, err = parse(r.Addresses)
	return e, err
}

// differs says in words for people what a change is.
func differs(was, e cluster.Egress) (lines []string) {
	say := func(format string, a ...any) {
		lines = append(lines, fmt.Sprintf("egress %s: ", e.Name)+fmt.Sprintf(format, a...))
	}
	if !slices.Equal(was.Addrs, e.Addrs) {
		say("its address is %s, and no longer %s; open connections to the outside by another address end", addresses(e), addresses(was))
	}
	if !slices.Equal(was.Networks, e.Networks) {
		say("it is of %s, and no longer of %s", networks(e), networks(was))
	}
	if !slices.Equal(was.Labels, e.Labels) {
		say("it is of containers with %s, and no longer of those with %s; of a container that leaves by another address now open connections to the outside end", strings.Join(e.Labels, " and "), strings.Join(was.Labels, " and "))
	}
	if !slices.Equal(was.Gateways, e.Gateways) {
		gateways := strings.Join(e.Gateways, ", ")
		if len(e.Gateways) == 0 {
			gateways = "all hosts"
		}
		say("its gateways are %s; if its holder is none of them, another one takes the address", gateways)
	}
	if was.Quorum != e.Quorum {
		say("%s", map[bool]string{true: "only a host that sees more than half of the gateways holds it", false: "a host holds it however few of the gateways it sees"}[e.Quorum])
	}
	if len(lines) == 0 {
		say("it is so already")
	}
	return lines
}

// names are names in order, each once.
func names(list []string) []string { return slices.Compact(slices.Sorted(slices.Values(list))) }
