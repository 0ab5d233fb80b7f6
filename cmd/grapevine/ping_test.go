package main

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
)

func TestPing(t *testing.T) {
	h := vineyard()
	n := 0
	h.Ping = func(_ context.Context, host string) (api.Ping, error) {
		if host != "host2" {
			return api.Ping{}, &api.Error{Status: http.StatusNotFound, Message: "no"}
		}
		n++
		p := api.Ping{Host: "host2", VTEP: netip.MustParseAddr("192.0.2.2"), Underlay: api.Echo{Bytes: 68, Milliseconds: .2}, Tunnel: api.Echo{Bytes: 68, Milliseconds: float64(n)}, Full: api.Echo{Bytes: 1450, Milliseconds: 3}}
		if n == 3 {
			p.Full = api.Echo{Bytes: 1450, Lost: "did not arrive at host2"}
		}
		return p, nil
	}
	out, err := run(t, h, "ping", "host2", "-c", "2", "-i", "1ms")
	want := `host2 (192.0.2.2): through the underlay, and through the tunnel as containers' packets go
1  underlay: 0.20 ms, tunnel: 1.00 ms, with 1450 bytes: 3.00 ms
2  underlay: 0.20 ms, tunnel: 2.00 ms, with 1450 bytes: 3.00 ms

WAY                  CAME BACK   LEAST     MOST
underlay             2 of 2      0.20 ms   0.20 ms
tunnel               2 of 2      1.00 ms   2.00 ms
tunnel, 1450 bytes   2 of 2      3.00 ms   3.00 ms
`
	if err != nil || out != want {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = run(t, h, "ping", "host2", "-c", "1")
	if err != errSomethingWrong && !strings.Contains(err.Error(), "exit status 1") || !strings.Contains(out, "with 1450 bytes: did not arrive at host2\n") || !strings.Contains(out, "To find out what loses them: grapevine doctor, here and on host2\n") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = run(t, h, "ping", "host2", "-c", "1", "-o", "json")
	if err != nil || !strings.HasPrefix(out, "[\n") || !strings.Contains(out, `"milliseconds": 4`) {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err = run(t, h, "ping", "hots2"); err != errNotAsked {
		t.Errorf("of nobody: %v", err)
	}
}
