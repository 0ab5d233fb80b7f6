package ipam

import (
	"net/netip"
	"strings"
	"testing"

	dockeripam "github.com/docker/go-plugins-helpers/ipam"
	"pgregory.net/rapid"

	"github.com/grapevine-net/grapevine/cluster"
)

func TestPoolIDIsStateless(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		addr := netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(rt, "address")))
		id := PoolID{Prefix: netip.PrefixFrom(addr, rapid.IntRange(0, 32).Draw(rt, "bits")).Masked()}
		if rapid.Bool().Draw(rt, "with a range") {
			id.Range = netip.PrefixFrom(addr, rapid.IntRange(id.Prefix.Bits(), 32).Draw(rt, "range bits")).Masked()
		}
		got, err := ParsePoolID(id.String())
		if err != nil || got != id {
			rt.Fatalf("%s is parsed as %v, %v", id, got, err)
		}
	})
}

func FuzzParsePoolID(f *testing.F) {
	for _, s := range []string{"grapevine/10.1.0.0/16", "grapevine/10.1.0.0/16/10.1.2.0/24", "grapevine/fd00::/64", "", "grapevine/", "grapevine/10.1.0.1/16"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParsePoolID(s)
		if err != nil {
			return
		}
		again, err := ParsePoolID(id.String())
		if err != nil || again != id {
			t.Errorf("%q is %s, which is %v, %v", s, id, again, err)
		}
	})
}

func TestBadRequests(t *testing.T) {
	d := NewDriver(newWorld(t, 1).hosts[0].Allocator, nil, nil)
	for _, c := range []struct {
		pool, sub string
		opts      map[string]string
		v6        bool
		want      string
	}{
		{pool: "fd00::/127", v6: true, want: "between 16 and 126"},
		{pool: "fe80::/64", v6: true, want: "is reserved"},
		{pool: "ff05::/64", v6: true, want: "is reserved"},
		{pool: "::/64", v6: true, want: "is reserved"},
		{pool: "fd67:7261:7065:2::/64", v6: true, want: "by which hosts speak"},
		{pool: "fd00::/64", opts: map[string]string{"prefixlen6": "65"}, v6: true, want: "contradicts"},
		{opts: map[string]string{"prefixlen6": "47"}, v6: true, want: "does not fit into the cluster's IPv6 ranges (fd12:3456:789a::/48)"},
		{opts: map[string]string{"prefixlen6": "120", "hostsubnetlength": "9"}, v6: true, want: "does not fit into a /120"},
		{pool: "10.1.0.0/16", v6: true, want: "is of IPv4, and was asked for as IPv6's"},
		{pool: "fd00::/64", want: "is of IPv6, and was asked for as IPv4's"},
		{pool: "banana", want: `subnet "banana" is not a prefix`},
		{pool: "10.1.0.1/16", want: "write 10.1.0.0/16"},
		{pool: "10.1.0.0/31", want: "between 8 and 30"},
		{pool: "10.0.0.0/4", want: "has host bits set"},
		{pool: "127.0.0.0/16", want: "is reserved"},
		{pool: "224.0.0.0/16", want: "is reserved"},
		{pool: "0.0.0.0/8", want: "is reserved"},
		{pool: "::ffff:10.0.0.0/112", want: "IPv4-mapped"},
		{pool: "2002:5::/32", v6: true, want: "is of 6to4"}, // in the books it would be 0.5.0.0/16
		{pool: "10.1.0.0/16", sub: "10.2.0.0/24", want: "not inside the subnet"},
		{pool: "10.1.0.0/16", sub: "10.0.0.0/8", want: "not inside the subnet"},
		{sub: "10.2.0.0/24", want: "give --subnet as well"},
		{opts: map[string]string{"banana": "1"}, want: "known are hostsubnetlength, prefixlen, prefixlen6"},
		{opts: map[string]string{"prefixlen": "x"}, want: "between 8 and 30"},
		{opts: map[string]string{"prefixlen": "9"}, want: "does not fit into the cluster's IPv4 ranges"},
		{opts: map[string]string{"hostsubnetlength": "11"}, want: "does not fit into a /24"},
		{pool: "10.1.0.0/24", opts: map[string]string{"prefixlen": "25"}, want: "contradicts"},
		{pool: "10.1.0.0/24", opts: map[string]string{"hostsubnetlength": "9"}, want: "does not fit"},
	} {
		_, err := d.RequestPool(ctx, &dockeripam.RequestPoolRequest{Pool: c.pool, SubPool: c.sub, Options: c.opts, V6: c.v6})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for _, c := range []dockeripam.RequestAddressRequest{
		{PoolID: ""},
		{PoolID: "LocalDefault/10.0.0.0/8"},
		{PoolID: "grapevine/10.1.0.0"},
		{PoolID: "grapevine/10.9.0.0/16"},
		{PoolID: "grapevine/10.9.0.0/16", Address: "x"},
		{PoolID: "grapevine/10.9.0.0/16", Address: "fe80::1%eth0"},
	} {
		if got, err := d.RequestAddress(ctx, &c); err == nil {
			t.Errorf("%+v: %+v", c, got)
		}
	}
	if len(d.alloc.core.state.pools) != 0 || len(d.alloc.Leases()) != 0 {
		t.Error("bad requests have changed something")
	}
}

func TestPoolsAskedForAgain(t *testing.T) {
	d := NewDriver(newWorld(t, 1).hosts[0].Allocator, nil, nil)
	request := func(pool string) string {
		return get(d.RequestPool(ctx, &dockeripam.RequestPoolRequest{AddressSpace: AddressSpace, Pool: pool}))(t).PoolID
	}
	one, two := request(""), request("")
	if one == two {
		t.Errorf("%s twice: docker would ask forever if it did not suit", one)
	}
	for range 2 { // a replay, and releases repeated
		_ = request("10.128.0.0/24")
		_ = get(d.ReleasePool(ctx, &dockeripam.ReleasePoolRequest{PoolID: one}))(t)
		_ = get(d.ReleasePool(ctx, &dockeripam.ReleasePoolRequest{PoolID: one}))(t)
		_ = get(d.ReleaseAddress(ctx, &dockeripam.ReleaseAddressRequest{PoolID: one, Address: "10.128.0.1"}))(t)
	}
	if _, ok := d.alloc.Subnet(netip.MustParsePrefix("10.128.0.0/24")); ok {
		t.Error("a released pool is there")
	}
}

// FuzzCalls sends any bytes as the calls of other hosts.
func FuzzCalls(f *testing.F) {
	for _, g := range []any{
		askGive{Kind: giveShare, Within: netip.MustParsePrefix("10.128.0.0/24")},
		askGive{Kind: giveShare, Within: netip.MustParsePrefix("10.128.0.0/24"), Subnet: netip.MustParsePrefix("10.128.0.0/16"), HostBits: 200},
		askGive{Kind: giveSpace, Within: netip.MustParsePrefix("::/0"), Unit: 64},
		askGive{Kind: giveExact, Within: netip.MustParsePrefix("0.0.0.7/32")},
		askForget{Dead: []cluster.NodeID{"0000000000000001"}},
	} {
		b, err := encode(g)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	w := newWorld(f, 2)
	a, b := w.hosts[0], w.hosts[1]
	p := w.network(a, "blue", 0)
	lease := get(a.Address(ctx, p, anywhere, anyAddr))(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, serve := range a.Methods() {
			_, _ = serve(ctx, string(b.id), body)
		}
		r := a.replica.Snapshot().Ring()
		if !r.OwnsAll(a.id, single(lease)) || !r.OwnsAll(a.id, single(first(p))) {
			t.Error("a leased or reserved address was given away")
		}
	})
}

// TestDockerRefusesEverySubnet: Docker asks on and keeps what it got, as long as a route of its host overlaps that.
// It gets the reason before it has all of the range, and what it gives back is there again.
func TestDockerRefusesEverySubnet(t *testing.T) {
	d := NewDriver(newWorld(t, 1).hosts[0].Allocator, nil, nil)
	ask := func() (string, error) {
		r, err := d.RequestPool(t.Context(), &dockeripam.RequestPoolRequest{AddressSpace: AddressSpace})
		if err != nil {
			return "", err
		}
		return r.PoolID, nil
	}
	var got []string
	var err error
	for err == nil && len(got) <= mostHeld {
		var id string
		if id, err = ask(); err == nil {
			got = append(got, id)
		}
	}
	if err == nil || len(got) < 2 || len(got) > mostHeld || !strings.Contains(err.Error(), "give a --subnet") {
		t.Fatalf("after %d: %v", len(got), err)
	}
	for _, id := range got {
		if _, err := d.ReleasePool(t.Context(), &dockeripam.ReleasePoolRequest{PoolID: id}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ask(); err != nil {
		t.Errorf("given back, and: %v", err)
	}
}
