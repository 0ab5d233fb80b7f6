package main

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
)

func TestShowTrial(t *testing.T) {
	db := api.Peer{Name: "db", Network: "blue", Host: "host2", Addr: netip.MustParseAddr("10.128.2.1")}
	trial := api.Trial{Asked: 12, Notes: []string{"a note"}, Changes: []api.TrialChange{
		{From: api.Peer{Addr: netip.MustParseAddr("203.0.113.1")}, To: db, What: []string{"port 4000/tcp", "ping"}, Rules: []api.PolicyRule{{Rule: "blue/db ingress", Action: "Deny"}}},
		{From: db, To: api.Peer{Name: "api.example.com"}, What: []string{"other ports"}, Allowed: true},
	}}
	for range mostShown {
		trial.Changes = append(trial.Changes, api.TrialChange{From: db, To: db, What: []string{"ping"}})
	}
	trial.Seen = &api.Replay{Judged: 9, Gone: 1, Notes: []string{"host host1 counts since today"}, Changes: []api.ReplayChange{
		{From: db, To: db, What: "port 80/tcp", Connections: 2, Open: 1, Rules: []api.PolicyRule{{Rule: "blue/db ingress", Action: "Deny"}}},
		{From: db, To: api.Peer{Addr: netip.MustParseAddr("203.0.113.1")}, What: "port 443/tcp", Connections: 1, Unless: []string{"*.pypi.org"}},
		{From: db, To: db, What: "ping", Connections: 3, Allowed: true},
	}}
	var b strings.Builder
	if err := showTrial(&b, trial); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"203.0.113.1 to db (10.128.2.1 on blue, host host2): port 4000/tcp, ping: would not pass any more\n    blue/db ingress (Deny)\n",
		"db (10.128.2.1 on blue, host host2) to api.example.com: other ports: would pass\n", "... and 2 more changes (all: -o json)\n",
		"\nOf 9 connections seen on all hosts, 2 would be cut, of which 1 open, and 1 unless it is by a name that is let through; 3 that failed would pass.\n",
		"host host2): port 80/tcp: 2 connections (1 open): would be cut\n    blue/db ingress (Deny)\n", "203.0.113.1: port 443/tcp: 1 connection: would be cut, unless it was told for *.pypi.org\n",
		"ping: 3 connections: failed, would pass\n", "Left out: 1 connection of containers that have gone.\nhost host1 counts since today\n", "Asked for 12 connections; nothing was applied.\na note\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}
