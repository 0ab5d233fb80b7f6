package docker

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
)

// FuzzAnswers: whatever Docker's API answers, what is made of it has no names that the engine could
// not have given.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte(`{"Id":"c","Names":["/web","/other/alias"],"State":"running","HostConfig":{"NetworkMode":"container:x"},"NetworkSettings":{"Networks":{"blue":{"NetworkID":"n","EndpointID":"e","Aliases":["a"],"DNSNames":["d"],"IPAMConfig":{"LinkLocalIPs":["169.254.1.1"]}},"none":null}}}`))
	f.Add([]byte(`{"Id":"c","Name":"/web","State":{"Error":"no"},"HostConfig":{"RestartPolicy":{"Name":"always"}},"NetworkSettings":{"Networks":{"blue":null}}}`))
	f.Add([]byte(`{"Id":"n","Name":"blue","Driver":"grapevine","IPAM":{"Driver":"grapevine","Config":[{"Subnet":"10.1.0.0/16","AuxiliaryAddresses":{"a":"10.1.0.9"}}]},"Containers":{"c":{"Name":"x"}}}`))
	f.Add([]byte(`{"Names":[""],"NetworkSettings":null,"HostConfig":null,"State":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s container.Summary
		if json.Unmarshal(b, &s) == nil {
			if c := containerOf(s); strings.Contains(c.Name, "/") || s.NetworkSettings != nil && len(c.Networks) > len(s.NetworkSettings.Networks) {
				t.Errorf("%s: %+v", b, c)
			}
		}
		var r container.InspectResponse
		if json.Unmarshal(b, &r) == nil {
			if _, none := detailsOf(r).Names[""]; none {
				t.Errorf("%s: names without an endpoint", b)
			}
		}
		var n network.Summary
		if json.Unmarshal(b, &n) == nil && len(fromDocker(n).Pools) != len(n.IPAM.Config) {
			t.Errorf("%s: not all pools", b)
		}
	})
}

// FuzzAPIClients: no list of sockets has more connections than lines.
func FuzzAPIClients(f *testing.F) {
	f.Add("Num       RefCount Protocol Flags    Type St Inode Path\n0000000000000000: 00000003 00000000 00000000 0001 03 4711 /run/docker.sock\n", "/run/docker.sock")
	f.Add("0: 0100007F:0947 0:0 01 0\n1: :0947 0 01\n2: 0947 0 01\n", "")
	f.Fuzz(func(t *testing.T, list, path string) {
		lines := strings.Count(list, "\n") + 1
		if a, b := connections(list, path), tcpConnections(list, apiPorts); len(a) > lines || len(b) > lines {
			t.Errorf("%q: %d, %d", list, len(a), len(b))
		}
	})
}
