package problems

import (
	"fmt"
	"slices"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/driver"
)

// untold are aliases and labels of this host's containers that the other hosts are not told.
func untold(d *driver.Driver, snap *cluster.Snapshot) (list []api.Problem) {
	for _, u := range d.Untold() {
		list = append(list, untoldProblem(u))
	}
	for _, id := range d.Untellable() {
		list = append(list, untellableProblem(id))
	}
	policed := hasPolicies(snap)
	for _, u := range d.Unlabelled() {
		switch name := askedBy(snap, u.Network); {
		case name != "":
			list = append(list, unleavingProblem(u, name))
		case policed:
			list = append(list, unlabelledProblem(u))
		}
	}
	return list
}

// untellableProblem names a network by its ID: its name is what cannot be said, nor be given to Docker's command.
func untellableProblem(id string) api.Problem {
	return api.Problem{
		Code: api.NetworkUntold,
		What: fmt.Sprintf("the network %.12s has a name that other hosts cannot be told (`docker network ls`): it is on this host alone", id),
		Do:   fmt.Sprintf("`docker network rm %.12s`, and create it with a name of at most 255 bytes and of characters that can be printed", id),
	}
}

// unlabelledProblem matters where there are policies.
func unlabelledProblem(u driver.Unlabelled) api.Problem {
	return api.Problem{
		Code: api.LabelsUntold,
		What: fmt.Sprintf("container %s on the network %s has more labels than other hosts can be told: no policy that allows something by labels applies to it, and all that deny may", u.Container, u.Network),
		Do:   fmt.Sprintf("give it fewer or shorter ones: %d, %d kB in all", cluster.MaxLabels, cluster.MaxLabelBytes/1024),
	}
}

// askedBy is an egress that asks for the labels of a network's containers; "": none does.
func askedBy(snap *cluster.Snapshot, network string) string {
	for e := range cluster.All[cluster.LabelEgress](snap) {
		if slices.Contains(e.Networks, network) {
			return e.Name
		}
	}
	return ""
}

// unleavingProblem is of a container that may be one that an egress asks for: nobody can know.
func unleavingProblem(u driver.Unlabelled, egress string) api.Problem {
	p := unlabelledProblem(u)
	p.What = fmt.Sprintf("container %s on the network %s has more labels than other hosts can be told: what it sends to the outside is dropped, as the egress %s asks for labels, and no policy that allows something by labels applies to it", u.Container, u.Network, egress)
	return p
}

func hasPolicies(snap *cluster.Snapshot) bool {
	for n := range cluster.All[cluster.Network](snap) {
		if n.Isolated() || n.Labelled {
			return true
		}
	}
	return cluster.PoliciesOf(snap).Any()
}

func untoldProblem(u driver.Untold) api.Problem {
	const shown = 3
	names := u.Aliases[:min(shown, len(u.Aliases))]
	what := fmt.Sprintf("%q", names[0])
	for _, n := range names[1:] {
		what += fmt.Sprintf(", %q", n)
	}
	if more := len(u.Aliases) - len(names); more > 0 {
		what += fmt.Sprintf(" and %d more", more)
	}
	return api.Problem{
		Code: api.AliasesUntold,
		What: fmt.Sprintf("container %s has aliases on the network %s that the other hosts do not know: %s", u.Container, u.Network, what),
		Do:   "give it fewer or shorter ones, of characters that can be printed: those of one container on one network may have 24 kB",
	}
}
