package filter

import (
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// Of Geneve what has options is not taken, nor what is of a version to come. Where it is VXLAN that comes by the port, and at
// other ports, the same bytes pass.
func TestNoOptions(t *testing.T) {
	host, wire := linktest.New(t), linktest.New(t)
	linktest.Wire(t, "eth0", host, wire, []string{"10.9.0.1/24", "fd00:9::1/64"}, []string{"10.9.0.3/24", "fd00:9::3/64"})
	serve(t, host, "[fd00:9::1]", "10.9.0.1")
	var f *Filter
	host.Do(func() {
		var err error
		if f, err = Open(slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	})
	defer f.Close()
	answered := func(at string, first byte, size int) bool {
		var c net.Conn
		var err error
		const patience = 400 * time.Millisecond
		wire.Do(func() { c, err = net.DialTimeout("udp", at, patience) })
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		_, _ = c.Write(append([]byte{first}, make([]byte, size-1)...))
		_, err = c.Read(make([]byte, 100))
		return err == nil
	}
	for _, bare := range []bool{false, true, false} {
		cfg := config
		cfg.NoOptions = bare
		host.Do(func() {
			if err := f.Set(cfg); err != nil {
				t.Fatal(err)
			}
		})
		for _, c := range []struct {
			what, port string
			first      byte
			size       int
			passes     bool
		}{
			{"without options", "4789", 0, 40, true},
			{"without options, in fragments", "4789", 0, 4000, true},
			{"with an option", "4789", 1, 40, !bare},
			{"with as many as there can be", "4789", 0x3f, 400, !bare},
			{"with an option, in fragments", "4789", 1, 4000, !bare},
			{"of another version", "4789", 0x40, 40, !bare},
			{"to another port", "4790", 1, 40, true},
		} {
			for _, host := range []string{"10.9.0.1", "fd00:9::1"} {
				at := net.JoinHostPort(host, c.port)
				if c.passes {
					eventually(t, c.what, func() bool { return answered(at, c.first, c.size) })
				} else if answered(at, c.first, c.size) {
					t.Errorf("a packet to %s %s is taken", at, c.what)
				}
			}
		}
	}
}
