package doctor

import (
	"os"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
)

// FuzzFirewall: whatever iptables-save and nft print, there is a verdict, and soon.
func FuzzFirewall(f *testing.F) {
	ufw, err := os.ReadFile("testdata/ufw.rules")
	if err != nil {
		f.Fatal(err)
	}
	firewalld, err := os.ReadFile("testdata/firewalld.nft")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(ufw), "")
	f.Add(":INPUT DROP [0:0]\n", string(firewalld))
	f.Add(":INPUT DROP\n-A INPUT ! -s 10.0.0.0/8 -p tcp --dports 1:9,7947 -m comment --comment \"a \\\" b\" -j X\n-A X -g INPUT\n", "table inet f {\nchain c { type filter hook input priority 0; policy drop;\ntcp dport 7947 accept\n")
	f.Add(strings.Repeat("-A INPUT -j INPUT\n", 40), "")
	f.Add("-A  \"\n-A ! !\n:\n", "table a\nchain\n")
	f.Fuzz(func(t *testing.T, saved, nft string) {
		checks := (Firewall{Saved: []string{saved}, NFT: nft}).Judge(packets(), false)
		if len(checks) == 0 {
			t.Errorf("%q %q: no verdict", saved, nft)
		}
		for _, c := range checks {
			if c.Verdict == api.Wrong && (c.What == "" || c.Do == "") {
				t.Errorf("%q %q: %+v", saved, nft, c)
			}
		}
	})
}
