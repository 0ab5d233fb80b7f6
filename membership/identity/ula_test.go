package identity

import (
	"net/netip"
	"testing"
)

func TestULA(t *testing.T) {
	one, two := ULA(NewCluster()), ULA(NewCluster())
	locals := netip.MustParsePrefix("fd00::/8") // RFC 4193, 3.1
	if one == two || one.Bits() != 48 || one != one.Masked() || !locals.Contains(one.Addr()) || !locals.Contains(two.Addr()) {
		t.Errorf("%s and %s are not two unique local /48", one, two)
	}
	if ULA("").IsValid() {
		t.Error("no cluster has a ULA")
	}
	if got := ULA("0123456789abcdef0123456789abcdef").String(); got != "fdce:de4b:69a5::/48" {
		t.Errorf("a known cluster's ULA has changed to %s: its networks would come from elsewhere", got)
	}
}
