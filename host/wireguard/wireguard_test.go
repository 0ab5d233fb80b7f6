package wireguard

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun/tuntest"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// The public key is the one that WireGuard's own tools have of it.
func TestPublic(t *testing.T) {
	private := Key{0: 8, 5: 77, 31: 64}
	if got, want := private.Public().String(), wgtypes.Key(private).PublicKey().String(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func peer(n byte, at string) Peer {
	inside := netip.MustParseAddr(fmt.Sprintf("fd67::%d", n))
	p := Peer{Key: Key{n}, Inside: netip.PrefixFrom(inside, 128)}
	if at != "" {
		p.Endpoint = netip.MustParseAddrPort(at)
	}
	return p
}

func TestDiff(t *testing.T) {
	heard := func(p Peer) Peer { p.Handshake = time.Unix(1e9, 0); return p }
	one, two := peer(1, "192.0.2.1:7948"), peer(2, "192.0.2.2:7948")
	moved := peer(2, "198.51.100.9:40000")
	stray := two
	stray.Inside = netip.MustParsePrefix("fd67::/64")
	twoStays := peer(2, "")
	gone := heard(moved)
	gone.Silent, gone.Lost = lost, true
	for _, tt := range []struct {
		name       string
		have, want []Peer
		said       map[Key]netip.AddrPort
		set        []Peer
		remove     []Key
	}{
		{"the same", []Peer{one, two}, []Peer{one, two}, nil, nil, nil},
		{"a new one", []Peer{one}, []Peer{one, two}, nil, []Peer{two}, nil},
		{"a forgotten one", []Peer{one, two}, []Peer{one}, nil, nil, []Key{two.Key}},
		{"WireGuard found it elsewhere", []Peer{heard(moved)}, []Peer{two}, map[Key]netip.AddrPort{two.Key: two.Endpoint}, nil, nil},
		{"so it did for an agent before", []Peer{heard(moved)}, []Peer{two}, nil, nil, nil},
		{"it is not there any more", []Peer{moved}, []Peer{two}, map[Key]netip.AddrPort{two.Key: two.Endpoint}, []Peer{two}, nil},
		{"it says that it has moved", []Peer{heard(moved)}, []Peer{two}, map[Key]netip.AddrPort{two.Key: moved.Endpoint}, []Peer{two}, nil},
		{"it is silent for too long", []Peer{one, gone}, []Peer{one, two}, map[Key]netip.AddrPort{two.Key: two.Endpoint}, []Peer{two}, []Key{two.Key}},
		{"somebody let it have more", []Peer{stray}, []Peer{two}, nil, []Peer{twoStays}, nil},
	} {
		got := Diff(State{Peers: tt.have}, State{Peers: tt.want}, tt.said)
		if !reflect.DeepEqual(got.Set, tt.set) || !reflect.DeepEqual(got.Remove, tt.remove) || got.Empty() != (tt.set == nil && tt.remove == nil) {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
	whole := Key{0: 0xff, 31: 0xff}
	if c := Diff(State{Private: whole.Clamped(), Port: 1}, State{Private: whole, Port: 1}, nil); !c.Empty() || whole.Public() != whole.Clamped().Public() {
		t.Errorf("a key that the device has is set again: %+v", c)
	}
	if c := Diff(State{}, State{Private: Key{1}, Port: 7948}, nil); *c.Private != (Key{1}) || *c.Port != 7948 {
		t.Errorf("%+v", c)
	}
}

// What is asked of wireguard-go it does, and what it answers is understood.
func TestUserspace(t *testing.T) {
	d := device.NewDevice(tuntest.NewChannelTUN().TUN(), conn.NewDefaultBind(), device.NewLogger(device.LogLevelSilent, ""))
	defer d.Close()
	if err := d.Up(); err != nil { // it comes up by itself at some moment, and has a port from then on
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go answer(l, d, new(refusals))
	private := Key{8: 1, 31: 64}
	want := State{Private: private, Peers: []Peer{peer(1, "192.0.2.1:7948"), peer(2, "[2001:db8::2]:7948")}}
	have, err := userspaceState(socket)
	if err != nil {
		t.Fatal(err)
	}
	if err := setUserspace(socket, Diff(have, want, nil)); err != nil {
		t.Fatal(err)
	}
	have, err = userspaceState(socket)
	if err != nil {
		t.Fatal(err)
	}
	if have.Private != private || len(have.Peers) != 2 || !Diff(have, State{Private: private, Port: have.Port, Peers: want.Peers}, nil).Empty() {
		t.Errorf("%+v", have)
	}
	// Ranges come to a peer, and go to another one, one by one.
	p := netip.MustParsePrefix
	for _, step := range [][2][]netip.Prefix{
		{{p("10.8.1.0/24"), p("10.8.2.0/24")}, {p("fd08::/64")}},
		{{p("10.8.1.0/24")}, {p("fd08::/64"), p("10.8.2.0/24"), p("10.8.1.128/25")}},
		{{}, {p("10.8.1.0/24")}},
		{{}, {}},
	} {
		want.Port, want.Peers[0].Ranges, want.Peers[1].Ranges = have.Port, step[0], step[1]
		c := Diff(have, want, nil)
		if len(c.Set)+len(c.Remove) > 0 {
			t.Errorf("for %v all addresses are given again: %+v", step, c)
		}
		if err := setUserspace(socket, c); err != nil {
			t.Fatal(err)
		}
		if have, err = userspaceState(socket); err != nil || len(have.Peers) != 2 || !Diff(have, want, nil).Empty() {
			t.Fatalf("%v: %+v, %v", step, have, err)
		}
	}
	want.Peers[0].Ranges, want.Peers[1].Ranges = nil, nil
	want.Port, want.Peers = have.Port, want.Peers[:1]
	if err := setUserspace(socket, Diff(have, want, nil)); err != nil {
		t.Fatal(err)
	}
	if have, err = userspaceState(socket); err != nil || !reflect.DeepEqual(have, want) {
		t.Errorf("%+v, %v, want %+v", have, err, want)
	}
	if err := setUserspace(socket, Change{Set: []Peer{{Key: Key{3}}}}); err == nil {
		t.Error("a peer without an address is taken")
	}
}
