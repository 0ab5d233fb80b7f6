package speaker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/grapevine-net/grapevine/bgp"
	"github.com/grapevine-net/grapevine/config"
)

// patience is for what must come.
const patience = 30 * time.Second

// router is one that hears what a speaker says, in words. What a real one makes of it is in tests/scenarios/bgp.txtar.
type router struct {
	t    *testing.T
	l    net.Listener
	conn net.Conn
}

func newRouter(t *testing.T) (*router, config.Router) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return &router{t: t, l: l}, config.Router{Addr: netip.MustParseAddrPort(l.Addr().String()), AS: 64512, LocalAS: 4200000001, Hold: 30 * time.Second, Restart: time.Minute}
}

// hear returns what comes next, but for keepalives.
func (r *router) hear() string {
	r.t.Helper()
	for {
		_ = r.conn.SetReadDeadline(time.Now().Add(patience))
		head := make([]byte, packet.BGP_HEADER_LENGTH)
		if _, err := readFull(r.conn, head); err != nil {
			return "closed"
		}
		var h packet.BGPHeader
		if err := h.DecodeFromBytes(head); err != nil {
			r.t.Fatal(err)
		}
		body := make([]byte, int(h.Len)-len(head))
		if _, err := readFull(r.conn, body); err != nil {
			r.t.Fatal(err)
		}
		m, err := packet.ParseBGPBody(&h, body)
		if err != nil {
			r.t.Fatalf("not BGP: %v", err)
		}
		if text := words(m); text != "" {
			return text
		}
	}
}

func readFull(c net.Conn, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		m, err = c.Read(b[n:])
		n += m
	}
	return n, err
}

// words are a message's, as far as it matters.
func words(m *packet.BGPMessage) string {
	switch b := m.Body.(type) {
	case *packet.BGPOpen:
		var can []string
		for _, p := range b.OptParams {
			for _, c := range p.(*packet.OptionParameterCapability).Capability {
				switch c := c.(type) {
				case *packet.CapGracefulRestart:
					can = append(can, fmt.Sprintf("restart %d %d", c.Time, len(c.Tuples)))
				case *packet.CapFourOctetASNumber:
					can = append(can, fmt.Sprint("as ", c.CapValue))
				case *packet.CapMultiProtocol:
					can = append(can, c.CapValue.String())
				}
			}
		}
		return fmt.Sprintf("open %d %d %v %s", b.MyAS, b.HoldTime, b.ID, strings.Join(can, " "))
	case *packet.BGPNotification:
		return fmt.Sprintf("notification %d/%d", b.ErrorCode, b.ErrorSubcode)
	case *packet.BGPUpdate:
		if end, f := b.IsEndOfRib(); end {
			return "end of " + f.String()
		}
		var text []string
		for _, n := range b.WithdrawnRoutes {
			text = append(text, "-"+n.NLRI.String())
		}
		for _, n := range b.NLRI {
			text = append(text, "+"+n.NLRI.String())
		}
		for _, a := range b.PathAttributes {
			switch a := a.(type) {
			case *packet.PathAttributeNextHop, *packet.PathAttributeMultiExitDisc, *packet.PathAttributeLocalPref, *packet.PathAttributeAsPath:
				text = append(text, a.String())
			}
		}
		return strings.Join(text, " ")
	}
	return ""
}

func (r *router) say(m *packet.BGPMessage) {
	r.t.Helper()
	if err := send(r.conn, m); err != nil {
		r.t.Fatal(err)
	}
}

// meet takes a call and says who the router is.
func (r *router) meet(as uint32) (open string) {
	r.t.Helper()
	conn, err := r.l.Accept()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	r.conn = conn
	open = r.hear()
	can := []packet.ParameterCapabilityInterface{packet.NewCapFourOctetASNumber(as), packet.NewCapMultiProtocol(packet.RF_IPv4_UC), packet.NewCapMultiProtocol(packet.RF_IPv6_UC),
		packet.NewCapGracefulRestart(false, false, 120, nil)}
	m, err := packet.NewBGPOpenMessage(uint16(as), 90, netip.MustParseAddr("192.0.2.254"), []packet.OptionParameterInterface{packet.NewOptionParameterCapability(can)})
	if err != nil {
		r.t.Fatal(err)
	}
	r.say(m)
	r.say(packet.NewBGPKeepAliveMessage())
	return open
}

func begin(t *testing.T, r config.Router, routes ...bgp.Route) (s *Speaker, stop func()) {
	s = New(Config{Routers: []config.Router{r}, ID: netip.MustParseAddr("192.0.2.1"), Log: slog.New(slog.DiscardHandler)})
	s.Set(routes)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); _ = s.Run(ctx) }()
	stop = func() { cancel(); <-over }
	t.Cleanup(stop)
	return s, stop
}

func route(p string, rank uint32) bgp.Route {
	return bgp.Route{Prefix: netip.MustParsePrefix(p), Rank: rank, For: "a test"}
}

// until waits for what the router has no way to see.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// TestSession: a router is told all that is here and then each change, all again if it asks, and nothing when the agent ends.
func TestSession(t *testing.T) {
	r, at := newRouter(t)
	s, stop := begin(t, at, route("203.0.113.25/32", 7), route("10.128.0.0/23", 0), route("2001:db8::25/128", 7))
	hears := func(want ...string) {
		t.Helper()
		for _, w := range want {
			if got := r.hear(); got != w {
				t.Fatalf("heard %q, want %q", got, w)
			}
		}
	}
	if got, want := r.meet(64512), "open 23456 30 192.0.2.1 ipv4-unicast ipv6-unicast as 4200000001 restart 60 2"; got != want {
		t.Errorf("it begins with %q, want %q", got, want)
	}
	const way = " {AsPath: 4200000001} {Nexthop: 127.0.0.1}"
	all := []string{"+10.128.0.0/23" + way, "+203.0.113.25/32" + way + " {Med: 7}"}
	hears(append(slices.Clone(all), "end of ipv4-unicast", "end of ipv6-unicast")...)
	until(t, "the session is not up", func() bool { return s.Sessions()[0].Up })
	if now := s.Sessions()[0]; !now.Keeps || now.Told != 2 || len(now.Unsaid) != 1 || !strings.Contains(now.Unsaid[0], "no address of IPv6") {
		t.Errorf("it says of the session %+v", now)
	}
	s.Set([]bgp.Route{route("203.0.113.25/32", 6), route("203.0.113.80/32", 0)})
	hears("-10.128.0.0/23", "+203.0.113.80/32"+way, "+203.0.113.25/32"+way+" {Med: 6}")
	r.say(&packet.BGPMessage{Header: packet.BGPHeader{Type: packet.BGP_MSG_ROUTE_REFRESH}, Body: &packet.BGPRouteRefresh{AFI: 1, SAFI: 1}})
	hears("+203.0.113.80/32"+way, "+203.0.113.25/32"+way+" {Med: 6}")
	// A route that the router tells is nobody's business.
	m, err := announcement(at, packet.RF_IPv4_UC, []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, 0, netip.MustParseAddr("192.0.2.254"))
	if err != nil {
		t.Fatal(err)
	}
	r.say(m)
	s.Set([]bgp.Route{route("203.0.113.80/32", 0)})
	hears("-203.0.113.25/32")
	stop()
	hears("closed")
}

// TestEnd: a host that leaves says so.
func TestEnd(t *testing.T) {
	r, at := newRouter(t)
	at.LocalAS = at.AS
	s, _ := begin(t, at, route("203.0.113.25/32", 7))
	r.meet(64512)
	if got, want := r.hear(), "+203.0.113.25/32 {AsPath: } {Nexthop: 127.0.0.1} {Med: 7} {LocalPref: 100}"; got != want {
		t.Errorf("within an AS it says %q, want %q", got, want)
	}
	s.End(t.Context())
	for range 2 {
		r.hear() // the ends of both families
	}
	if got := r.hear(); got != "notification 6/2" {
		t.Errorf("it leaves with %q", got)
	}
}

// TestRefused: a router that is another one than the settings say is told so, and called again.
func TestRefused(t *testing.T) {
	r, at := newRouter(t)
	s, _ := begin(t, at)
	r.meet(64999)
	if got := r.hear(); got != "notification 2/2" {
		t.Errorf("another AS: it says %q", got)
	}
	until(t, "status does not say why", func() bool { return strings.Contains(s.Sessions()[0].Err, "its AS is 64999, and as= says 64512") })
	r.meet(64512)
	if got := r.hear(); got != "end of ipv4-unicast" {
		t.Errorf("the right one: it says %q", got)
	}
	r.say(packet.NewBGPNotificationMessage(packet.BGP_ERROR_CEASE, packet.BGP_ERROR_SUB_ADMINISTRATIVE_SHUTDOWN, append([]byte{4}, "away"...)))
	until(t, "what the router said is lost", func() bool { return strings.Contains(s.Sessions()[0].Err, `("away")`) })
}

// TestPassword: without the password of a session nobody is called.
func TestPassword(t *testing.T) {
	_, at := newRouter(t)
	at.PasswordFile = t.TempDir() + "/password"
	s, _ := begin(t, at)
	until(t, "status does not name the file", func() bool { return strings.Contains(s.Sessions()[0].Err, "password") })
	if err := os.WriteFile(at.PasswordFile, []byte(strings.Repeat("x", 81)), 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, "status does not say that it is too long", func() bool { return strings.Contains(s.Sessions()[0].Err, "81 bytes") })
}

// TestFlaps: a router that takes each call, and ends it at once, is one without a session since the beginning.
func TestFlaps(t *testing.T) {
	r, at := newRouter(t)
	s, _ := begin(t, at)
	since := s.Sessions()[0].Since
	for i := range 2 {
		r.meet(64512)
		until(t, "the session is not up", func() bool { return s.Sessions()[0].Up })
		_ = r.conn.Close()
		until(t, "the session is not down", func() bool { return !s.Sessions()[0].Up })
		if got := s.Sessions()[0].Since; !got.Equal(since) {
			t.Errorf("call %d: it says that there is no session since %v, want %v", i, got, since)
		}
	}
}

// TestLasted: only a session that lasted has the router called soon again.
func TestLasted(t *testing.T) {
	for since, want := range map[time.Duration]bool{0: false, 2 * lasting: true} {
		p := &peer{log: slog.New(slog.DiscardHandler), now: Session{Up: true, Since: time.Now().Add(-since)}}
		if got := p.down(errors.New("closed")); got != want {
			t.Errorf("after %v: it lasted: %t", since, got)
		}
		if p.down(errors.New("refused")) {
			t.Errorf("after %v: a call that was refused lasted", since)
		}
	}
}

// TestRenewed: the address that packets are to be sent to changes while a session is up.
func TestRenewed(t *testing.T) {
	v4, v6 := route("203.0.113.25/32", 7), route("2001:db8::25/128", 7)
	all := map[netip.Prefix]bgp.Route{v4.Prefix: v4, v6.Prefix: v6}
	was := hops{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fd00:db8::1")}
	now := hops{was.v4, netip.MustParseAddr("fd00:db8::2")}
	told := maps.Clone(all)
	if got := renewed(told, was, was); got != was || !maps.Equal(told, all) {
		t.Errorf("without a change %v is told anew", told)
	}
	list, err := updates(config.Router{AS: 1, LocalAS: 2}, told, all, renewed(told, was, now))
	if err != nil || len(list) != 1 {
		t.Fatalf("%d messages, %v", len(list), err)
	}
	for _, a := range list[0].Body.(*packet.BGPUpdate).PathAttributes {
		if reach, ok := a.(*packet.PathAttributeMpReachNLRI); ok && reach.Nexthop == now.v6 {
			return
		}
	}
	t.Errorf("the router is told %v", list[0].Body)
}

// TestMany: prefixes without end fit into messages.
func TestMany(t *testing.T) {
	want := map[netip.Prefix]bgp.Route{}
	for i := range 1000 {
		for _, p := range []netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 128, byte(i >> 8), byte(i)}), 32), netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 14: byte(i >> 8), 15: byte(i)}), 128),
		} {
			want[p] = bgp.Route{Prefix: p}
		}
	}
	h := hops{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fd00:db8::1")}
	for _, two := range [][2]map[netip.Prefix]bgp.Route{{nil, want}, {want, nil}} {
		list, err := updates(config.Router{AS: 1, LocalAS: 2}, two[0], two[1], h)
		if err != nil || len(list) != 10 {
			t.Fatalf("%d messages, %v", len(list), err)
		}
		for _, m := range list {
			if b, err := m.Serialize(); err != nil || len(b) > 4096 {
				t.Fatalf("a message of %d bytes, %v", len(b), err)
			}
		}
	}
}

// FuzzReceive: whatever a router says is read or refused.
func FuzzReceive(f *testing.F) {
	for _, m := range []*packet.BGPMessage{packet.NewBGPKeepAliveMessage(), packet.NewBGPNotificationMessage(6, 2, []byte{200, 'x'}), packet.NewEndOfRib(packet.RF_IPv6_UC)} {
		b, err := m.Serialize()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	hello, err := open(config.Router{AS: 1, LocalAS: 2, Hold: 9 * time.Second, Restart: time.Minute}, netip.MustParseAddr("192.0.2.1"))
	if err != nil {
		f.Fatal(err)
	}
	b, err := hello.Serialize()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := receive(strings.NewReader(string(data)))
		if err != nil {
			return
		}
		switch body := m.Body.(type) {
		case *packet.BGPOpen:
			_, _ = agree(config.Router{AS: 2, LocalAS: 1, Hold: 9 * time.Second}, body)
		case *packet.BGPNotification:
			if notified(body) == nil {
				t.Error("no word of the end")
			}
		}
	})
}

// TestWholeTable: a router that tells all it knows, as one whose filter is forgotten, costs no more than to read it: what it is told is
// not gone through for each of its messages.
func TestWholeTable(t *testing.T) {
	r, at := newRouter(t)
	var own []bgp.Route
	for i := range 2000 {
		own = append(own, route(fmt.Sprintf("10.128.%d.%d/32", i>>8, i&255), 0))
	}
	s, _ := begin(t, at, own...)
	r.meet(64512)
	for r.hear() != "end of ipv6-unicast" {
	}
	m, err := announcement(at, packet.RF_IPv4_UC, []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, 0, netip.MustParseAddr("192.0.2.254"))
	if err != nil {
		t.Fatal(err)
	}
	one, err := m.Serialize()
	if err != nil {
		t.Fatal(err)
	}
	const messages, at1000 = 100_000, 1000
	began := time.Now()
	many := slices.Repeat(one, at1000)
	for range messages / at1000 {
		_ = r.conn.SetWriteDeadline(time.Now().Add(patience))
		if _, err := r.conn.Write(many); err != nil {
			t.Fatal(err)
		}
	}
	s.Set(own[1:])
	if got := r.hear(); got != "-10.128.0.0/32" {
		t.Errorf("heard %q", got)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("%d messages keep it busy for %v", messages, took)
	}
}

// TestRefreshes: a router that asks to be told all again without an end is told at once, and then now and then, the last time after
// it has asked last. A change waits for none of that.
func TestRefreshes(t *testing.T) {
	r, at := newRouter(t)
	s, _ := begin(t, at, route("203.0.113.25/32", 7), route("203.0.113.26/32", 7))
	r.meet(64512)
	for r.hear() != "end of ipv6-unicast" {
	}
	refresh := &packet.BGPMessage{Header: packet.BGPHeader{Type: packet.BGP_MSG_ROUTE_REFRESH}, Body: &packet.BGPRouteRefresh{AFI: 1, SAFI: 1}}
	began := time.Now()
	r.say(refresh)
	all := r.hear()
	if took := time.Since(began); !strings.Contains(all, "+203.0.113.25/32 +203.0.113.26/32") || took >= anew {
		t.Fatalf("it asks for the first time, and hears %q after %v", all, took)
	}
	one, err := refresh.Serialize()
	if err != nil {
		t.Fatal(err)
	}
	const messages, at1000 = 100_000, 1000
	many := slices.Repeat(one, at1000)
	for range messages / at1000 {
		if _, err := r.conn.Write(many); err != nil {
			t.Fatal(err)
		}
	}
	s.Set([]bgp.Route{route("203.0.113.25/32", 6), route("203.0.113.26/32", 7)})
	changed := time.Now()
	times, got := 0, r.hear()
	for ; got == all; got = r.hear() {
		times++
	}
	if took := time.Since(changed); times > int(time.Since(began)/anew) || !strings.Contains(got, "Med: 6") || took >= anew {
		t.Errorf("it is told all %d times before the change, then %q, %v after that", times, got, took)
	}
	again := []string{r.hear(), r.hear()}
	slices.Sort(again)
	if took := time.Since(began); !strings.Contains(again[0], "+203.0.113.25/32") || !strings.Contains(again[1], "+203.0.113.26/32") || took < anew {
		t.Errorf("it has asked since, and hears %q after %v", again, took)
	}
}
