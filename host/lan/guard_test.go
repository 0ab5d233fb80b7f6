package lan

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// TestGuard: who says on the LAN that it has a guarded address is heard, whoever it is and by whatever word; who only asks for it, speaks
// of another one, or is this host is not. A flood costs a few words a second.
func TestGuard(t *testing.T) {
	here, there := linktest.New(t), linktest.New(t)
	linktest.Wire(t, "eth0", here, there, []string{"192.0.2.1/24", "fd00:db8::1/64"}, []string{"192.0.2.2/24", "fd00:db8::2/64"})
	there.Do(func() { ip(t, "link set eth0 address 02:00:00:00:00:02") })
	for _, a := range []netip.Addr{mail, mail6} {
		heard := make(chan net.HardwareAddr, 1000)
		var end func()
		var over <-chan struct{}
		here.Do(func() {
			if err := Add("eth0", a); err != nil {
				t.Fatal(err)
			}
			var err error
			if end, over, err = Guard("eth0", a, func(who net.HardwareAddr) { heard <- who }); err != nil {
				t.Fatal(err)
			}
		})
		here.Do(func() {
			if err := Announce("eth0", a); err != nil { // its own word
				t.Error(err)
			}
		})
		there.Do(func() {
			if who, err := Probe(t.Context(), "eth0", a); err != nil || who == nil {
				t.Errorf("%v: %v answers, %v", a, who, err)
			}
			if err := Announce("eth0", a.Next()); err != nil {
				t.Error(err)
			}
		})
		select {
		case who := <-heard:
			t.Errorf("%v: %v is heard, and has said nothing", a, who)
		case <-time.After(100 * time.Millisecond):
		}
		began := time.Now()
		there.Do(func() {
			for range 40 {
				if err := Announce("eth0", a); err != nil {
					t.Fatal(err)
				}
			}
		})
		select {
		case who := <-heard:
			if who.String() != "02:00:00:00:00:02" {
				t.Errorf("%v: %v is heard", a, who)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%v: nobody is heard", a)
		}
		if n, most := len(heard), int(time.Since(began)/guardPause); n > most {
			t.Errorf("%v: %d more words in %v", a, n, time.Since(began))
		}
		end()
		<-over
	}
	var over <-chan struct{}
	here.Do(func() {
		var err error
		if _, over, err = Guard("eth0", mail, func(net.HardwareAddr) {}); err != nil {
			t.Fatal(err)
		}
		ip(t, "link set eth0 down")
	})
	select {
	case <-over:
	case <-time.After(10 * time.Second):
		t.Error("the interface is down, and it goes on")
	}
}
