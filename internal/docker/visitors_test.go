package docker

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"testing"
)

func TestVisitors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d.sock")
	api(t, path, map[string]http.HandlerFunc{"GET /networks": text(200, "[]")})
	c := New("unix://" + path)
	if n := c.Visitors(); n != 0 {
		t.Fatalf("%d visitors before the first connection", n)
	}
	list := func() {
		t.Helper()
		if _, err := c.Networks(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	list()
	if n := c.Visitors(); n != 0 {
		t.Errorf("%d visitors, and there is this client alone", n)
	}
	guest, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if n := c.Visitors(); n != 1 {
		t.Errorf("%d visitors while one is connected", n)
	}
	c.Close() // and again, with a connection of its own that is new
	list()
	if n := c.Visitors(); n == 0 {
		t.Error("no visitor while one is connected")
	}
	_ = guest.Close()
	for c.Visitors() != 0 { // the server takes a moment
		if t.Context().Err() != nil {
			t.Fatal("a visitor is still there after it left")
		}
	}
}

func TestConnections(t *testing.T) {
	const list = `Num       RefCount Protocol Flags    Type St Inode Path
000000003c672c93: 00000002 00000000 00010000 0001 01 19733783 /var/run/docker.sock
0000000096ffe7a4: 00000003 00000000 00000000 0001 03 19735075 /var/run/docker.sock
0000000002f56373: 00000003 00000000 00000000 0001 03 20268955 /var/run/docker.sock
00000000fb182a74: 00000003 00000000 00000000 0001 03 19735013 /run/docker/plugins/grapevine.sock
00000000fb182a75: 00000003 00000000 00000000 0001 03 19735014
`
	if n := connections(list, "/var/run/docker.sock"); n != 2 {
		t.Errorf("%d connections", n)
	}
}
