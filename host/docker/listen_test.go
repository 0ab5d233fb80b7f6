package docker

import (
	"net"
	"testing"
)

// TestServed: a port is served while somebody listens there, by IPv4 or IPv6, whoever is connected elsewhere.
func TestServed(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		port := uint16(l.Addr().(*net.TCPAddr).Port)
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if !served([]uint16{1, port}) {
			t.Errorf("nobody listens at %s, it is said", l.Addr())
		}
		own := uint16(client.LocalAddr().(*net.TCPAddr).Port)
		if served([]uint16{1, own}) {
			t.Errorf("somebody listens at %d, it is said, which is a connection's", own)
		}
		_ = client.Close()
		_ = l.Close()
		if served([]uint16{port}) {
			t.Errorf("somebody listens at %d, it is said, where nobody does", port)
		}
	}
}
