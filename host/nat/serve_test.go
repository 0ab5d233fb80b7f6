package nat

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// TestServe: what is served leaves by its address from before the first rule that masquerades, whether this host has
// it or not; a Set in between keeps it, and it goes when it is served no more.
func TestServe(t *testing.T) {
	linktest.New(t).Do(func() {
		n := New()
		served := []Source{{netip.MustParsePrefix("10.128.4.0/22"), netip.MustParseAddr("192.0.2.25")}}
		if err := n.Serve(served); err != nil {
			t.Fatal(err)
		}
		cfg := Config{Interface: "gv0", CIDRs: []netip.Prefix{v4}, Sources: []Source{{served[0].Subnet, netip.MustParseAddr("127.0.0.1")}}}
		for range 2 {
			if err := n.Set(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			want := "-N " + Postrouting + "\n-A " + Postrouting + " -s 10.128.4.0/22 ! -o gv0 -j SNAT --to-source 192.0.2.25\n"
			if got := lines(t, "iptables", "nat", Postrouting); !strings.HasPrefix(got, want) {
				t.Errorf("rules\n%s, want first\n%s", got, want)
			}
			want = "-N " + Forward + "\n-A " + Forward + " -s 10.128.4.0/22 -i gv0 ! -o gv0 -m conntrack --ctstate INVALID -j DROP\n"
			if got := lines(t, "iptables", "filter", Forward); !strings.HasPrefix(got, want) {
				t.Errorf("rules\n%s, want first\n%s", got, want)
			}
			cfg.Internal = []netip.Prefix{netip.MustParsePrefix("10.128.8.0/22")}
		}
		if err := n.Serve(nil); err != nil {
			t.Fatal(err)
		}
		for table, chain := range map[string]string{"nat": Postrouting, "filter": Forward} {
			if got := lines(t, "iptables", table, chain); strings.Contains(got, "192.0.2.25") || strings.Contains(got, "INVALID") {
				t.Errorf("served no more, and there is\n%s", got)
			}
		}
	})
}
