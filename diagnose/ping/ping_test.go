package ping

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/diagnose/probe"
)

func TestPinged(t *testing.T) {
	to := api.Node{Name: "host2", Alive: true, Gossip: netip.MustParseAddrPort("192.0.2.2:7947")}
	p := pinged(to, probe.Pong{
		Underlay: probe.Echo{Size: 68, Took: 210 * time.Microsecond}, Tunnel: probe.Echo{Size: 68, Arrived: true}, Full: probe.Echo{Size: 1450},
	}, nil)
	if p.Underlay != (api.Echo{Bytes: 68, Milliseconds: .21}) || p.Tunnel.Lost != "arrived at host2, and the answer was lost" || p.Full.Lost != "did not arrive at host2" {
		t.Errorf("%+v", p)
	}
	p = pinged(to, probe.Pong{Underlay: probe.Echo{Took: 1}, Tunnel: probe.Echo{Err: errors.New("gv0 is down")}}, nil)
	if p.Underlay.Milliseconds != .001 || p.Tunnel.Lost != "could not be sent: gv0 is down" {
		t.Errorf("%+v", p)
	}
	for err, want := range map[error]string{
		probe.ErrOld:          "its agent is of an older version, which answers no ping: `grapevine doctor` tries the ways to it",
		errors.New("refused"): "it could not be asked, by TCP to 192.0.2.2:7947: refused",
	} {
		if p := pinged(to, probe.Pong{}, err); p.Error != want {
			t.Errorf("%q", p.Error)
		}
	}
}
