package main

import (
	"context"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
)

// vineyard is a small cluster: two networks, three hosts of which one is dead, and a container on two networks.
func vineyard() *api.Handlers {
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	return &api.Handlers{
		Nodes: func(context.Context) ([]api.Node, error) {
			return []api.Node{
				{Name: "host1", ID: "1111aaaa", VTEP: addr("192.0.2.1"), Self: true, Alive: true, Version: "1.4.0", Datapath: "userspace", MTU: 1500, VXLANPort: 4789},
				{Name: "host2", ID: "2222aaaa", VTEP: addr("192.0.2.2"), Alive: true, Doubtful: true},
				{Name: "host3", ID: "3333aaaa", VTEP: addr("192.0.2.3")},
			}, nil
		},
		Networks: func(context.Context) ([]api.Network, error) {
			return []api.Network{
				{Name: "blue", VNID: 1, Hosts: []string{"host1", "host2"}, Here: true, Subnets: []api.Subnet{{Prefix: prefix("10.128.0.0/22"), Gateway: addr("10.128.0.1")}}},
				{Name: "red", VNID: 0, Hosts: []string{"host3"}, Internal: true},
			}, nil
		},
		Endpoints: func(context.Context) ([]api.Endpoint, error) {
			return []api.Endpoint{
				{ID: strings.Repeat("e", 64), Network: "red", Name: "app", Container: "0ddd6e4e0ca1ffff", Addrs: []netip.Addr{addr("10.132.0.2")}, MAC: "02:00:00:00:00:02", Host: "host1", Here: true},
				{
					ID: strings.Repeat("f", 64), Network: "blue", Name: "app", Container: "0ddd6e4e0ca1ffff", Addrs: []netip.Addr{addr("10.128.0.2")}, MAC: "02:00:00:00:00:01", Host: "host1", Here: true,
					Ports: []api.Port{{Proto: "tcp", Host: netip.MustParseAddrPort("0.0.0.0:8080"), Container: 80}}, Aliases: []string{"api", "www"},
				},
				{ID: strings.Repeat("a", 64), Network: "blue", Name: "db", Container: "ccbcb37317d7ffff", Addrs: []netip.Addr{addr("10.128.1.2")}, Host: "host2"},
				{ID: strings.Repeat("b", 64), Network: "red", Host: "host3"},
			}, nil
		},
		Ring: func(context.Context) ([]api.Pool, error) {
			share := func(host, node, block string, part float64) api.Share {
				return api.Share{Host: host, Node: node, Blocks: []netip.Prefix{prefix(block)}, Part: part}
			}
			return []api.Pool{{Network: "blue", Prefix: prefix("10.128.0.0/22"), Shares: []api.Share{
				share("host1", "1111aaaa", "10.128.0.0/23", .5), share("host2", "2222aaaa", "10.128.2.0/23", .5),
			}}}, nil
		},
	}
}

var blanks = regexp.MustCompile(" +")

func TestPS(t *testing.T) {
	for args, want := range map[string]string{
		"ps": `CONTAINER   ID             NETWORK   ADDRESS      HOST    STATE           PORTS
-           -              red       -            host3   host dead       -
app         0ddd6e4e0ca1   blue      10.128.0.2   host1   up              0.0.0.0:8080->80/tcp
app         0ddd6e4e0ca1   red       10.132.0.2   host1   up              -
db          ccbcb37317d7   blue      10.128.1.2   host2   host doubtful   -
`,
		"ps db":                   "CONTAINER   ID             NETWORK   ADDRESS      HOST    STATE           PORTS\ndb          ccbcb37317d7   blue      10.128.1.2   host2   host doubtful   -\n",
		"ps 10.132.0.2":           "CONTAINER   ID             NETWORK   ADDRESS      HOST    STATE   PORTS\napp         0ddd6e4e0ca1   red       10.132.0.2   host1   up      -\n",
		"containers host2 --here": "No containers.\n",
	} {
		if out, err := run(t, vineyard(), strings.Fields(args)...); err != nil || out != want {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
}

func TestShow(t *testing.T) {
	for args, want := range map[string][]string{
		"show app":         {"container app\n", "id 0ddd6e4e0ca1\n", "host host1 (192.0.2.1)\n", "also called api and www\n", "ports 0.0.0.0:8080->80/tcp\n", "network red\n"},
		"show ccbcb373":    {"container db\n", "state host doubtful\n"},
		"show blue":        {"network blue\n", "vnid 1\n", "subnet 10.128.0.0/22, gateway 10.128.0.1\n", "50.0% of 10.128.0.0/22 are host2's: 10.128.2.0/23\n", "containers 2\n", " app 10.128.0.2 host1 up\n"},
		"inspect host1":    {"host host1\n", "state this host\n", "networks blue\n", "addresses 50.0% of blue's 10.128.0.0/22\n", " app 10.132.0.2 red up\n"},
		"show 192.0.2.3":   {"host host3\n", "state dead\n"},
		"show 10.128.0.2":  {"a container has it\n", "container app (0ddd6e4e0ca1)\n", "owner host1: no other host hands it out\n"},
		"show 10.128.2.77": {"no container has it\n", "owner host2: no other host hands it out\n"},
		"show 10.128.0.1":  {"the network's gateway, on every host\n"},
		"show 172.16.0.1":  {"of no network, and not the cluster's\n"},
		"show red db":      {"0: it reaches all networks, and they reach it\n", "nothing leads out of it\n", "not yet\n", "\n\ncontainer db\n"},
		"show db -o json":  {`"container": {`, `"name": "db"`, `"state": "host doubtful"`},
	} {
		out, err := run(t, vineyard(), strings.Fields(args)...)
		out = blanks.ReplaceAllString(out, " ") // how wide a column is, is not the point
		for _, w := range want {
			if err != nil || !strings.Contains(out, w) {
				t.Errorf("%s: no %q: %v\n%s", args, w, err, out)
			}
		}
	}
}
