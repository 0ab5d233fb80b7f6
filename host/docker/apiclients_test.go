package docker

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
)

func TestAPIClients(t *testing.T) {
	for network, addr := range map[string]string{"unix": filepath.Join(t.TempDir(), "d.sock"), "tcp": "127.0.0.1:0"} {
		t.Run(network, func(t *testing.T) {
			l, err := net.Listen(network, addr)
			if err != nil {
				t.Fatal(err)
			}
			serve(t, l, map[string]http.HandlerFunc{"GET /networks": text(200, "[]")})
			visit(t, network, l.Addr().String())
		})
	}
}

func visit(t *testing.T, network, addr string) {
	c := New(network + "://" + addr)
	if n := c.APIClients(); n != 0 {
		t.Fatalf("%d clients before the first connection", n)
	}
	list := func() {
		t.Helper()
		if _, err := c.Networks(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	list()
	if n := c.APIClients(); n != 0 {
		t.Errorf("%d clients, and there is this client alone", n)
	}
	guest, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	if n := c.APIClients(); n != 1 {
		t.Errorf("%d clients while one is connected", n)
	}
	if n := c.NewAPIClients(); n != 1 {
		t.Errorf("%d newcomers as one has come", n)
	}
	c.mu.Lock()
	for inode, at := range c.seen { // later
		c.seen[inode] = at.Add(-listens)
	}
	for conn, at := range c.open {
		c.open[conn] = at.Add(-listens)
	}
	c.mu.Unlock()
	if all, n := c.APIClients(), c.NewAPIClients(); all != 1 || n != 0 {
		t.Errorf("%d newcomers of %d when it has been there for long", n, all)
	}
	late, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	if all, n := c.APIClients(), c.NewAPIClients(); all != 2 || n != 1 {
		t.Errorf("%d newcomers of %d when another one has come", n, all)
	}
	_ = late.Close()
	c.Close() // and again, with a connection of its own that is new
	list()
	if n := c.APIClients(); n == 0 {
		t.Error("no client while one is connected")
	}
	_ = guest.Close()
	for c.APIClients() != 0 { // the server takes a moment
		if t.Context().Err() != nil {
			t.Fatal("a client is still there after it left")
		}
	}
}

// A connection stays one and the same when the server accepts it, and is another one than the next that waits.
func TestAPIClientsOfABusyServer(t *testing.T) {
	for network, addr := range map[string]string{"unix": filepath.Join(t.TempDir(), "d.sock"), "tcp": "127.0.0.1:0"} {
		t.Run(network, func(t *testing.T) { busy(t, network, addr) })
	}
}

func busy(t *testing.T, network, addr string) {
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dial := func() net.Conn {
		t.Helper()
		conn, err := net.Dial(network, l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	c := New(network + "://" + l.Addr().String())
	c.server = l.Addr()
	accept := func() {
		t.Helper()
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	want := func(when string, all, newcomers int) {
		t.Helper()
		if a, n := c.APIClients(), c.NewAPIClients(); a != all || n != newcomers {
			t.Errorf("%s: %d newcomers of %d, not %d of %d", when, n, a, newcomers, all)
		}
	}
	defer dial().Close()
	want("one waits", 1, 1)
	for name, at := range c.seen { // later
		c.seen[name] = at.Add(-listens)
	}
	want("it has waited for long", 1, 0)
	defer dial().Close()
	want("another one waits", 2, 1)
	accept()
	want("the first is accepted", 2, 1)
}

func TestConnections(t *testing.T) {
	const list = `Num       RefCount Protocol Flags    Type St Inode Path
000000003c672c93: 00000002 00000000 00010000 0001 01 19733783 /var/run/docker.sock
0000000096ffe7a4: 00000003 00000000 00000000 0001 03 19735075 /var/run/docker.sock
0000000002f56373: 00000003 00000000 00000000 0001 03 20268955 /var/run/docker.sock
00000000fb182a74: 00000003 00000000 00000000 0001 03 19735013 /run/docker/plugins/grapevine.sock
00000000fb182a75: 00000003 00000000 00000000 0001 03 19735014
0000000000000000: 00000003 00000000 00000000 0001 03 19735015 /var/run/docker.sock
00000000fb182a76: 00000002 00000000 00000000 0001 02 0 /var/run/docker.sock
`
	if got := connections(list, "/var/run/docker.sock"); !slices.Equal(got, []string{"0000000096ffe7a4:", "0000000002f56373:", "19735015", "00000000fb182a76:"}) {
		t.Errorf("connections %v", got)
	}
}

func TestTCPConnections(t *testing.T) {
	const list = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:0947 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 19 1 0 100 0 0 10 0
   1: 010200C0:0947 020200C0:B5B4 01 00000000:00000000 00:00000000 00000000     0        0 20 1 0 20 4 30 10 -1
   5: 010200C0:0947 020200C0:B5BC 01 00000000:00000000 00:00000000 00000000     0        0 0 1 0 20 4 30 10 -1
   2: 010200C0:0947 020200C0:B5B6 06 00000000:00000000 03:00000D30 00000000     0        0 0 3 0
   3: 010200C0:B5B8 020200C0:0947 01 00000000:00000000 00:00000000 00000000     0        0 21 1 0 20 4 30 10 -1
   4: 0000000000000000FFFF0000010200C0:0948 0000000000000000FFFF0000020200C0:B5BA 01 00000000:00000000 00:00000000 00000000     0        0 22 1 0 20 4 30 10 -1
`
	if got := tcpConnections(list, apiPorts); !slices.Equal(got, []string{
		"tcp 010200C0:0947 020200C0:B5B4",
		"tcp 010200C0:0947 020200C0:B5BC",
		"tcp 0000000000000000FFFF0000010200C0:0948 0000000000000000FFFF0000020200C0:B5BA",
	}) {
		t.Errorf("connections %v", got)
	}
}
