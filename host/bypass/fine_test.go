package bypass

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// Rules by which nothing was missed are read again when any rule has changed, and for other hosts than before.
func TestFine(t *testing.T) {
	ns, traffic := host(t)
	ns.Do(func() {
		if err := unheard(traffic, "none"); err != nil { // which notes whether this kernel lists its hooks
			t.Fatal(err)
		}
		var f fine
		against := func(t2 Traffic, want string) {
			t.Helper()
			if got := verdict(f.heard(t2)); want == "" && got != "" || !strings.Contains(got, want) {
				t.Errorf("judged %q, want %q", got, want)
			}
			if f.is != (want == "") {
				t.Errorf("after %q, that it is fine is known: %t", want, f.is)
			}
		}
		run(t, "nft add table inet x; nft add chain inet x i '{ type filter hook input priority 0; }'; nft add rule inet x i ip saddr 10.9.1.77 drop")
		against(traffic, "")
		read := f.generation
		against(traffic, "")
		if f.generation != read {
			t.Errorf("read at %d, and then at %d", read, f.generation)
		}
		run(t, "nft add rule inet x i udp dport 4789 drop")
		against(traffic, "drop")
		run(t, "nft flush chain inet x i; nft add rule inet x i ip saddr 10.9.1.77 drop")
		against(traffic, "")
		more := traffic
		more.Peers = append(slices.Clone(traffic.Peers), netip.MustParseAddr("10.9.1.77"))
		run(t, "ip route add 10.9.1.77/32 dev eth0")
		against(more, "drop")
	})
}
