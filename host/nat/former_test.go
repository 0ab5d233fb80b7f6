package nat

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// Somebody chooses the other framework of iptables, and the agent starts again: what it had in
// the former one goes, and all of it is in the new one.
func TestFormer(t *testing.T) {
	for _, kinds := range [][]string{{"nft", "legacy"}, {"legacy", "nft"}} {
		for _, policy := range []string{"ours", "theirs", "none"} {
			t.Run(kinds[0]+" to "+kinds[1]+", policy "+policy, func(t *testing.T) {
				ns, path := linktest.New(t), os.Getenv("PATH")
				saved := func(kind string) string {
					return run(t, "iptables-"+kind+"-save") + run(t, "ip6tables-"+kind+"-save")
				}
				useBackend(t, kinds[0])
				ns.Do(func() {
					run(t, "iptables", "-t", "nat", "-A", "POSTROUTING", "-s", "192.168.0.0/16", "-j", "MASQUERADE")
					n := New()
					switch policy {
					case "ours":
						if err := n.Forbid(false); err != nil {
							t.Fatal(err)
						}
					case "theirs":
						run(t, "iptables", "-P", "FORWARD", "DROP")
					}
					set(t, n, v4, v6)
				})
				t.Setenv("PATH", path)
				useBackend(t, kinds[1])
				n := New()
				n.glance = 20 * time.Millisecond
				ns.Do(func() {
					if policy == "ours" {
						n.Forbidden(false)
					}
					set(t, n, v4, v6)
				})
				keep(t, ns, n)
				ns.Do(func() {
					const left = "GRAPEVINE-P" // the chains of nat
					for end := time.Now().Add(10 * time.Second); strings.Contains(saved(kinds[0]), left); time.Sleep(20 * time.Millisecond) {
						if time.Now().After(end) {
							t.Fatalf("still there:\n%s", saved(kinds[0]))
						}
					}
					former := saved(kinds[0])
					if !strings.Contains(former, "192.168.0.0/16") {
						t.Errorf("others' rules have gone:\n%s", former)
					}
					if drops, passes := strings.Contains(former, ":FORWARD DROP"), strings.Contains(former, Forward); drops != (policy != "none") || !passes {
						t.Errorf("the policy stays as it was, and so does what lets pass:\n%s", former)
					}
					if strings.Contains(saved(kinds[1]), ":FORWARD DROP") {
						t.Errorf("what others' rules in the former framework let pass is dropped in this one:\n%s", saved(kinds[1]))
					}
					for _, chain := range []string{Forward, Postrouting, Prerouting} {
						if strings.Count(saved(kinds[1]), "-j "+chain+"\n") < 2 {
							t.Errorf("%s is not there in both families:\n%s", chain, saved(kinds[1]))
						}
					}
				})
			})
		}
	}
}

// Somebody chooses the other framework while the agent runs. What the former one drops stays dropped, and
// no more is: when its rules go, the policy is this one's, and what has forwarding on is no open router.
func TestFormerPolicy(t *testing.T) {
	for _, kinds := range [][]string{{"nft", "legacy"}, {"legacy", "nft"}} {
		t.Run(kinds[0]+" to "+kinds[1], func(t *testing.T) {
			ns, path := linktest.New(t), os.Getenv("PATH")
			useBackend(t, kinds[0])
			n := New()
			n.glance = 20 * time.Millisecond
			ns.Do(func() {
				for _, v6 := range []bool{false, true} {
					if err := n.Forbid(v6); err != nil {
						t.Fatal(err)
					}
				}
				set(t, n, v4, v6)
			})
			keep(t, ns, n)
			t.Setenv("PATH", path)
			useBackend(t, kinds[1])
			ns.Do(func() {
				forward := func(kind, command string) string {
					out := run(t, command+"-"+kind, "-S", "FORWARD")
					return out[strings.Index(out, "-P "):] // behind a warning
				}
				eventually := func(what string, right func(command string) bool) {
					t.Helper()
					for _, command := range []string{"iptables", "ip6tables"} {
						for end := time.Now().Add(10 * time.Second); !right(command); time.Sleep(20 * time.Millisecond) {
							if time.Now().After(end) {
								t.Fatalf("%s: %s\nformer: %s\nnow: %s", what, command, forward(kinds[0], command), forward(kinds[1], command))
							}
						}
					}
				}
				eventually("the rules are in the new one, and its policy is left alone", func(command string) bool {
					now := forward(kinds[1], command)
					return strings.HasPrefix(now, "-P FORWARD ACCEPT\n") && strings.Contains(now, Forward)
				})
				for _, command := range []string{"iptables", "ip6tables"} {
					if !strings.HasPrefix(forward(kinds[0], command), "-P FORWARD DROP\n") {
						t.Errorf("the former policy has gone: %s", forward(kinds[0], command))
					}
					run(t, command+"-"+kinds[0], "-F")
					run(t, command+"-"+kinds[0], "-X")
					run(t, command+"-"+kinds[0], "-P", "FORWARD", "ACCEPT")
				}
				eventually("the former rules have gone", func(command string) bool {
					return strings.HasPrefix(forward(kinds[1], command), "-P FORWARD DROP\n")
				})
			})
		})
	}
}
