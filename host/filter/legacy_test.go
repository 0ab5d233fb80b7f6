package filter

import (
	"os"
	"os/exec"
	"testing"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// TestLegacyPutsBack: what another program does to the chains is seen, and mended: on
// iptables' legacy tables too, where no program is run to see that nothing has changed.
func TestLegacyPutsBack(t *testing.T) {
	for _, kind := range []string{"nft", "legacy"} {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			for _, f := range []string{"iptables", "ip6tables"} {
				for _, suffix := range []string{"", "-save", "-restore"} {
					if err := os.Symlink("/usr/sbin/xtables-"+kind+"-multi", dir+"/"+f+suffix); err != nil {
						t.Fatal(err)
					}
				}
			}
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			linktest.New(t).Do(func() {
				// Newer kernels are built without: that is not CI's to mend. The hosts of tests/uml have iptables-legacy.
				if err := exec.Command("iptables", "-t", "mangle", "-S").Run(); err != nil {
					t.Skip("this kernel has no such table: ", err)
				}
				f, err := openLegacyFilter()
				if err == nil {
					err = f.Set(config)
				}
				if err != nil {
					t.Fatal(err)
				}
				for _, harm := range [][]string{
					{"-F"}, {"-F", "FORWARD"}, {"-F", chainForward}, {"-I", "FORWARD", "-j", "ACCEPT"}, {"-D", "INPUT", "-j", chainInput},
				} {
					for range 2 {
						if whole, err := f.with.whole(); !whole || err != nil {
							t.Fatalf("before %v: whole %v, %v", harm, whole, err)
						}
					}
					run(t, append([]string{"iptables", "-t", "mangle"}, harm...)...)
					if whole, err := f.with.whole(); whole || err != nil {
						t.Errorf("after %v: whole %v, %v", harm, whole, err)
					}
					if err := f.restore(); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}
