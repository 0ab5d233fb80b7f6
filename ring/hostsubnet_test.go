package ring

import (
	"fmt"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// The expectations are those of OpenShift SDN's own tests,
// pkg/network/master/util/subnet_allocator_test.go.
func TestHostSubnetOrderIsOpenShifts(t *testing.T) {
	tests := []struct {
		network  string
		hostBits int
		count    uint64
		want     map[uint64]string
	}{
		{"10.1.0.0/16", 8, 256, map[uint64]string{0: "10.1.0.0/24", 1: "10.1.1.0/24", 255: "10.1.255.0/24"}},
		{"10.1.0.0/16", 10, 64, map[uint64]string{0: "10.1.0.0/22", 1: "10.1.4.0/22", 63: "10.1.252.0/22"}},
		{"10.1.0.0/16", 6, 1024, map[uint64]string{
			0: "10.1.0.0/26", 1: "10.1.1.0/26", 255: "10.1.255.0/26", 256: "10.1.0.64/26",
			257: "10.1.1.64/26", 512: "10.1.0.128/26", 1023: "10.1.255.192/26",
		}},
		{"10.0.0.0/14", 10, 256, map[uint64]string{
			0: "10.0.0.0/22", 3: "10.3.0.0/22", 4: "10.0.4.0/22", 7: "10.3.4.0/22", 8: "10.0.8.0/22", 255: "10.3.252.0/22",
		}},
		{"10.1.0.0/16", 16, 1, map[uint64]string{0: "10.1.0.0/16"}},
		{"fd01::/48", 64, 65535, map[uint64]string{0: "fd01:0:0:1::/64", 255: "fd01:0:0:100::/64", 65534: "fd01:0:0:ffff::/64"}},
		{"fd01::/48", 68, 4096, map[uint64]string{0: "fd01::/60", 1: "fd01:0:0:10::/60"}},
		{"fd01::/48", 44, 1<<24 - 1<<8, map[uint64]string{
			0: "fd01:0:0:0:0:1000::/84", 255: "fd01:0:0:0:10::/84", 1<<24 - 1<<8 - 1: "fd01:0:0:f:ffff:f000::/84",
		}},
		{"fd01::/64", 64, 1, map[uint64]string{0: "fd01::/64"}},
		{"10.1.0.0/16", 18, 0, nil},
		{"10.1.0.0/16", 0, 0, nil},
		{"fd01::/64", 66, 0, nil},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s-%d", tt.network, tt.hostBits), func(t *testing.T) {
			network := netip.MustParsePrefix(tt.network)
			if n := HostSlots(network, tt.hostBits); n != tt.count {
				t.Fatalf("HostSlots = %d, want %d", n, tt.count)
			}
			for slot, want := range tt.want {
				if got := HostSubnet(network, tt.hostBits, slot); got != netip.MustParsePrefix(want) {
					t.Errorf("slot %d = %s, want %s", slot, got, want)
				}
			}
			if p := HostSubnet(network, tt.hostBits, tt.count); p.IsValid() {
				t.Errorf("slot %d, one too many, = %s", tt.count, p)
			}
		})
	}
}

func TestHostSlotIsTheInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bitLen := rapid.SampledFrom([]int{32, 128}).Draw(t, "bitLen")
		bits := rapid.IntRange(0, bitLen-1).Draw(t, "bits")
		network := netip.PrefixFrom(drawAddr(t, bitLen), bits).Masked()
		hostBits := rapid.IntRange(1, bitLen-bits).Draw(t, "hostBits")
		slot := rapid.Uint64Range(0, HostSlots(network, hostBits)-1).Draw(t, "slot")
		subnet := HostSubnet(network, hostBits, slot)
		if !contains(network, subnet) || subnet != subnet.Masked() {
			t.Fatalf("%s is not a subnet of %s", subnet, network)
		}
		if back, ok := HostSlot(network, hostBits, subnet); !ok || back != slot {
			t.Fatalf("slot %d = %s, which is slot %d, %v", slot, subnet, back, ok)
		}
		// The other way, for any subnet of the right size.
		other := netip.PrefixFrom(drawAddr(t, bitLen), bitLen-hostBits).Masked()
		if s, ok := HostSlot(network, hostBits, other); ok && HostSubnet(network, hostBits, s) != other {
			t.Fatalf("%s has slot %d, which is %s", other, s, HostSubnet(network, hostBits, s))
		}
	})
}

func drawAddr(t *rapid.T, bitLen int) netip.Addr {
	n := number{rapid.Uint64().Draw(t, "hi"), rapid.Uint64().Draw(t, "lo")}
	n.hi |= 1 << 63 // no IPv4-mapped ones
	return n.addr(bitLen)
}
