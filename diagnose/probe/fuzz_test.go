package probe

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/diagnose/paths"
)

// FuzzDatagram: what comes to the gossip port or as a frame is a probe or it is not, and only those
// of a session are noted.
func FuzzDatagram(f *testing.F) {
	const id = 7
	for _, b := range [][]byte{encode(id, Gossip, 100, 72), encode(id, Tunnel, 1450, 1450), encode(8, Gossip, 100, 100), encode(id, gossipEcho, 100, 72), encode(id, gossipBack, 100, 72), nil} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p := New(Config{Find: func(string) (Host, bool) { return Host{}, false }})
		s := &session{back: make(chan back, 1), seen: map[Kind]map[int]bool{Gossip: {}, Tunnel: {}}}
		p.sessions[id] = s
		taken := p.Datagram(b)
		session, kind, size, ok := decode(b)
		if taken != ok || whole(b) && !ok {
			t.Errorf("%x: taken %v, a probe %v", b, taken, ok)
		}
		h := s.heard()
		if want := ok && session == id && kind.way() == Gossip && kind != gossipBack; len(h.Tunnel) != 0 || (len(h.Gossip) == 1) != want || want && h.Gossip[0] != size {
			t.Errorf("%x: noted %v", b, h)
		}
	})
}

// FuzzCalls sends any bytes as the calls of another host. They open no more sessions than are to be,
// and nothing is sent to anybody else.
func FuzzCalls(f *testing.F) {
	f.Add([]byte(`{"session":18446744073709551615}`))
	f.Add([]byte(`{"session":7,"kind":1,"sizes":[100,1500]}`))
	f.Add([]byte(`{"session":7,"kind":2,"sizes":[-1,99999999]}`))
	f.Add([]byte(`{"session":7,"sizes":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		asked := map[string]bool{}
		p := New(Config{Self: "self", Device: "no such", Find: func(node string) (Host, bool) {
			asked[node] = true
			return Host{VTEP: netip.MustParseAddr("127.0.0.1"), Gossip: netip.MustParseAddrPort("127.0.0.1:9")}, true
		}})
		defer p.Close()
		for range 3 {
			for _, serve := range p.Methods() {
				_, _ = serve(context.Background(), "other", body)
			}
		}
		delete(asked, "self")
		delete(asked, "other")
		if len(asked) > 0 || len(p.sessions) > 1 {
			t.Errorf("%s: %v are sent to, %d sessions", body, asked, len(p.sessions))
		}
	})
}

// FuzzHello: what is no hello is refused; what is one says the same when it is said again.
func FuzzHello(f *testing.F) {
	for _, h := range []paths.Hello{
		{From: "0123456789abcdef", Every: time.Second, Hears: paths.All, Large: true},
		{From: "0123456789abcdef", Every: time.Second, Hears: paths.All, Large: true, Inside: true},
		{From: "0123456789abcdef", Every: time.Hour, Hears: paths.Nothing},
	} {
		b, err := encodeHello(h, smallHello)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte("gvprobe1 that is a probe and none of these"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, ok := decodeHello(b)
		if !ok {
			return
		}
		again, err := encodeHello(h, len(b))
		if err != nil {
			t.Fatal(err)
		}
		if g, ok := decodeHello(again); !ok || g != h {
			t.Errorf("%+v became %+v", h, g)
		}
	})
}
