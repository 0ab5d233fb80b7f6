package edit

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/egress"
)

// terms reads what is asked for of labels, in the one spelling and order that equal ones have.
func (d Desk) terms(texts []string) (list []string, err error) {
	for _, text := range texts {
		s, err := egress.Parse([]string{text})
		if err != nil {
			return nil, fmt.Errorf("its --label: %w", err)
		}
		if !d.Published(s[0].Key) {
			return nil, fmt.Errorf("the label %.80s is told to no other host, so that nothing would be selected by it; of Compose's labels those of the project and of the service are", s[0].Key)
		}
		if strings.HasPrefix(s[0].Key, "grapevine.io/") && s[0].Key != "grapevine.io/name" && s[0].Key != "grapevine.io/host" {
			return nil, fmt.Errorf("no container has the label %.80s: of those that begin with grapevine.io/ there are grapevine.io/name and grapevine.io/host", s[0].Key)
		}
		list = append(list, s[0].Expression())
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// whose says for people whose egress one is.
func whose(e cluster.Egress) string {
	if len(e.Labels) == 0 {
		return networks(e)
	}
	return networks(e) + " with " + strings.Join(e.Labels, " and ")
}

// after says how its containers leave without an egress.
func after(e cluster.Egress) string {
	if len(e.Labels) == 0 {
		return fmt.Sprintf("containers of %s reach the outside from the addresses of their own hosts", networks(e))
	}
	return fmt.Sprintf("containers of %s reach the outside by the egress of their network, or from the addresses of their own hosts", whose(e))
}

// knowable is an error if an agent does not know of egresses that ask for labels: its host's containers would leave by
// their own host.
func knowable(snap *cluster.Snapshot, e cluster.Egress) error {
	older := unknowing(snap, e)
	if len(older) == 0 {
		return nil
	}
	return api.Errorf(http.StatusConflict, "egress %.80s: hosts with an older agent know of no --label, and their containers would leave by their own addresses: %s; upgrade their agents first", e.Name, strings.Join(older, ", "))
}

// unknowing names the hosts whose agents do not know that an egress asks for labels.
func unknowing(snap *cluster.Snapshot, e cluster.Egress) (names []string) {
	if len(e.Labels) == 0 {
		return nil
	}
	for n := range cluster.All[cluster.Node](snap) {
		if !n.LabelEgress && !n.Edge {
			names = append(names, fmt.Sprintf("%s (%s)", n.Name, n.Agent))
		}
	}
	slices.Sort(names)
	return names
}

// containers are those that leave by an egress which asks for labels.
func containers(snap *cluster.Snapshot, e egress.Listed, choice egress.Choice) (list []api.EgressContainer) {
	if len(e.Labels) == 0 {
		return nil
	}
	for c := range cluster.All[cluster.Endpoint](snap) {
		if by, known := choice.Of(c); known && by == e.Name {
			list = append(list, api.EgressContainer{Name: nameOf(c), Network: c.Network, Host: snap.HostName(c.Host), Also: choice.Others(c)})
		}
	}
	slices.SortFunc(list, func(a, b api.EgressContainer) int {
		return strings.Compare(a.Host+"/"+a.Name+"/"+a.Network, b.Host+"/"+b.Name+"/"+b.Network)
	})
	return list
}

// waiting names the containers of an egress' networks of which nobody knows whether it asks for their labels.
func waiting(snap *cluster.Snapshot, e egress.Listed, choice egress.Choice) (names []string) {
	for c := range cluster.All[cluster.Endpoint](snap) {
		if _, known := choice.Of(c); !known && slices.Contains(e.Networks, c.Network) {
			names = append(names, fmt.Sprintf("%s on host %s", nameOf(c), snap.HostName(c.Host)))
		}
	}
	slices.Sort(names)
	return names
}

func nameOf(c cluster.Endpoint) string {
	if c.Name == "" {
		return fmt.Sprintf("%.12s", c.ID)
	}
	return c.Name
}

// labelNotes say of an egress that asks for labels what somebody should know.
func labelNotes(snap *cluster.Snapshot, e egress.Listed) (notes []string) {
	if len(e.Labels) == 0 {
		return nil
	}
	if older := unknowing(snap, e.Egress); len(older) > 0 {
		notes = append(notes, fmt.Sprintf("hosts with an older agent do not know of it, and their containers leave by their own addresses: %s; upgrade their agents", strings.Join(older, ", ")))
	}
	if _, err := egress.Parse(e.Labels); err != nil {
		notes = append(notes, fmt.Sprintf("this host's agent cannot read what it asks for (%v): what containers of its networks send to the outside is dropped; upgrade the agent", err))
	}
	if names := waiting(snap, e, egress.NewChoice(snap, egress.All(snap))); len(names) > 0 {
		notes = append(notes, fmt.Sprintf("the labels of %s are not known: what they send to the outside is dropped", strings.Join(names, ", ")))
	}
	return notes
}
