package driver

import (
	"testing"

	"github.com/grapevine-net/grapevine/host/docker"
)

// The draft of a network has its subnet, and the network made from it takes that.
func TestDraftsAreNoNetworks(t *testing.T) {
	v := view{driver: "grapevine", networks: []docker.Network{
		{ID: "1", Name: "plain", Driver: "bridge"},
		{ID: "2", Name: "draft", ConfigOnly: true, Pools: []docker.IPAM{{Subnet: "10.9.0.0/24"}}},
		{ID: "3", Name: "ours", Driver: "grapevine"},
	}}
	others, rivals := v.others()
	if len(others) != 1 || others[0].Name != "plain" || len(rivals) != 0 {
		t.Errorf("others are %v, rivals %v; want plain alone", others, rivals)
	}
}
