package edit

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
)

// TestLearnAnswered: what a caller says alone is not learned, whatever flags he sends; what somebody answered is.
func TestLearnAnswered(t *testing.T) {
	d, r := desk(t)
	if _, err := r.Update(func(tx *replica.Tx) error {
		for e := range cluster.All[cluster.Endpoint](tx.Snapshot()) {
			e.Labels, e.Labelled = map[string]string{"grapevine.io/name": e.Name}, true
			_ = tx.Put(e)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	end := func(addr, name string, port uint16) api.TrafficEnd {
		return api.TrafficEnd{Addr: netip.MustParseAddr(addr), Name: name, Network: "blue", Host: "host1", Port: port}
	}
	web, db := end("10.128.0.2", "web", 40000), func(port uint16) api.TrafficEnd { return end("10.128.0.3", "db", port) }
	d.Traffic = func(context.Context, bool) (api.Traffic, error) {
		return api.Traffic{Hosts: []api.TrafficHost{{Name: "host1"}}, Connections: []api.Connection{
			{From: web, To: db(5432), Proto: "tcp", State: "closed", Packets: 9, BackPackets: 9},
			{From: web, To: db(5433), Proto: "tcp", State: "open", BackPackets: 9}, // its caller's host does not answer
			{From: web, To: db(6001), Proto: "tcp", State: "open", Packets: 9},
			{From: web, To: db(6002), Proto: "tcp", State: "closed", Packets: 9},
			{From: web, To: db(6003), Proto: "udp", State: "sent", Packets: 9},
			{From: web, To: db(6004), Proto: "tcp", State: "refused", Packets: 9, BackPackets: 9},
		}}, nil
	}
	learned, err := d.Learn(t.Context(), "blue")
	if err != nil {
		t.Fatal(err)
	}
	for port, want := range map[string]bool{"5432": true, "5433": true, "6001": false, "6002": false, "6003": false, "6004": false} {
		if strings.Contains(learned.Text, "port: "+port) != want || strings.Contains(learned.Text, "to db at port "+port) == want {
			t.Errorf("port %s learned: %t\n%s", port, !want, learned.Text)
		}
	}
}
