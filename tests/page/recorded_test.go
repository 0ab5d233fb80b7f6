package page

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/ui"
	"github.com/grapevine-net/grapevine/ui/needs"
)

// recorded are the answers in a file: {"status": ..., "nodes": ...}.
func recorded(t *testing.T, file string) map[string]json.RawMessage {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	var answers map[string]json.RawMessage
	if err := json.Unmarshal(data, &answers); err != nil {
		t.Fatal(err)
	}
	answer(t, answers, "kinds", api.Kinds)
	end := func(name, host, network, at string, port uint16) api.TrafficEnd {
		return api.TrafficEnd{Name: name, Host: host, Network: network, Addr: netip.MustParseAddr(at), Port: port}
	}
	began := time.Unix(1_750_000_000, 0)
	answer(t, answers, "traffic", api.Traffic{
		Hosts: []api.TrafficHost{{Name: "host1", Since: began, Lost: 7}, {Name: "host2", Error: "its agent is older, and does not count"}},
		Connections: []api.Connection{
			{First: began, Last: began, From: end("app", "host1", "blue", "10.128.0.2", 40000), To: end("db", "host2", "blue", "10.128.1.2", 5432), Proto: "tcp", State: "open", Packets: 9, Bytes: 1234567, BackPackets: 8, BackBytes: 800},
			{First: began, Last: began, From: end("app", "host1", "blue", "10.128.0.2", 40001), To: end("", "", "", "2001:db8::9", 443), Proto: "tcp", State: "unanswered", Packets: 3, Bytes: 222},
		},
	})
	outside(t, answers)
	return answers
}

// outside adds what a cluster has beside containers: services, clients, egress addresses, and what they lose.
func outside(t *testing.T, answers map[string]json.RawMessage) {
	t.Helper()
	var endpoints []api.Endpoint
	must(t, json.Unmarshal(answers["endpoints"], &endpoints))
	replica := func(name, why string) (r api.Replica) {
		for _, e := range endpoints {
			if e.Name == name && e.Network == "blue" {
				r = api.Replica{Endpoint: e.ID, Name: name, Host: e.Host, Addrs: e.Addrs, In: why == "", Why: why}
			}
		}
		return r
	}
	at := netip.MustParseAddr
	answer(t, answers, "services", []api.Service{
		{Network: "blue", Name: "web", Addrs: []netip.Addr{at("10.128.0.9")}, Ports: []string{"80:8080/tcp", "443:8443/tcp"}, Author: "host1", Replicas: []api.Replica{
			replica("app", ""), replica("worker", ""), replica("cache", "its healthcheck says unhealthy")}},
		{Network: "red", Name: "mqtt", Addrs: []netip.Addr{at("10.128.4.9"), at("fdeb:847:7138::9")}, Ports: []string{"1883/tcp"}, Labels: map[string]string{"tier": "mqtt"}, Author: "host2", Replicas: []api.Replica{},
			Notes: []string{"nothing on red has the label tier=mqtt"}},
	})
	answer(t, answers, "clients", []api.NetworkClient{
		{Name: "laptop", Network: "blue", Host: "host1", Here: true, Addrs: []netip.Addr{at("10.128.0.7")}, Seen: time.Unix(1_750_000_000, 0), At: netip.MustParseAddrPort("203.0.113.9:41002")},
		{Name: "phone", Network: "red", Host: "host2", Addrs: []netip.Addr{at("10.128.5.7")}},
	})
	answer(t, answers, "egresses", []api.Egress{
		{Name: "mail", Networks: []string{"blue"}, Addrs: []netip.Addr{at("192.0.2.25")}, Holder: "host1", Gateways: []api.EgressGateway{{Host: "host1", Known: true, Alive: true}, {Host: "host3", Known: true}}, Quorum: true},
	})
	var drops []map[string]any
	must(t, json.Unmarshal(answers["drops"], &drops))
	worker := replica("worker", "")
	drops = append(drops,
		map[string]any{"packets": 4, "class": "alien", "reason": "spoofed", "who": "worker", "whoIs": "worker", "endpoint": worker.Endpoint, "why": "its source is not an address of the container that sent it",
			"do": "look what runs in the container: an address or a MAC was changed in it, or it routes for others"},
		map[string]any{"packets": 7, "class": "meant", "reason": "policy-rule", "who": worker.Addrs[0], "whoIs": "worker", "whereTo": "10.128.1.1", "whereToIs": "db", "why": "the policy's rule blue/db ingress[1] denies it", "rule": "blue/db ingress[1]",
			"do": "`grapevine policy explain FROM TO:PORT` says more of the rule, and whether a name has opened the address"})
	answer(t, answers, "drops", drops)
}

// lists are what an agent lists, as recorded; endpoints may be made when they are asked for.
func lists(answers map[string]json.RawMessage, endpoints ui.Ask) needs.Lists {
	l := needs.Lists{Nodes: listed[api.Node](answers, "nodes"), Networks: listed[api.Network](answers, "networks"), Endpoints: listed[api.Endpoint](answers, "endpoints")}
	if endpoints != nil {
		l.Endpoints = func(ctx context.Context) ([]api.Endpoint, error) {
			value, err := endpoints(ctx, nil)
			list, _ := value.([]api.Endpoint)
			return list, err
		}
	}
	return l
}

func listed[T any](answers map[string]json.RawMessage, name string) func(context.Context) ([]T, error) {
	once := sync.OnceValues(func() (list []T, err error) {
		err = json.Unmarshal(answers[name], &list)
		return list, err
	})
	return func(context.Context) ([]T, error) { return once() }
}

func answer(t *testing.T, answers map[string]json.RawMessage, name string, value any) {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	answers[name] = data
}
