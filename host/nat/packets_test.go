package nat

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// world is a host with two containers behind gv0 and one machine outside. The switch is
// a bridge: it has no spoof guard, so tests look at the addresses that containers see.
type world struct {
	t                    *testing.T
	web, app, host, away *linktest.NS
	nat                  *NAT
}

const (
	webAddr, appAddr   = "10.128.0.2", "10.128.0.3"
	hostAddr, awayAddr = "10.9.0.1", "10.9.0.2"
)

func newWorld(t *testing.T) *world {
	w := &world{t, linktest.New(t), linktest.New(t), linktest.New(t), linktest.New(t), New()}
	linktest.Wire(t, "web", w.host, w.web, nil, []string{webAddr + "/22"})
	linktest.Wire(t, "app", w.host, w.app, nil, []string{appAddr + "/22"})
	linktest.Wire(t, "eth0", w.host, w.away, []string{hostAddr + "/24"}, []string{awayAddr + "/24"})
	w.host.Do(func() {
		run(t, "ip", "link", "add", "gv0", "type", "bridge")
		run(t, "ip", "link", "set", "web", "master", "gv0")
		run(t, "ip", "link", "set", "app", "master", "gv0")
		for _, p := range []string{"web", "app"} {
			run(t, "ip", "link", "set", p, "type", "bridge_slave", "hairpin", "on")
		}
		// The rules are not for what a bridge forwards by itself.
		_ = os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-iptables", []byte("0"), 0o644)
		linktest.Up(t, "gv0", gateway4.String())
		run(t, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.gv0.route_localnet=1", "net.ipv4.conf.gv0.send_redirects=0")
		if err := w.nat.Set(ctx, full(v4)); err != nil {
			t.Fatal(err)
		}
	})
	for _, c := range []*linktest.NS{w.web, w.app} {
		c.Do(func() { run(t, "ip", "route", "add", "default", "via", gateway4.Addr().String()) })
	}
	// A neighbour that takes the host for its router to the containers.
	w.away.Do(func() { run(t, "ip", "route", "add", "10.128.0.0/14", "via", hostAddr) })
	return w
}

// leaveBy has containers leave by an address that the host gets for it.
func (w *world) leaveBy(addr string) {
	w.t.Helper()
	w.host.Do(func() {
		run(w.t, "ip", "addr", "add", addr+"/32", "dev", "eth0")
		if err := w.nat.Serve([]Source{{netip.MustParsePrefix("10.128.0.0/22"), netip.MustParseAddr(addr)}}); err != nil {
			w.t.Fatal(err)
		}
	})
}

// serve answers every client of web's ports 80 with the address it came from.
func (w *world) serve() {
	w.t.Helper()
	w.web.Do(func() {
		l, err := net.Listen("tcp4", ":80")
		if err != nil {
			w.t.Fatal(err)
		}
		p, err := net.ListenPacket("udp4", ":80")
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { l.Close(); p.Close() })
		go answerTCP(l)
		go answerUDP(p)
	})
}

func answerTCP(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
		_, _ = c.Write([]byte(host))
		_ = c.Close()
	}
}

func answerUDP(p net.PacketConn) {
	for {
		_, from, err := p.ReadFrom(make([]byte, 100))
		if err != nil {
			return
		}
		host, _, _ := net.SplitHostPort(from.String())
		_, _ = p.WriteTo([]byte(host), from)
	}
}

// ask returns what the server says, or an error: nobody answers.
func ask(ns *linktest.NS, network, addr string) (said string, err error) {
	ns.Do(func() {
		var c net.Conn
		if c, err = net.DialTimeout(network, addr, time.Second); err != nil {
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Second))
		if network == "udp" {
			_, _ = c.Write([]byte("who am I"))
		}
		b := make([]byte, 100)
		n, rerr := c.Read(b)
		said, err = string(b[:n]), rerr
	})
	return said, err
}

func (w *world) publish(all ...Published) {
	w.t.Helper()
	w.host.Do(func() { publish(w.t, w.nat, all...) })
}

// caller stands for an address of Callers.
const caller = "caller"

// wants asks from everywhere; "" stands for no answer.
func (w *world) wants(network, addr string, seen map[*linktest.NS]string) {
	w.t.Helper()
	names := map[*linktest.NS]string{w.web: "the container itself", w.app: "another container", w.host: "the host", w.away: "outside"}
	for ns, want := range seen {
		got, err := ask(ns, network, addr)
		if a, perr := netip.ParseAddr(got); perr == nil && Callers(a.Is6()).Contains(a) {
			got = caller
		}
		if got != want {
			w.t.Errorf("from %s to %s %s: seen as %q (%v), want %q", names[ns], network, addr, got, err, want)
		}
	}
}

// A published port is reached from everywhere, and who is outside is seen as who he is.
func TestPublishedPackets(t *testing.T) {
	w := newWorld(t)
	w.serve()
	w.publish(port("tcp", "0.0.0.0:8080", webAddr+":80"), port("udp", "0.0.0.0:8080", webAddr+":80"))
	gw := gateway4.Addr().String()
	for _, network := range []string{"tcp", "udp"} {
		w.wants(network, hostAddr+":8080", map[*linktest.NS]string{w.web: caller, w.app: caller, w.host: hostAddr, w.away: awayAddr})
		w.wants(network, "127.0.0.1:8080", map[*linktest.NS]string{w.web: "", w.app: "", w.host: gw, w.away: ""})
		w.wants(network, gw+":8080", map[*linktest.NS]string{w.app: caller, w.host: gw})
	}
	w.publish()
	for _, network := range []string{"tcp", "udp"} {
		w.wants(network, hostAddr+":8080", map[*linktest.NS]string{w.app: "", w.host: "", w.away: ""})
	}
}

// Who came as the host, by rules of a former agent or of another program that came first, does so no longer once the rules
// are in place, be the connection open; the host's own goes on.
func TestPosing(t *testing.T) {
	w := newWorld(t)
	w.serve()
	w.publish(port("udp", "0.0.0.0:8080", webAddr+":80"))
	w.host.Do(func() {
		run(t, "iptables", "-t", "nat", "-F", Postrouting)
		run(t, "iptables", "-t", "nat", "-I", "POSTROUTING", "-o", "gv0", "-j", "MASQUERADE")
	})
	gw := gateway4.Addr().String()
	var open []net.Conn
	for _, ns := range []*linktest.NS{w.app, w.away, w.host} {
		ns.Do(func() {
			c, err := net.Dial("udp", hostAddr+":8080")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			open = append(open, c)
		})
	}
	said := func(c net.Conn) string {
		b := make([]byte, 100)
		for range 20 {
			_, _ = c.Write([]byte("who am I"))
			_ = c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
			if n, err := c.Read(b); err == nil {
				if a, err := netip.ParseAddr(string(b[:n])); err == nil && Callers(false).Contains(a) {
					return caller
				}
				return string(b[:n])
			}
		}
		return ""
	}
	for _, c := range open {
		if got := said(c); got != gw {
			t.Fatalf("by another program's rule %v is seen as %q", c.LocalAddr(), got)
		}
	}
	w.host.Do(func() {
		if err := w.nat.restore(); err != nil {
			t.Fatal(err)
		}
	})
	for i, want := range []string{caller, awayAddr, gw} {
		if got := said(open[i]); got != want {
			t.Errorf("%v is seen as %q, want %s", open[i].LocalAddr(), got, want)
		}
	}
}

// A run of ports is one rule, and each leads to its own, whether they have the same numbers or not.
func TestPublishedRun(t *testing.T) {
	for _, kind := range []string{"nft", "legacy"} {
		t.Run(kind, func(t *testing.T) {
			useBackend(t, kind)
			w := newWorld(t)
			w.serve()
			run := func(proto, host, to string, more uint16) Published {
				p := port(proto, host, to)
				p.More = more
				return p
			}
			all := []Published{
				run("tcp", "0.0.0.0:70", webAddr+":70", 20), run("udp", "0.0.0.0:70", webAddr+":70", 20),
				run("tcp", "0.0.0.0:8000", webAddr+":75", 9999), run("udp", "0.0.0.0:8000", webAddr+":75", 9999),
			}
			w.publish(all...)
			for _, network := range []string{"tcp", "udp"} {
				for at, seen := range map[string]string{":80": awayAddr, ":8005": awayAddr, ":79": "", ":8006": "", ":18000": ""} {
					w.wants(network, hostAddr+at, map[*linktest.NS]string{w.away: seen})
				}
			}
			w.host.Do(func() {
				if n := strings.Count(lines(t, "iptables", "nat", Ports), "DNAT"); n != len(all) {
					t.Errorf("%d rules for %d runs", n, len(all))
				}
				again := New() // the rules that are there are what an agent that starts wants
				before, _ := w.nat.fingerprint()
				publish(t, again, all...)
				if err := again.Set(ctx, full(v4)); err != nil {
					t.Fatal(err)
				}
				if now, _ := w.nat.fingerprint(); now != before && kind == "nft" {
					t.Error("rules that were right were written again")
				}
			})
			w.publish()
			w.wants("udp", hostAddr+":8005", map[*linktest.NS]string{w.away: ""})
		})
	}
}

// One address of the host's is that one only. What is for the host alone is for nobody
// who sends to 127.0.0.1 from elsewhere.
func TestPublishedAddress(t *testing.T) {
	w := newWorld(t)
	w.serve()
	w.host.Do(func() { run(t, "ip", "addr", "add", "10.9.0.7/24", "dev", "eth0") })
	w.publish(port("tcp", "10.9.0.7:8080", webAddr+":80"), port("tcp", "127.0.0.1:8081", webAddr+":80"))
	gw := gateway4.Addr().String()
	w.wants("tcp", "10.9.0.7:8080", map[*linktest.NS]string{w.app: caller, w.host: hostAddr, w.away: awayAddr})
	w.wants("tcp", hostAddr+":8080", map[*linktest.NS]string{w.app: "", w.host: "", w.away: ""})
	w.wants("tcp", "127.0.0.1:8081", map[*linktest.NS]string{w.host: gw})
	w.wants("tcp", hostAddr+":8081", map[*linktest.NS]string{w.host: "", w.away: ""})
	for _, ns := range []*linktest.NS{w.away, w.app} {
		ns.Do(func() {
			run(t, "ip", "addr", "del", "127.0.0.1/8", "dev", "lo")
			via, dev := hostAddr, "eth0"
			if ns == w.app {
				via, dev = gw, "app"
			}
			run(t, "sysctl", "-qw", "net.ipv4.conf."+dev+".route_localnet=1")
			run(t, "ip", "route", "add", "127.0.0.1", "via", via)
		})
	}
	w.wants("tcp", "127.0.0.1:8081", map[*linktest.NS]string{w.away: "", w.app: ""})
}

// What is not published is not reached by who uses the host as a router, whatever the
// host's own policy, and internal networks reach no published port.
func TestIsolation(t *testing.T) {
	w := newWorld(t)
	w.serve()
	w.wants("tcp", webAddr+":80", map[*linktest.NS]string{w.away: "", w.app: appAddr, w.host: gateway4.Addr().String()})
	w.publish(port("tcp", "0.0.0.0:8080", webAddr+":80"))
	w.wants("tcp", webAddr+":80", map[*linktest.NS]string{w.away: ""})
	w.wants("tcp", webAddr+":8080", map[*linktest.NS]string{w.away: ""})

	w.app.Do(func() {
		run(t, "ip", "addr", "flush", "dev", "app")
		run(t, "ip", "addr", "add", "10.128.8.2/22", "dev", "app")
		run(t, "ip", "route", "add", "default", "via", "10.128.8.1")
	})
	w.host.Do(func() { run(t, "ip", "addr", "add", "10.128.8.1/22", "dev", "gv0") })
	w.wants("tcp", "10.128.8.1:8080", map[*linktest.NS]string{w.app: ""})
	w.wants("tcp", hostAddr+":8080", map[*linktest.NS]string{w.app: "", w.away: awayAddr})
}

// A client that goes on sending from the same port reaches the container as soon as the
// port is published, and the next one after that.
func TestOldFlows(t *testing.T) {
	w := newWorld(t)
	w.serve()
	var c net.Conn
	var err error
	w.away.Do(func() { c, err = net.Dial("udp", hostAddr+":8080") })
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	said := func() string {
		b := make([]byte, 100)
		for range 3 { // an ICMP error of before may be left
			_, _ = c.Write([]byte("who am I"))
			_ = c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
			if n, err := c.Read(b); err == nil {
				return string(b[:n])
			}
		}
		return ""
	}
	// Somebody is there, so that conntrack takes it for a stream.
	var local net.PacketConn
	w.host.Do(func() { local, err = net.ListenPacket("udp4", ":8080") })
	if err != nil {
		t.Fatal(err)
	}
	go answerUDP(local)
	if got := said(); got != awayAddr {
		t.Fatalf("the host's own server said %q", got)
	}
	local.Close()
	w.publish(port("udp", "0.0.0.0:8080", webAddr+":80"))
	if got := said(); got != awayAddr {
		t.Errorf("after the port is published: %q", got)
	}
	w.publish(port("udp", "0.0.0.0:8080", appAddr+":80"))
	w.app.Do(func() { local, err = net.ListenPacket("udp4", ":80") })
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	go answerUDP(local)
	w.web.Do(func() { run(t, "ip", "link", "set", "web", "down") })
	if got := said(); got != awayAddr {
		t.Errorf("after the port went to another container: %q", got)
	}
	w.publish()
	if got := said(); got != "" {
		t.Errorf("after the port was withdrawn: %q", got)
	}
}

// SCTP, of which this kernel may have no sockets: the first chunk of an association
// (RFC 9260, 3.3.2) as a raw packet.
func TestPublishedSCTP(t *testing.T) {
	w := newWorld(t)
	w.publish(port("sctp", hostAddr+":9", webAddr+":3868"))
	var in, out net.PacketConn
	var err, err2 error
	w.web.Do(func() { in, err = net.ListenPacket("ip4:132", webAddr) })
	w.away.Do(func() { out, err2 = net.ListenPacket("ip4:132", awayAddr) })
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	p := make([]byte, 12+20)
	binary.BigEndian.PutUint16(p, 5000)
	binary.BigEndian.PutUint16(p[2:], 9)
	p[12], p[15] = 1, 20
	binary.BigEndian.PutUint32(p[16:], 4711)
	binary.BigEndian.PutUint32(p[20:], 65536)
	p[25], p[27] = 1, 1
	binary.LittleEndian.PutUint32(p[8:], crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)))
	if _, err := out.WriteTo(p, &net.IPAddr{IP: net.ParseIP(hostAddr)}); err != nil {
		t.Fatal(err)
	}
	_ = in.SetReadDeadline(time.Now().Add(2 * time.Second))
	b := make([]byte, 100)
	n, from, err := in.ReadFrom(b)
	if err != nil {
		t.Fatal(err)
	}
	sum := binary.LittleEndian.Uint32(b[8:])
	clear(b[8:12])
	if got := fmt.Sprint(from, " ", n, " ", binary.BigEndian.Uint16(b[2:])); got != awayAddr+" 32 3868" || crc32.Checksum(b[:n], crc32.MakeTable(crc32.Castagnoli)) != sum {
		t.Errorf("got %s, checksum %x", got, sum)
	}
}

// With rules for one address each, two containers share a port of the host.
func TestTwoOnOnePort(t *testing.T) {
	w := newWorld(t)
	w.serve()
	w.host.Do(func() { run(t, "ip", "addr", "add", "10.9.0.7/24", "dev", "eth0") })
	w.publish(port("tcp", hostAddr+":80", webAddr+":80"), port("tcp", "10.9.0.7:80", appAddr+":80"))
	w.wants("tcp", hostAddr+":80", map[*linktest.NS]string{w.away: awayAddr})
	if _, err := ask(w.away, "tcp", "10.9.0.7:80"); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("app serves nothing: %v", err)
	}
}

// TestOtherHosts: what another host sends from its own address goes on to a container,
// from the gateway's.
func TestOtherHosts(t *testing.T) {
	w := newWorld(t)
	w.serve()
	other := linktest.New(t)
	linktest.Wire(t, "other", w.host, other, nil, []string{"240.1.0.2/5"})
	cfg := full(v4)
	cfg.Hosts = []netip.Prefix{netip.MustParsePrefix("240.0.0.0/5")}
	w.host.Do(func() {
		run(t, "ip", "link", "set", "other", "master", "gv0")
		run(t, "ip", "addr", "add", "240.1.0.1/5", "dev", "gv0")
		if err := w.nat.Set(ctx, cfg); err != nil {
			t.Fatal(err)
		}
	})
	other.Do(func() { run(t, "ip", "route", "add", "10.128.0.0/14", "via", "240.1.0.1") })
	for _, proto := range []string{"tcp", "udp"} {
		if said, err := ask(other, proto, webAddr+":80"); err != nil || said != gateway4.Addr().String() {
			t.Errorf("%s from another host: %q, %v", proto, said, err)
		}
	}
	// Of those alone, and not of the outside.
	if said, err := ask(w.away, "tcp", webAddr+":80"); err == nil {
		t.Errorf("from outside: %q", said)
	}
}

// What is served leaves by its address or not at all: conntrack makes nothing of some packets of a container, and the
// table nat never sees these.
func TestServedOrNothing(t *testing.T) {
	const served = "10.9.0.25"
	w := newWorld(t)
	w.leaveBy(served)
	var seen *linktest.Socket
	w.away.Do(func() { seen = linktest.Open(t, "eth0") })
	defer seen.Close()
	send := func(network string, payload []byte) {
		w.web.Do(func() {
			c, err := net.Dial(network, awayAddr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, _ = c.Write(payload) // the kernel says of the one before that nobody listens
		})
	}
	tcp := func(flags byte) []byte {
		p := make([]byte, 20)
		binary.BigEndian.PutUint16(p, 5000+uint16(flags))
		binary.BigEndian.PutUint16(p[2:], 9)
		p[12], p[13], p[14] = 5<<4, flags, 0x20
		return p // conntrack does not look at the checksum of what it forwards
	}
	const fin, syn, rst, psh, ack = 1, 2, 4, 8, 16
	for _, flags := range []byte{syn | fin, syn | rst, 0, fin, fin | psh, rst, rst | ack, syn | ack} {
		send("ip4:tcp", tcp(flags))
	}
	send("ip4:icmp", []byte{0, 0, 0xff, 0xff, 0, 0, 0, 0})                  // the answer to nothing
	send("ip4:icmp", append([]byte{3, 1, 0xfc, 0xfe}, make([]byte, 28)...)) // an error about nothing
	send("ip4:udp", []byte{19, 136, 0, 9, 0, 9, 0, 0, 1})
	from := map[string]int{}
	for from[served+" 17"] == 0 { // which is last
		frame := seen.Receive(5 * time.Second)
		if frame == nil {
			t.Fatalf("the datagram did not leave; seen: %v", from)
		}
		if len(frame) >= 34 && frame[12] == 8 && frame[13] == 0 {
			from[fmt.Sprint(netip.AddrFrom4([4]byte(frame[26:30])), " ", frame[23])]++
		}
	}
	for who := range from {
		if !strings.HasPrefix(who, served+" ") && !strings.HasPrefix(who, awayAddr+" ") {
			t.Errorf("a packet has left as %s; of all: %v", who, from)
		}
	}
}
