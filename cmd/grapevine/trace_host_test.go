package main

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
)

// TestHostNote: a host's address is told as such, and a published port by the container to which it leads.
func TestHostNote(t *testing.T) {
	h := vineyard()
	nodes, err := h.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	endpoints, err := h.Endpoints(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	endpoints = append(endpoints, api.Endpoint{Name: "many", Ports: []api.Port{{Proto: "udp", Host: netip.MustParseAddrPort("192.0.2.1:9000"), Container: 100, More: 9}}})
	for _, c := range []struct{ addr, what, want string }{
		{"192.0.2.1", "port 8080/tcp", "192.0.2.1 is host host1 itself, where this port is published for container app: it leads to its port 80"},
		{"::ffff:192.0.2.1", "port 8080/tcp", "for container app"},
		{"192.0.2.1", "port 9009/udp", "for container many: it leads to its port 109"},
		{"192.0.2.1", "port 9010/udp", "192.0.2.1 is host host1 itself"},
		{"192.0.2.2", "port 8080/tcp", "192.0.2.2 is host host2 itself; whether a container"},
		{"203.0.113.9", "port 8080/tcp", ""},
	} {
		got := hostNote(api.Explanation{To: api.Peer{Addr: netip.MustParseAddr(c.addr)}, What: c.what}, nodes, endpoints)
		if !strings.Contains(got, c.want) || (c.want == "") != (got == "") || strings.HasSuffix(c.want, "itself") && got != c.want {
			t.Errorf("%s %s: %q, want %q", c.addr, c.what, got, c.want)
		}
	}
	if got := hostNote(api.Explanation{To: api.Peer{Host: "host1", Addr: netip.MustParseAddr("192.0.2.1")}}, nodes, endpoints); got != "" {
		t.Errorf("a container is %q", got)
	}
}
