package link

import (
	"fmt"
	"io"
	"net"
	"os/exec"
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
		during := 600 * time.Millisecond
		if limit != 0 && limit < 10e6 {
			during = 3 * time.Second // a few packets more or less are no rate
		}
		rate := carried(t, from, to, addr, limit, during)
		if limit != 0 && rate > float64(limit)*1.05 { // what had waited when the reader had no processor counts as that time's
			rate = carried(t, from, to, addr, limit, 3*time.Second)
		}
		// Headers are counted in the limit, and not here; a busy machine is slower, never faster.
		if limit != 0 && (rate > float64(limit)*1.05 || rate < float64(min(limit, 40e6))/2) {
			t.Errorf("%s carries %.1f Mbit/s, limited to %d", direction, rate/1e6, limit/1e6)
		}
		if limit == 0 && rate < 100e6 {
			t.Errorf("%s carries %.1f Mbit/s without a limit", direction, rate/1e6)
		}
	}
	for _, l := range []Limits{{Egress: 1e6, Ingress: 1e6}, {Egress: 20e6, Ingress: 40e6}, {Egress: 40e6}, {Egress: 1e9, Ingress: 1e9}, {}} {
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

// bucket is the token bucket of an interface, and how many bytes have passed it.
func bucket(t *testing.T, name string) (tbf *netlink.Tbf, passed uint64) {
	t.Helper()
	l, err := netlink.LinkByName(name)
	ok(t, err)
	list, err := netlink.QdiscList(l)
	ok(t, err)
	for _, q := range list {
		if tbf, is := q.(*netlink.Tbf); is {
			return tbf, tbf.Statistics.Basic.Bytes
		}
	}
	t.Fatalf("%s has no bucket: %v", name, list)
	return nil, 0
}

// A bucket that is as it should be stays, with what it has counted. One of that rate and another size, which somebody
// has set by hand, does not.
func TestLimitAsItWas(t *testing.T) {
	host, box := linktest.New(t), linktest.New(t)
	sandbox := fmt.Sprintf("/proc/self/fd/%d", box.FD())
	linktest.Wire(t, "gv0123", host, box, []string{"10.9.0.1/24"}, []string{"10.9.0.2/24"})
	for _, rate := range []uint64{1e6, 12345678, 1e9} {
		host.Do(func() {
			ok(t, Limit("gv0123", sandbox, Limits{Ingress: rate}))
			_ = exec.Command("ping", "-c", "1", "-W", "1", "10.9.0.2").Run()
			was, passed := bucket(t, "gv0123")
			ok(t, Limit("gv0123", sandbox, Limits{Ingress: rate}))
			if _, now := bucket(t, "gv0123"); passed == 0 || now < passed {
				t.Errorf("%d bit/s: %d bytes had passed the bucket, and now %d", rate, passed, now)
			}
			for _, change := range []netlink.Tbf{{Limit: was.Limit, Buffer: 4 * was.Buffer}, {Limit: 4 * was.Limit, Buffer: was.Buffer}} {
				change.QdiscAttrs, change.Rate = netlink.QdiscAttrs{LinkIndex: was.LinkIndex, Handle: was.Handle, Parent: was.Parent}, was.Rate
				ok(t, netlink.QdiscReplace(&change))
				ok(t, Limit("gv0123", sandbox, Limits{Ingress: rate}))
				if now, _ := bucket(t, "gv0123"); now.Limit != was.Limit || now.Buffer != was.Buffer {
					t.Errorf("%d bit/s: limit %d, burst %d ticks, and %d, %d before somebody changed it", rate, now.Limit, now.Buffer, was.Limit, was.Buffer)
				}
			}
		})
	}
}

// carried is how many bits a second of TCP arrive.
func carried(t *testing.T, from, to *linktest.NS, addr string, limit uint64, during time.Duration) float64 {
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
	first := int64(1 << 18)
	if half := int64(limit / 16); half != 0 {
		first = min(first, half)
	}
	_, err = io.CopyN(io.Discard, s, first)
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
