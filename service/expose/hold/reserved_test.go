package hold

import (
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/service/expose"
)

type still struct{ snap *cluster.Snapshot }

func (s still) Snapshot() *cluster.Snapshot { return s.snap }
func (s still) Watch() <-chan struct{}      { return nil }

// TestReserved: a port that this host needs itself is not taken for a service, whoever exposed it where it was free, and that is said.
func TestReserved(t *testing.T) {
	runtime.LockOSThread() // and for good: the thread ends with this goroutine, and its namespace with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("a network namespace: %v", err)
	}
	s := cluster.New("00000000000000aa")
	for _, body := range []cluster.Body{
		cluster.Network{Name: "blue", VNID: 1},
		cluster.Service{Network: "blue", Name: "web", Select: "web", Addrs: []netip.Addr{netip.MustParseAddr("10.1.0.99")},
			Ports:   []cluster.ServicePort{{Proto: "udp", Port: 53, Target: 53}},
			Exposed: []cluster.ServicePort{{Proto: "udp", Port: 4789, Target: 53}, {Proto: "udp", Port: 4790, Target: 53}}},
	} {
		if _, _, err := s.Put(body); err != nil {
			t.Fatal(err)
		}
	}
	r := New(Config{
		Self: s.Self(), Gateway: "gv0", Source: still{s.Snapshot()}, Heed: expose.Services, Off: true, Log: slog.New(slog.DiscardHandler),
		Reserved: func(p expose.Port) string { return map[string]string{"4789/udp": "VXLAN's"}[p.Text()] },
	})
	defer r.held.Close()
	for i := range 3 {
		r.round(time.Now().Add(time.Duration(i) * 2 * glance))
	}
	if notes := r.Notes(); len(notes) != 1 || notes[0].Port != (expose.Port{UDP: true, Port: 4789}) || notes[0].Err.Error() != "on this host it is VXLAN's" {
		t.Errorf("notes: %+v", notes)
	}
	if a, b := r.Holder("udp", 4789), r.Holder("udp", 4790); a != "" || b != "service blue/web" {
		t.Errorf("held for %q and %q", a, b)
	}
	for port, free := range map[int]bool{4789: true, 4790: false} {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{Port: port})
		if (err == nil) != free {
			t.Errorf("port %d: %v, want that it is free: %v", port, err, free)
		}
		if c != nil {
			c.Close()
		}
	}
}
