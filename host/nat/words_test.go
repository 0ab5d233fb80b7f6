package nat

import (
	"slices"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

func TestWords(t *testing.T) {
	for rule, want := range map[string][]string{
		``:                                   nil,
		`-A FORWARD  -j ACCEPT `:             {"-A", "FORWARD", "-j", "ACCEPT"},
		`--comment "a b" -j X`:               {"--comment", "a b", "-j", "X"},
		`--comment "" -j X`:                  {"--comment", "", "-j", "X"},
		`--comment "say \"hi\" \\" -j X`:     {"--comment", `say "hi" \`, "-j", "X"},
		`--comment "x -j GRAPEVINE-FORWARD"`: {"--comment", "x -j GRAPEVINE-FORWARD"},
	} {
		if got := Words(rule); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", rule, got, want)
		}
	}
}

// Rules by which others lead to our chains go, whatever is quoted in them; those that only speak of
// our chains stay.
func TestPurgeQuoted(t *testing.T) {
	for _, kind := range []string{"nft", "legacy"} {
		t.Run(kind, func(t *testing.T) {
			useBackend(t, kind)
			linktest.New(t).Do(func() {
				set(t, New(), v4, v6)
				for _, comment := range []string{"plain", "of mine, by hand", `with "quotes" and \`, ""} {
					run(t, "iptables", "-I", "FORWARD", "-s", "192.0.2.7", "-m", "comment", "--comment", comment, "-j", Forward)
				}
				const stays = `-j ACCEPT once -j GRAPEVINE-FORWARD`
				run(t, "iptables", "-A", "FORWARD", "-m", "comment", "--comment", stays, "-j", "ACCEPT")
				if _, err := Purge(); err != nil {
					t.Error(err)
				}
				got := strings.TrimSpace(run(t, "iptables", "-S"))
				if strings.Contains(strings.ReplaceAll(got, stays, ""), ours) || !strings.Contains(got, stays) {
					t.Errorf("left: %s", got)
				}
			})
		})
	}
}
