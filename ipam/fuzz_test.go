package ipam

import (
	"net/netip"
	"testing"
)

// FuzzServe: whatever a peer calls with, and whatever is on the disk, nothing
// crashes and nothing that is leased is given away.
func FuzzServe(f *testing.F) {
	for _, v := range []any{
		askGive{Kind: giveShare, Within: netip.MustParsePrefix("10.128.0.0/24")},
		askGive{Kind: giveSpace, Within: netip.MustParsePrefix("10.128.0.0/16"), Unit: 24},
		askForget{Dead: nil},
	} {
		b, err := encode(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, "pool 10.128.0.0/24")
	}
	f.Add([]byte(`{"Addr":"10.128.0.2"}`), "lease 10.128.0.2")
	f.Fuzz(func(t *testing.T, b []byte, key string) {
		w := newWorld(t, 2)
		h := w.hosts[0]
		p := w.network(h, "blue", 0)
		addr := get(h.Address(ctx, p, anywhere, anyAddr))(t)
		for _, serve := range h.Methods() {
			_, _ = serve(ctx, string(w.hosts[1].id), b)
		}
		if !h.replica.Snapshot().Ring().OwnsAll(h.id, single(addr)) {
			t.Errorf("%s is leased and was given away", addr)
		}
		s := newState()
		_ = s.load(key, b)
	})
}

// FuzzOptions: the values of --ipam-opt are refused or within their limits.
func FuzzOptions(f *testing.F) {
	f.Add("prefixlen", "24", "hostsubnetlength", "6")
	f.Add("prefixlen6", "64", "com.docker.x", "")
	f.Add("prefixlen", "+8", "banana", "1")
	f.Fuzz(func(t *testing.T, a, av, b, bv string) {
		o, err := parseOptions(map[string]string{a: av, b: bv}, options{bits: 22, bits6: Bits6})
		if err != nil {
			return
		}
		if o.bits < minBits4 || o.bits > maxBits4 || o.bits6 < minBits6 || o.bits6 > maxBits6 || o.hostBits < 0 || o.hostBits > 24 {
			t.Errorf("%s=%s %s=%s: %+v", a, av, b, bv, o)
		}
	})
}
