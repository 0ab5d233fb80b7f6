package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/api"
)

// someTraffic is what a cluster says of itself, one host of which means harm.
func someTraffic(all bool) api.Traffic {
	began := time.Date(2026, 1, 2, 12, 4, 5, 0, time.Local)
	end := func(name, host, network, at string, port uint16) api.TrafficEnd {
		return api.TrafficEnd{Name: name, Host: host, Network: network, Addr: netip.MustParseAddr(at), Port: port}
	}
	web, db := end("web", "host1", "blue", "10.128.0.2", 40000), end("db", "host2", "blue", "10.128.1.2", 5432)
	t := api.Traffic{Hosts: []api.TrafficHost{{Name: "host1", Since: began}}, Connections: []api.Connection{
		{First: began, From: web, To: db, Proto: "tcp", State: "open", Packets: 9, Bytes: 1234567, BackPackets: 8, BackBytes: 800},
		{First: began, From: web, To: end("", "", "", "2001:db8::9", 443), Proto: "tcp", State: "unanswered", Packets: 3, Bytes: 222},
		{First: began, From: end("evil\x1b[2J", "host3", "red", "10.129.0.2", 7), To: end("db", "host2", "blue", "10.128.1.2", 7), Proto: "icmp", State: "answered", Packets: 1, Bytes: 98},
	}}
	if all {
		t.Hosts = append(t.Hosts, api.TrafficHost{Name: "host2", Since: began.Add(time.Minute), Lost: 7, Left: 3}, api.TrafficHost{Name: "host3", Error: "it does not answer"})
	}
	return t
}

func TestTraffic(t *testing.T) {
	h := vineyard()
	h.Traffic = func(_ context.Context, of api.TrafficOf) (api.Traffic, error) { return someTraffic(of.All), nil }
	endpoints := h.Endpoints
	h.Endpoints = func(ctx context.Context) ([]api.Endpoint, error) {
		list, err := endpoints(ctx)
		return append(list, api.Endpoint{ID: strings.Repeat("c", 64), Name: "cache", Network: "blue"}), err
	}
	for line, want := range map[string]string{
		"traffic ghost":          "there is no container or host ghost: ",
		"traffic web dbb":        "there is no container or host dbb: did you mean db?",
		"traffic red/cache":      "there is no container or host red/cache: ",
		"traffic --network reed": "there is no network reed: did you mean red?",
		"traffic -f ghost":       "there is no container or host ghost: ",
	} {
		if out, err := run(t, h, strings.Fields(line)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
	const head = "TIME       FROM"
	for line, want := range map[string]string{
		"traffic": `TIME       FROM             TO                      NETWORK        STATE        PACKETS   BYTES    BACK   BYTES
12:04:05   web@host1        db@host2:5432/tcp       blue           open         9         1.2 MB   8      800 B
12:04:05   web@host1        [2001:db8::9]:443/tcp   blue>outside   unanswered   3         222 B    0      -
12:04:05   evil?[2J@host3   db@host2/icmp           red>blue       answered     1         98 B     0      -
-- counted on host host1 since 12:04:05; 0 packets lost
`,
		"traffic --all --most 1":         "\n... and 2 more (--most 0: all)\n-- counted on hosts host1 and host2 since 12:05:05; 7 packets lost, of more connections at once than there is room for; the oldest 3 counts were left out; not counted on host host3: it does not answer\n",
		"traffic db web":                 "db@host2:5432/tcp",
		"traffic 2001:db8::9":            "unanswered",
		"traffic blue/web --port 443":    "unanswered",
		"traffic --network red":          "answered",
		"traffic --unanswered --outside": "unanswered",
		"traffic cache":                  "-- counted on host host1", // it is there, and silent
		"traffic 10.128.0.77":            "-- counted on host host1",
	} {
		out, err := run(t, h, strings.Fields(line)...)
		if err != nil || !strings.HasPrefix(out, head[:4]) || !strings.Contains(out, want) {
			t.Errorf("%s: %v\n%s\nwant\n%s", line, err, out, want)
		}
		if rows := strings.Count(out, "\n") - 2; line != "traffic" && !strings.Contains(line, "--all") && rows > 1 {
			t.Errorf("%s shows %d connections:\n%s", line, rows, out)
		}
	}
}

// TestAliases: what has an alias is found by it, by all who find containers, and a slip of a name is named.
func TestAliases(t *testing.T) {
	db := api.Endpoint{Name: "db", Network: "blue", Host: "host2", Container: "abc", ID: "def", Aliases: []string{"database"}}
	list := []api.Endpoint{db, {Name: "web", Network: "blue", Aliases: []string{"www"}}, {Name: "web2", Network: "blue", Aliases: []string{"www"}}}
	if got := namesOf(list, []string{"database", "www", "web", "10.128.0.1"}); strings.Join(got, " ") != "db www web 10.128.0.1" {
		t.Error(got)
	}
	if !ofEndpoint(db, "database") || len((all{containers: []container{{Endpoint: db}}}).find("database")) != 1 {
		t.Error("the alias is not known")
	}
	if got := slipOf(list, "there is no container databsae on a network of the cluster", []string{"web", "databsae:5432"}); got != "; did you mean database?" {
		t.Errorf("%q", got)
	}
}

// TestFollowJSON: what is followed with -o json is a line of JSON for each change, and nothing else.
func TestFollowJSON(t *testing.T) {
	h := vineyard()
	asked := 0
	h.Traffic = func(context.Context, api.TrafficOf) (api.Traffic, error) {
		if asked++; asked > 2 {
			return api.Traffic{}, errors.New("enough")
		}
		return api.Traffic{Hosts: []api.TrafficHost{{Name: "host1"}}, Connections: []api.Connection{{Proto: "tcp", State: "open", From: api.TrafficEnd{Name: "app"}, To: api.TrafficEnd{Name: "db", Port: 80}}}}, nil
	}
	out, err := run(t, h, "traffic", "-f", "-o", "json")
	if err == nil || !strings.Contains(err.Error(), "enough") {
		t.Fatal(err)
	}
	var c api.Connection
	if err := json.Unmarshal([]byte(out), &c); err != nil || c.State != "open" || strings.Count(out, "\n") != 1 {
		t.Errorf("%v: %s", err, out)
	}
}
