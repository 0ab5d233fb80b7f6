package fastpath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// owned is how many connections there are of which the switch knows nothing.
func (r *ruled) owned() (n int) {
	var k ownKey
	var v ownValue
	it := r.path.objs.GvOwn.Iterate()
	for it.Next(&k, &v) {
		n++
	}
	must(r.t, it.Err())
	return n
}

// owns dials until a connection begins that the switch does not see.
func (r *ruled) owns() net.Conn {
	r.t.Helper()
	for range 50 {
		before := r.owned()
		c := r.dial("tcp")
		if err := said(c, 10*time.Second); err != nil {
			r.t.Fatal(err)
		}
		if r.owned() > before {
			return c
		}
		_ = c.Close()
	}
	r.t.Fatal("no connection begins without the switch")
	return nil
}

// ports has the caller's ports be of a range.
func ports(of string) error {
	return os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte(of), 0o644)
}

// TestOwnPackets: from the second connection on all of it passes the switch by, and each packet, byte and connection is counted for both rules.
func TestOwnPackets(t *testing.T) {
	r := newRuled(t)
	r.echo()
	r.enforce("", services...)
	sent := r.sent()
	const connections = 200
	for range connections {
		c := r.dial("tcp")
		must(t, said(c, 10*time.Second))
		_ = c.Close()
	}
	var all, carried pipeline.Count
	ovstest.Eventually(t, 20*time.Second, func() error {
		is := r.sent()
		all, carried = r.counted(7)
		if other, _ := r.counted(8); is.Packets-sent.Packets != all.Packets || is.Bytes-sent.Bytes != all.Bytes || other != all {
			return errors.New("not all is counted")
		}
		return nil
	})
	tally, err := r.path.Tally()
	must(t, err)
	dump, err := r.bridge.DumpFlows(t.Context())
	must(t, err)
	var flows []pipeline.Flow
	var counts []pipeline.Count
	for _, f := range dump {
		flows = append(flows, pipeline.Flow{Table: f.Table, Priority: f.Priority, Cookie: f.Cookie, Match: f.Match, Actions: f.Actions})
		counts = append(counts, pipeline.Count{Packets: f.Packets, Bytes: f.Bytes})
	}
	rules, _ := pipeline.CountRules(flows, counts)
	for _, rule := range []uint32{7, 8} {
		if n := rules[rule].Connections + tally.Begun[rule].Packets; n != connections {
			t.Errorf("rule %d counts %d connections, %d of them carried", rule, n, tally.Begun[rule].Packets)
		}
	}
	if tally.Begun[7].Packets < connections*8/10 || carried.Packets < all.Packets*8/10 {
		t.Errorf("%d of %d connections began without the switch, which had %d of %d packets", tally.Begun[7].Packets, connections, all.Packets-carried.Packets, all.Packets)
	}
	ovstest.Eventually(t, 10*time.Second, func() error {
		if r.owned() > 0 {
			return errors.New("connections that have ended are there still")
		}
		return nil
	})
	t.Logf("%d of %d packets were carried", carried.Packets, all.Packets)
}

// heard is how many ICMP errors container a has got that say that something is unreachable.
func (r *ruled) heard() (n int) {
	r.containers["a"].Do(func() {
		text, err := os.ReadFile("/proc/thread-self/net/snmp")
		must(r.t, err)
		var names, values []string
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "Icmp:") {
				names, values = values, strings.Fields(line)
			}
		}
		n, err = strconv.Atoi(values[slices.Index(names, "InDestUnreachs")])
		must(r.t, err)
	})
	return n
}

// unreachable is an ICMP error with that code about a packet of TCP.
func unreachable(code byte, from, to netip.AddrPort) []byte {
	quoted := make([]byte, 28)
	quoted[0], quoted[3], quoted[8], quoted[9] = 0x45, 40, 64, 6
	copy(quoted[12:], from.Addr().Unmap().AsSlice())
	copy(quoted[16:], to.Addr().Unmap().AsSlice())
	binary.BigEndian.PutUint16(quoted[20:], from.Port())
	binary.BigEndian.PutUint16(quoted[22:], to.Port())
	m := slices.Concat([]byte{3, code, 0, 0, 0, 0, 0, 0}, quoted)
	sum := uint32(0)
	for i := 0; i < len(m); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(m[i:]))
	}
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(m[2:], ^uint16(sum+sum>>16))
	return m
}

// TestOwnErrors: an ICMP error about a connection that the switch has never seen arrives, from its other end, and no more when rules forbid
// it.
func TestOwnErrors(t *testing.T) {
	r := newRuled(t)
	r.echo()
	r.enforce("", services...)
	c := r.owns()
	a, b := c.LocalAddr().(*net.TCPAddr), c.RemoteAddr().(*net.TCPAddr)
	tell := func() {
		r.containers["b"].Do(func() {
			raw, err := net.Dial("ip4:icmp", "10.128.0.2")
			must(t, err)
			_, err = raw.Write(unreachable(3, a.AddrPort(), b.AddrPort()))
			must(t, errors.Join(err, raw.Close()))
		})
	}
	before := r.heard()
	tell()
	ovstest.Eventually(t, 10*time.Second, func() error {
		if n := r.heard(); n != before+1 {
			return fmt.Errorf("%d errors have come, of 1", n-before)
		}
		return nil
	})
	if r.owned() == 0 {
		t.Fatal("the switch knows the connection: the test shows nothing")
	}
	r.enforce("")
	before = r.heard()
	tell()
	time.Sleep(300 * time.Millisecond)
	if n := r.heard(); n != before {
		t.Error("an error about what is forbidden comes")
	}
}

// TestOwnCut: a connection that the switch has never seen ends when rules forbid it, wherever an agent is killed meanwhile, and goes on when they
// allow it again, or when other rules change: also where only the one who was called speaks, and by ports that do not say who called.
func TestOwnCut(t *testing.T) {
	r := newRuled(t)
	r.echo()
	r.containers["a"].Do(func() { must(t, ports("1024 2000")) }) // by which nobody would guess
	for _, killed := range []string{"", "before the flows change", "when the flows have changed"} {
		r.enforce("", services...)
		c := r.owns()
		r.enforce("", append(services, pipeline.PortRange{Proto: 6, From: 443, To: 443})...)
		if err := said(c, 10*time.Second); err != nil {
			t.Fatal(killed, "other rules change, and it ends: ", err)
		}
		c = r.owns()
		r.enforce(killed)
		if killed == "before the flows change" {
			if err := said(c, 10*time.Second); err != nil {
				t.Fatal(killed, err)
			}
		}
		if killed != "" {
			must(t, r.path.Close())
			r.agent()
			r.epoch--
			r.enforce("")
		}
		if err := said(c, 500*time.Millisecond); err == nil {
			t.Errorf("%q: what is forbidden goes on", killed)
		}
		r.containers["a"].Do(func() {
			if _, err := net.DialTimeout("tcp", "10.128.0.3:80", 300*time.Millisecond); err == nil {
				t.Errorf("%q: what is forbidden begins", killed)
			}
		})
		r.enforce("", services...)
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := c.Read(make([]byte, 10)); err != nil {
			t.Error(killed, "it does not go on", err)
		}
		_ = c.Close()
	}
}

// BenchmarkConnections has connections a second, each with a word there and back, of a host without rules, and with rules, in turns.
func BenchmarkConnections(b *testing.B) {
	r := newRuled(b)
	r.echo()
	rates := map[string][]float64{}
	for range b.N * 7 {
		for _, by := range []string{"plain", "rules"} {
			for i := range r.in.Ports {
				r.in.Ports[i].Plain, r.in.Ports[i].Guarded = by == "plain", by == "rules"
			}
			r.bare = by == "plain"
			r.enforce("", services...)
			const each, workers = 250, 4
			var all sync.WaitGroup
			began := time.Now()
			r.containers["a"].Do(func() {})
			for range workers {
				all.Go(func() {
					for range each {
						var c net.Conn
						r.containers["a"].Do(func() {
							var err error
							if c, err = net.DialTimeout("tcp", "10.128.0.3:80", 10*time.Second); err != nil {
								b.Error(err)
							}
						})
						if c == nil {
							return
						}
						if err := said(c, 10*time.Second); err != nil {
							b.Error(err)
						}
						_ = c.Close()
					}
				})
			}
			all.Wait()
			rates[by] = append(rates[by], workers*each/time.Since(began).Seconds())
		}
	}
	b.Logf("a second: %v", rates)
	for by, list := range rates {
		slices.Sort(list)
		b.ReportMetric(list[len(list)/2], by+"/s")
	}
}

// call is a connection of a to a service of b, by a port of which nobody would say that it is a caller's or is called, and b's end of it.
func (r *ruled) call(from, to int) (caller, called *net.TCPConn) {
	r.t.Helper()
	var l net.Listener
	r.containers["b"].Do(func() {
		var err error
		l, err = net.Listen("tcp", fmt.Sprintf("10.128.0.3:%d", to))
		must(r.t, err)
	})
	defer l.Close()
	got := make(chan net.Conn, 1)
	go func() {
		if c, err := l.Accept(); err == nil {
			got <- c
		}
	}()
	r.containers["a"].Do(func() {
		d := net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP("10.128.0.2"), Port: from}}
		c, err := d.Dial("tcp", fmt.Sprintf("10.128.0.3:%d", to))
		must(r.t, err)
		caller = c.(*net.TCPConn)
	})
	select {
	case c := <-got:
		called = c.(*net.TCPConn)
	case <-time.After(10 * time.Second):
		r.t.Fatal("nobody calls")
	}
	r.t.Cleanup(func() { _ = caller.Close(); _ = called.Close() })
	return caller, called
}

// hears has one end say something that the other one hears.
func hears(from, to net.Conn) error {
	_ = from.SetDeadline(time.Now().Add(10 * time.Second))
	_ = to.SetDeadline(time.Now().Add(10 * time.Second))
	b := []byte("0123456789")
	if _, err := from.Write(b); err != nil {
		return err
	}
	_, err := io.ReadFull(to, b)
	return err
}

// talked has both ends say something until the switch has a connection: afterwards n are left of which it knows nothing.
func (r *ruled) talked(caller, called net.Conn, n int) {
	r.t.Helper()
	ovstest.Eventually(r.t, 30*time.Second, func() error {
		if err := errors.Join(hears(caller, called), hears(called, caller)); err != nil {
			r.t.Fatal(err)
		}
		if is := r.owned(); is != n {
			return fmt.Errorf("the switch does not know of %d connections, want %d", is, n)
		}
		return nil
	})
}

// wide are services of which nobody's port says that it is called.
var wide = append(services[:len(services):len(services)], pipeline.PortRange{Proto: 6, From: 50051, To: 50059})

// granted has what a calls of b begin without the switch.
func (r *ruled) granted(to int) {
	r.t.Helper()
	c, d := r.call(to-11000, to)
	must(r.t, errors.Join(hears(c, d), c.Close(), d.Close()))
}

// TestOwnHanded: a connection that was handed to the switch is one that has begun there: after silence that the switch would not bear of one that opens
// its callee is heard, whether it was handed over for its age or since other rules came.
func TestOwnHanded(t *testing.T) {
	r := newRuled(t)
	r.enforce("", wide...)
	var pairs [3][2]*net.TCPConn
	for i := range pairs {
		r.granted(50051 + i)
		pairs[i][0], pairs[i][1] = r.call(40000+i, 50051+i)
		must(t, errors.Join(hears(pairs[i][0], pairs[i][1]), hears(pairs[i][1], pairs[i][0])))
	}
	if n := r.owned(); n != 3 {
		t.Fatalf("%d connections began without the switch", n)
	}
	r.talked(pairs[0][0], pairs[0][1], 2)
	r.enforce("", append(wide, pipeline.PortRange{Proto: 6, From: 443, To: 443})...)
	r.talked(pairs[1][0], pairs[1][1], 1)
	dump, err := r.bridge.Appctl(t.Context(), "dpctl/dump-conntrack", fmt.Sprintf("zone=%d", pipeline.Zone))
	must(t, err)
	for i := range 2 {
		at := slices.IndexFunc(strings.Split(string(dump), "\n"), func(line string) bool {
			return strings.Contains(line, fmt.Sprintf("sport=%d,dport=%d", 40000+i, 50051+i)) && strings.Contains(line, "state=ESTABLISHED")
		})
		if at < 0 {
			t.Errorf("connection %d was handed over, and does not stand there:\n%s", i, dump)
		}
	}
	time.Sleep(35 * time.Second)
	for i, p := range pairs { // of the last one nothing was heard since other rules came
		if err := hears(p[1], p[0]); err != nil {
			t.Errorf("connection %d: after silence its callee is not heard: %v", i, err)
		}
		if err := hears(p[0], p[1]); err != nil {
			t.Errorf("connection %d: its caller is not heard: %v", i, err)
		}
	}
}

// TestOwnReset: what ends a connection of which the switch knows nothing comes through as the first packet after other rules, from either end.
func TestOwnReset(t *testing.T) {
	r := newRuled(t)
	r.enforce("", wide...)
	for i, by := range []string{"caller", "callee"} {
		r.granted(50051 + i)
		c, d := r.call(40000+i, 50051+i)
		must(t, errors.Join(hears(c, d), hears(d, c)))
		other, more := r.call(41000+i, 50051+i)
		must(t, errors.Join(hears(other, more), hears(more, other)))
		if n := r.owned(); n != 2+2*i {
			t.Fatalf("%d connections do without the switch", n)
		}
		if by == "callee" {
			c, d, other, more = d, c, more, other
		}
		r.enforce("", append(wide, pipeline.PortRange{Proto: 6, From: uint16(443 + i), To: uint16(443 + i)})...)
		must(t, c.SetLinger(0))
		must(t, c.Close())
		_ = d.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := d.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("the %s's RST does not come: %v", by, err)
		}
		must(t, other.CloseWrite())
		_ = more.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := more.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the %s's FIN does not come: %v", by, err)
		}
		must(t, more.CloseWrite())
		_ = other.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := other.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the FIN that answers the %s's does not come: %v", by, err)
		}
	}
}
