package membership

import (
	"cmp"
	"fmt"
	"net/http"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/cluster"
)

// pickHost finds the host that is meant by an ID or a name. Of several hosts of one name it is
// the one that does not answer, if there is one such: a host that was set up anew, under the
// name it had, has left a dead one behind.
func pickHost(nodes []api.Node, name string) (cluster.NodeID, error) {
	if id := cluster.NodeID(name); id.Valid() {
		return id, nil
	}
	var called, dead []api.Node
	for _, n := range nodes {
		if n.Name != name {
			continue
		}
		called = append(called, n)
		if !n.Alive {
			dead = append(dead, n)
		}
	}
	switch {
	case len(called) == 0:
		return "", api.Errorf(http.StatusNotFound, "no host is called %q: `grapevine nodes` lists them", name)
	case len(called) == 1:
		return cluster.NodeID(called[0].ID), nil
	case len(dead) == 1:
		return cluster.NodeID(dead[0].ID), nil
	}
	var ids []string
	for _, n := range called {
		ids = append(ids, describeNode(n))
	}
	return "", api.Errorf(http.StatusConflict, "%d hosts are called %q: use the ID of one: %s", len(called), name, words.Listed(ids))
}

// describeNode tells a host from others of its name.
func describeNode(n api.Node) string {
	state := "does not answer"
	if n.Alive {
		state = "alive"
	}
	if n.Self {
		state = "this host"
	}
	return fmt.Sprintf("%s (%s, %s)", n.ID, n.Underlay(), state)
}

// forgetName is what to call a host in `grapevine forget`.
func forgetName(nodes []api.Node, id cluster.NodeID) string {
	for _, n := range nodes {
		if n.ID != string(id) {
			continue
		}
		if picked, err := pickHost(nodes, n.Name); err == nil && picked == id {
			return cmp.Or(n.Name, n.ID)
		}
	}
	return string(id)
}

// Namesakes are hosts of one name, which people cannot tell apart; rename says how one of them
// gets another name, and is asked only where there are any.
func Namesakes(nodes []api.Node, rename func() string) (list []api.Problem) {
	called := map[string][]api.Node{}
	for _, n := range nodes {
		called[n.Name] = append(called[n.Name], n)
	}
	for _, n := range nodes {
		all := called[n.Name]
		if len(all) < 2 || all[0].ID != n.ID {
			continue
		}
		var who []string
		dead := 0
		for _, namesake := range all {
			who = append(who, describeNode(namesake))
			if !namesake.Alive {
				dead++
			}
		}
		do := "give all but one of them another name, on them: " + rename()
		switch dead {
		case 0:
		case 1:
			do = "if it is one host that was set up anew: grapevine forget " + n.Name + ", which takes the one that does not answer; else " + do
		default:
			do = "if it is one host that was set up anew: grapevine forget the IDs of those that do not answer; else " + do
		}
		list = append(list, api.Problem{Code: api.NameTwice, What: fmt.Sprintf("%d hosts are called %s: %s", len(all), n.Name, words.Listed(who)), Do: do})
	}
	return list
}
