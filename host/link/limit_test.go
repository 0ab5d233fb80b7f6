package link

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// Each direction carries what it may and no more, whoever's the other limit is; without one all is
// as before, and another program's qdisc stays.
func TestLimit(t *testing.T) {
	host, box := linktest.New(t), linktest.New(t)
	sandbox := fmt.Sprintf("/proc/self/fd/%d", box.FD())
	linktest.Wire(t, "gv0123", host, box, []string{"10.9.0.1/24"}, []string{"10.9.0.2/24"})
	limit := func(l Limits) error {
		var err error
		host.Do(func() { err = Limit("gv0123", sandbox, l) })
		return err
	}
	holds := func(direction string, from, to *linktest.NS, addr string, limit uint64) {
		t.Helper()
		rate := carried(t, from, to, addr, 600*time.Millisecond)
		// Headers are counted in the limit, and not here; a busy machine is slower, never faster.
		if limit != 0 && (rate > float64(limit)*1.05 || rate < float64(limit)/2) {
			t.Errorf("%s carries %.1f Mbit/s, limited to %d", direction, rate/1e6, limit/1e6)
		}
		if limit == 0 && rate < 100e6 {
			t.Errorf("%s carries %.1f Mbit/s without a limit", direction, rate/1e6)
		}
	}
	for _, l := range []Limits{{Egress: 20e6, Ingress: 40e6}, {Egress: 40e6}, {}} {
		for range 2 {
			ok(t, limit(l))
		}
		holds("egress", box, host, "10.9.0.1", l.Egress)
		holds("ingress", host, box, "10.9.0.2", l.Ingress)
	}

	host.Do(func() {
		l, err := netlink.LinkByName("gv0123")
		ok(t, err)
		ok(t, netlink.QdiscAdd(&netlink.Tbf{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT}, Rate: 1e6, Buffer: 1 << 20, Limit: 1 << 20}))
	})
	if err := limit(Limits{Ingress: 1e6}); err == nil || !strings.Contains(err.Error(), "somebody else has set the qdisc tbf there") {
		t.Errorf("another program's qdisc: %v", err)
	}
	ok(t, limit(Limits{Egress: 1e6}))
	if err := limit(Limits{Egress: 1e6}); err != nil {
		t.Error(err)
	}
	host.Do(func() {
		if err := Limit("gv0123", "/proc/self/ns/net", Limits{Egress: 1e6}); err == nil {
			t.Error("no error for a sandbox that does not have the peer")
		}
	})
}

// carried is how many bits a second of TCP arrive.
func carried(t *testing.T, from, to *linktest.NS, addr string, during time.Duration) float64 {
	t.Helper()
	var l net.Listener
	var err error
	to.Do(func() { l, err = net.Listen("tcp", addr+":0") })
	ok(t, err)
	defer l.Close()
	var c net.Conn
	from.Do(func() { c, err = net.Dial("tcp", l.Addr().String()) })
	ok(t, err)
	defer c.Close()
	s, err := l.Accept()
	ok(t, err)
	defer s.Close()
	go func() {
		b := make([]byte, 1<<16)
		for {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	}()
	// What the bucket lets through at once is no rate.
	_, err = io.CopyN(io.Discard, s, 1<<18)
	ok(t, err)
	begin := time.Now()
	var n int64
	for b := make([]byte, 1<<14); time.Since(begin) < during; {
		got, err := s.Read(b)
		ok(t, err)
		n += int64(got)
	}
	return float64(n*8) / time.Since(begin).Seconds()
}
