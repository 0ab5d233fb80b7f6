package problems

import (
	"fmt"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/driver"
)

func TestOutdatedIsNamed(t *testing.T) {
	const other = cluster.NodeID("00000000000000bb")
	s := cluster.New(other)
	for _, b := range []cluster.Body{
		cluster.Node{ID: other, Name: "host2"},
		cluster.Endpoint{ID: "1", Network: "red", Host: other, Name: "web", Outdated: true},
		cluster.Endpoint{ID: "2", Network: "red", Host: other, Name: "db", Outdated: true},
		cluster.Endpoint{ID: "3", Network: "red", Host: other, Name: "well"},
	} {
		if _, _, err := s.Put(b); err != nil {
			t.Fatal(err)
		}
	}
	list := outdatedElsewhere(s.Snapshot(), "00000000000000aa")
	if got, want := fmt.Sprint(list), "[{network-anew  network red was made anew, and host host2 has the one from before, since containers are on it there: db, web on host2: docker rm -f db web (or docker compose down), and make them anew when the new network is there, a second later}]"; got != want {
		t.Errorf("elsewhere:\n%s\nwant\n%s", got, want)
	}
	if list := outdatedElsewhere(s.Snapshot(), other); len(list) != 0 {
		t.Errorf("a host names its own twice: %v", list)
	}
	p := outdatedHere(driver.Outdated{Network: "red", Why: "it has other labels", Containers: []string{"db"}})
	if want := "network red was made anew on another host, and this host has the one from before: it has other labels. Containers are on it: db"; p.What != want {
		t.Errorf("here: %s", p.What)
	}
}
