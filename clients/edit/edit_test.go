package edit

import (
	"context"
	"encoding/base64"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/clients"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
	"github.com/grapevine-net/grapevine/replica/replicatest"
)

const self = cluster.NodeID("00000000000000aa")

// addresses hands out one after the other.
type addresses struct {
	last   byte
	leased map[netip.Addr]string
}

func (a *addresses) Address(_ context.Context, subnet, _ netip.Prefix, _ netip.Addr) (netip.Addr, error) {
	a.last++
	addr := subnet.Addr().As16()
	addr[15] += a.last
	got := netip.AddrFrom16(addr).Unmap()
	a.leased[got] = ""
	return got, nil
}

func (a *addresses) Bind(_ netip.Prefix, addr netip.Addr, endpoint string) error {
	a.leased[addr] = endpoint
	return nil
}

func (a *addresses) Unbind(endpoint string) error {
	for addr, by := range a.leased {
		if by == endpoint {
			a.leased[addr] = ""
		}
	}
	return nil
}

func (a *addresses) Release(addr netip.Addr) error {
	if a.leased[addr] == "" {
		delete(a.leased, addr)
	}
	return nil
}

// door lets in who is in the snapshot when it is asked to, unless it is stuck.
type door struct {
	r     *replica.Replica
	stuck error
	in    map[string]bool
}

func (d *door) Look() {}

func (d *door) Failed(string) error { return d.stuck }

func (d *door) Ensure(context.Context) error {
	if d.stuck != nil {
		return d.stuck
	}
	clear(d.in)
	for _, c := range clients.On(d.r.Snapshot(), self) {
		d.in[string(c.Key[:])] = true
	}
	return nil
}

func (d *door) Public() (key [32]byte, err error) { return [32]byte{1}, nil }

func (d *door) Lets(key []byte) (bool, time.Time, netip.AddrPort) {
	return d.in[string(key)], time.Time{}, netip.AddrPort{}
}

func desk(t *testing.T) (Desk, *door, *addresses) {
	t.Helper()
	r := replicatest.New(t, self,
		cluster.Node{ID: self, Name: "host1"}, cluster.Network{Name: "blue", VNID: 1}, cluster.Network{Name: "gone", VNID: 2, Removed: true},
		cluster.Subnet{Network: "blue", Prefix: netip.MustParsePrefix("10.1.0.0/24"), Gateway: netip.MustParseAddr("10.1.0.1")},
		cluster.Subnet{Network: "blue", Prefix: netip.MustParsePrefix("10.9.0.0/24"), Gateway: netip.MustParseAddr("10.9.0.1")},
		cluster.Subnet{Network: "blue", Prefix: netip.MustParsePrefix("fd00::/64"), Gateway: netip.MustParseAddr("fd00::1")},
		cluster.Endpoint{ID: "e1", Network: "blue", Host: self, Name: "web", Aliases: []string{"www"}, Addrs: []netip.Addr{netip.MustParseAddr("10.1.0.250")}},
	)
	d, a := &door{r: r, in: map[string]bool{}}, &addresses{leased: map[netip.Addr]string{}, last: 1}
	return Desk{Self: self, Replica: r, Addresses: a, Door: d, At: netip.MustParseAddrPort("192.0.2.1:7949"), MTU: func(string) int { return 1450 }}, d, a
}

func key(n byte) string { return base64.StdEncoding.EncodeToString(append(make([]byte, 31), n)) }

// TestDesk: what is wrong is said and leaves nothing; a client has an address of each family for as long as it is one.
func TestDesk(t *testing.T) {
	d, at, a := desk(t)
	ctx := context.Background()
	good := api.AddClientRequest{Name: "laptop", Network: "blue", PublicKey: key(1)}
	for want, change := range map[string]func(*api.AddClientRequest){
		"small letters": func(r *api.AddClientRequest) { r.Name = "My laptop" }, "no network": func(r *api.AddClientRequest) { r.Network = "" },
		"there is no network green": func(r *api.AddClientRequest) { r.Network = "green" }, "there is no network gone": func(r *api.AddClientRequest) { r.Network = "gone" },
		"of zeros alone": func(r *api.AddClientRequest) { r.PublicKey = key(0) }, "this host's own": func(r *api.AddClientRequest) {
			r.PublicKey = base64.StdEncoding.EncodeToString(append([]byte{1}, make([]byte, 31)...))
		},
		"no public key": func(r *api.AddClientRequest) { r.PublicKey = "AAAA" }, "is not HOST:PORT": func(r *api.AddClientRequest) { r.Endpoint = "2001:db8::1:7949" },
		"is not HOST:PORT, as":                      func(r *api.AddClientRequest) { r.Endpoint = "vpn:1\nPostUp = rm" },
		"a container on network blue has that name": func(r *api.AddClientRequest) { r.Name = "web" }, "on host host1": func(r *api.AddClientRequest) { r.Name = "www" },
	} {
		bad := good
		change(&bad)
		if _, err := d.Add(ctx, bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	at.stuck = errors.New("the port is taken")
	if _, err := d.Add(ctx, good); err == nil || !strings.Contains(err.Error(), "the port is taken") {
		t.Errorf("added, and not let in: %v", err)
	}
	if list, err := d.List(ctx); err != nil || len(list) != 0 || len(a.leased) != 0 {
		t.Fatalf("what is wrong has made %+v, %v, %v", list, a.leased, err)
	}
	at.stuck, a.last = nil, 1
	added, err := d.Add(ctx, good)
	if err != nil || joined(added.Addrs) != "10.1.0.2/32 fd00::3/128" || joined(added.Allowed) != "10.1.0.0/24 10.9.0.0/24 fd00::/64" || joined(added.DNS) != "10.1.0.1 fd00::1" ||
		added.Endpoint != "192.0.2.1:7949" || added.MTU != 1420 || len(a.leased) != 2 {
		t.Fatalf("%+v, %v, %v", added, a.leased, err)
	}
	e := clients.All(d.Replica.Snapshot())[0]
	if e.Labels[cluster.ClientLabel] != "laptop" || !e.Labelled || e.Name != "laptop" || !at.in[string(e.Client)] {
		t.Errorf("%+v", e)
	}
	if _, err := d.Add(ctx, good); err == nil || !strings.Contains(err.Error(), "grapevine client remove laptop") {
		t.Errorf("added twice: %v", err)
	}
	same := good
	same.Name = "phone"
	if _, err := d.Add(ctx, same); err == nil || !strings.Contains(err.Error(), "client laptop has that public key") {
		t.Errorf("of one key: %v", err)
	}
	// While it may still come in, its addresses are nobody else's.
	at.stuck = errors.New("the device hangs")
	if _, err := d.Remove(ctx, api.RemoveClientRequest{Name: "laptop"}); err == nil || !strings.Contains(err.Error(), "may still let it in") || len(a.leased) != 2 {
		t.Errorf("%v, %v", err, a.leased)
	}
	at.stuck = nil
	if _, err := d.Add(ctx, good); err != nil {
		t.Fatal(err)
	}
	if done, err := d.Remove(ctx, api.RemoveClientRequest{Name: "laptop"}); err != nil || !strings.Contains(done.Text, "nothing of it passes") || len(a.leased) != 2 || len(at.in) != 0 {
		t.Errorf("%+v, %v, %v", done, err, a.leased)
	}
	if _, err := d.Remove(ctx, api.RemoveClientRequest{Name: "laptop"}); err == nil || !strings.Contains(err.Error(), "there is none of that name") {
		t.Errorf("removed twice: %v", err)
	}
}

func joined[T interface{ String() string }](list []T) string {
	var texts []string
	for _, one := range list {
		texts = append(texts, one.String())
	}
	return strings.Join(texts, " ")
}

// TestElsewhere: a client of another host is removed there.
func TestElsewhere(t *testing.T) {
	d, _, _ := desk(t)
	if _, err := d.Add(t.Context(), api.AddClientRequest{Name: "phone", Network: "blue", PublicKey: key(1)}); err != nil {
		t.Fatal(err)
	}
	d.Self = "00000000000000bb"
	_, err := d.Remove(t.Context(), api.RemoveClientRequest{Name: "phone"})
	if err == nil || !strings.Contains(err.Error(), "it was added at host host1") || !strings.Contains(err.Error(), "grapevine forget host1") {
		t.Errorf("%v", err)
	}
	if list, err := d.List(t.Context()); err != nil || len(list) != 1 || list[0].Here || list[0].Host != "host1" {
		t.Errorf("%+v, %v", list, err)
	}
}
