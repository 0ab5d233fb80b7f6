package plane

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/host/link"
)

// A host that has no part in encrypted networks says what to set. One that has another encapsulation since something on the way
// eats VXLAN is told that inside WireGuard nothing sees it.
func TestCannotEncryptSaysWhatToSet(t *testing.T) {
	wide := link.Underlay{Interface: "eth0", Addr: netip.MustParseAddr("192.0.2.1"), MTU: 1500}
	for _, test := range []struct {
		cfg  config.Config
		want string
	}{
		{config.Config{Encap: "geneve", Encryption: "networks"}, "by Geneve (GRAPEVINE_ENCAP) is not encrypted; set GRAPEVINE_ENCAP=vxlan on every host, and where something on the way eats VXLAN GRAPEVINE_ENCRYPTION=all"},
		{config.Config{Encap: "gre", Encryption: "networks"}, "by GRE (GRAPEVINE_ENCAP) is not encrypted; set GRAPEVINE_ENCAP=vxlan"},
		{config.Config{Encap: "vxlan", Encryption: "off"}, "GRAPEVINE_ENCRYPTION is off on this host"},
	} {
		if err := CannotEncrypt(test.cfg, wide); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("encap %s, encryption %s: %v, want %q", test.cfg.Encap, test.cfg.Encryption, err, test.want)
		}
	}
}
