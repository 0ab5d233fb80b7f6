package announce

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/replica"
	"github.com/grapevine-net/grapevine/replica/replicatest"
)

const (
	self     = cluster.NodeID("00000000000000aa")
	patience = 30 * time.Second
)

// router is one that speaks BGP as far as to have a session and to hear routes.
type router struct {
	l    net.Listener
	conn net.Conn
}

func listen(t *testing.T) (*router, config.Router) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return &router{l: l}, config.Router{Addr: netip.MustParseAddrPort(l.Addr().String()), AS: 64512, LocalAS: 64513, Hold: 30 * time.Second, Restart: time.Minute}
}

// meet takes a call, and has a session.
func (r *router) meet(t *testing.T) {
	t.Helper()
	var err error
	if r.conn, err = r.l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.conn.Close() })
	can := []packet.ParameterCapabilityInterface{packet.NewCapFourOctetASNumber(64512), packet.NewCapMultiProtocol(packet.RF_IPv4_UC)}
	open, err := packet.NewBGPOpenMessage(64512, 90, netip.MustParseAddr("192.0.2.254"), []packet.OptionParameterInterface{packet.NewOptionParameterCapability(can)})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*packet.BGPMessage{open, packet.NewBGPKeepAliveMessage()} {
		b, err := m.Serialize()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.conn.Write(b); err != nil {
			t.Fatal(err)
		}
	}
}

// hear returns the next routes that come or go.
func (r *router) hear(t *testing.T) string {
	t.Helper()
	for {
		_ = r.conn.SetReadDeadline(time.Now().Add(patience))
		head := make([]byte, packet.BGP_HEADER_LENGTH)
		if _, err := io.ReadFull(r.conn, head); err != nil {
			return err.Error()
		}
		var h packet.BGPHeader
		if err := h.DecodeFromBytes(head); err != nil {
			t.Fatal(err)
		}
		body := make([]byte, int(h.Len)-len(head))
		if _, err := io.ReadFull(r.conn, body); err != nil {
			t.Fatal(err)
		}
		m, err := packet.ParseBGPBody(&h, body)
		if err != nil {
			t.Fatal(err)
		}
		u, is := m.Body.(*packet.BGPUpdate)
		if !is {
			continue
		}
		var text []string
		for _, n := range u.WithdrawnRoutes {
			text = append(text, "-"+n.NLRI.String())
		}
		for _, n := range u.NLRI {
			text = append(text, "+"+n.NLRI.String())
		}
		if slices.Sort(text); len(text) > 0 {
			return strings.Join(text, " ")
		}
	}
}

// host is one that holds the egress mail.
func host(t *testing.T, at config.Router) (*Announcer, *replica.Replica) {
	r := replicatest.New(t, self, cluster.Node{ID: self, Name: "host1"}, cluster.Network{Name: "blue", VNID: 5},
		cluster.Egress{Name: "mail", Networks: []string{"blue"}, Addrs: []netip.Addr{netip.MustParseAddr("203.0.113.25")}}, cluster.EgressHolder{Egress: "mail", Host: self})
	return New(Config{
		Self: self, Underlay: netip.MustParseAddr("192.0.2.1"), Source: r, Serves: func(string) bool { return true }, Log: slog.New(slog.DiscardHandler),
		Settings: config.Config{BGP: []config.Router{at}, BGPAddresses: []netip.Addr{netip.MustParseAddr("203.0.113.80")}},
		Own:      func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil },
	}), r
}

// run runs it until the test ends.
func run(t *testing.T, a *Announcer) {
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); _ = a.Run(ctx) }()
	t.Cleanup(func() { stop(); <-over })
}

// TestAnnounce: a router is told what is here and what comes and goes; the host may take what routers lead to once one hears it; and
// what the settings want told and cannot be is a problem.
func TestAnnounce(t *testing.T) {
	r, at := listen(t)
	a, state := host(t, at)
	if now := a.Routed(); now.Take || !now.Keep || len(now.From) > 0 {
		t.Errorf("an agent that begins keeps what it has, and takes nothing: %+v", now)
	}
	run(t, a)
	r.meet(t)
	if got := r.hear(t); got != "+203.0.113.25/32" {
		t.Errorf("the router hears %q", got)
	}
	for end := time.Now().Add(patience); !a.Routed().Take; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a session that is up leads nothing here")
		}
	}
	if now := a.Routed(); !now.Keep || !slices.Equal(now.From, []netip.Addr{netip.MustParseAddr("127.0.0.1")}) {
		t.Errorf("with a session: %+v", now)
	}
	if p := a.Problems(); len(p) != 1 || p[0].Code != api.BGPUnsaid || !strings.Contains(p[0].What, "203.0.113.80") || p[0].Do == "" {
		t.Errorf("of an address that is not here: %+v", p)
	}
	shown, err := a.Show(t.Context())
	for end := time.Now().Add(patience); err == nil && len(shown.Routers) == 1 && shown.Routers[0].Told == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		shown, err = a.Show(t.Context()) // it counts once it has been sent
	}
	if err != nil || len(shown.Routers) != 1 || !shown.Routers[0].Up || shown.Routers[0].Told != 1 || len(shown.Routes) != 1 || shown.Routes[0].For != "egress mail" {
		t.Errorf("it shows %+v, %v", shown, err)
	}
	if _, err := state.Update(func(tx *replica.Tx) error {
		tx.Delete(cluster.EgressHolder{Egress: "mail"}.Key())
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if got := r.hear(t); got != "-203.0.113.25/32" {
		t.Errorf("when it is held here no more the router hears %q", got)
	}
}

// TestNoRouter: a router without a session for ten seconds is named, and leads nothing here.
func TestNoRouter(t *testing.T) {
	_, at := listen(t)
	at.Addr = netip.MustParseAddrPort("127.0.0.1:1")
	a, _ := host(t, at)
	begin := time.Now()
	run(t, a)
	named := func() bool {
		return slices.ContainsFunc(a.Problems(), func(p api.Problem) bool { return p.Code == api.BGPDown && strings.Contains(p.What, "127.0.0.1") })
	}
	for !named() && time.Since(begin) < patience {
		time.Sleep(50 * time.Millisecond)
	}
	if took := time.Since(begin); !named() || took < down-time.Second {
		t.Errorf("named after %v: %+v", took, a.Problems())
	}
	if now := a.Routed(); now.Take {
		t.Errorf("nobody hears it: %+v", now)
	}
}

// TestRouterID: what routers know this host by is its IPv4 address, or else a number that is the same whenever it begins, and never 0.
func TestRouterID(t *testing.T) {
	if got := routerID(netip.MustParseAddr("::ffff:192.0.2.1"), string(self)); got.String() != "192.0.2.1" {
		t.Errorf("with IPv4: %v", got)
	}
	six := netip.MustParseAddr("2001:db8::1")
	one, again, other := routerID(six, "a"), routerID(six, "a"), routerID(six, "b")
	if one != again || one == other || !one.Is4() || one.IsUnspecified() {
		t.Errorf("with IPv6: %v, %v; another host's: %v", one, again, other)
	}
}
