package nat

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// TestTables: of the tables that were not there before the agent the empty ones go with its rules, and those alone: what was there, or
// has somebody's rule, chain, policy or set in it, stays.
func TestTables(t *testing.T) {
	if _, err := Generation(); err != nil && os.Getenv("CI") == "" {
		t.Skipf("no nf_tables: %v", err)
	}
	linktest.New(t).Do(func() {
		useBackend(t, "nft")
		file := Tables(filepath.Join(t.TempDir(), "tables"))
		tables := func() []string {
			return strings.Split(strings.TrimSpace(run(t, "nft", "list", "tables")), "\n")
		}
		run(t, "ip6tables", "-t", "raw", "-N", "own")
		run(t, "ip6tables", "-t", "raw", "-X", "own") // an empty one of the host's own
		before := tables()
		n := New()
		for range 2 { // a second agent finds what the first one has made
			if err := file.Note(); err != nil {
				t.Fatal(err)
			}
			set(t, n, everything...)
		}
		if err := n.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
		if slices.Equal(tables(), before) {
			t.Fatal("the rules left no empty table: this test shows nothing")
		}
		for what, command := range map[string]string{
			"rule":   "nft add rule ip6 nat own accept",
			"policy": "ip6tables -P FORWARD DROP",
			"set":    "nft add set ip filter own '{ type ipv4_addr; }'",
		} {
			run(t, "sh", "-ec", map[string]string{"rule": "nft add chain ip6 nat own", "policy": "true", "set": "iptables -P FORWARD ACCEPT"}[what]+"; "+command)
		}
		gone, err := file.Clear()
		if err != nil {
			t.Fatal(err)
		}
		for _, kept := range []string{"table ip6 raw", "table ip6 nat", "table ip6 filter", "table ip filter"} {
			if !slices.Contains(tables(), kept) {
				t.Errorf("%s is gone, removed were %v", kept, gone)
			}
		}
		if slices.Contains(tables(), "table ip nat") {
			t.Errorf("the empty table of IPv4 is still there: %v, removed were %v", tables(), gone)
		}
		if _, err := os.Stat(string(file)); err == nil {
			t.Error("the note is still there")
		}
		run(t, "nft", "flush", "ruleset")
		if err := file.Note(); err != nil {
			t.Fatal(err)
		}
		set(t, n, everything...)
		if err := n.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := file.Clear(); err != nil {
			t.Fatal(err)
		}
		if out := run(t, "nft", "list", "tables"); out != "" {
			t.Errorf("left: %s", out)
		}
	})
}
