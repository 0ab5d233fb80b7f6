package cluster

import (
	"net/netip"
	"testing"
)

func TestListen(t *testing.T) {
	good := Listen{Endpoint: "e", Host: id(1), Groups: []netip.Addr{netip.MustParseAddr("239.1.2.3"), netip.MustParseAddr("ff02::fb")}}
	if err := Validate(good); err != nil {
		t.Error(err)
	}
	for _, a := range []string{"10.1.2.3", "fd00::1", "::ffff:239.1.2.3", "ff02::fb%eth0"} {
		bad := good
		bad.Groups = []netip.Addr{netip.MustParseAddr(a)}
		if Validate(bad) == nil {
			t.Errorf("%s is taken for a group", a)
		}
	}
	if speaksFor(id(2), good) || !speaksFor(id(1), good) {
		t.Error("a host speaks for another one's container, or not for its own")
	}
	many := good
	for i := range MaxGroups {
		many.Groups = append(many.Groups, netip.AddrFrom16([16]byte{0: 0xff, 1: 5, 14: byte(i), 15: 1}))
	}
	if raw, err := encoding.Marshal(many); err != nil || len(raw) > maxBody/8 {
		t.Errorf("%d groups are %d bytes: %v", len(many.Groups), len(raw), err)
	}
}

func TestMulticastNetwork(t *testing.T) {
	on := map[string]string{MulticastOption: "on"}
	for want, n := range map[bool]Network{true: {Name: "a", VNID: 5, Options: on}, false: {Name: "b", VNID: 0, Options: on}} {
		if n.Multicast() != want {
			t.Errorf("network %s carries multicast: %v", n.Name, !want)
		}
	}
	if (Network{VNID: 5}).Multicast() {
		t.Error("a network without the option carries multicast")
	}
}
