package resolved

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func TestCalls(t *testing.T) {
	got := calls("gv0", netip.MustParseAddr("127.0.0.79"), []string{"blue", "shop_default"})
	if fmt.Sprint(got) != "[[default-route gv0 no] [dns gv0 127.0.0.79] [domain gv0 blue shop_default]]" {
		t.Errorf("it is told %q", got)
	}
}

// TestNoDomain: without domains it is told that there are none, and not asked.
func TestNoDomain(t *testing.T) {
	last := calls("gv0", netip.MustParseAddr("127.0.0.79"), nil)[2]
	if len(last) != 3 || last[2] != "" || !told("Link 7 (gv0):\n", last[2:]) || told("Link 7 (gv0): blue\n", last[2:]) {
		t.Errorf("it is told %q", last)
	}
}

// TestTold reads what resolvectl 252 prints.
func TestTold(t *testing.T) {
	for text, want := range map[string][]string{
		"Link 7 (gv0): blue red\n":   {"blue", "red"},
		"Link 7 (gv0):\n":            {},
		"Link 7 (gv0): 127.0.0.79\n": {"127.0.0.79"},
		"Link 7 (gv0): no\n":         {"no"},
	} {
		if !told(text, want) {
			t.Errorf("%q is not %q", text, want)
		}
		if told(text, append(want, "green")) {
			t.Errorf("%q is %q and green", text, want)
		}
	}
}

// TestDomain: what is no name of DNS is told to nobody.
func TestDomain(t *testing.T) {
	for name, want := range map[string]bool{
		"blue": true, "shop_default": true, "a.b-c": true, "7": true, "": false, "~.": false, "~com": false, "-p": false, "a b": false, "a..b": false, ".": false,
		"blue.": false, "gr\u00fcn": false, strings.Repeat("a", 64): false, strings.Repeat("a", 63): true, "a\nb": false,
	} {
		if domain.MatchString(name) != want {
			t.Errorf("%q is a domain: %v", name, !want)
		}
	}
}
