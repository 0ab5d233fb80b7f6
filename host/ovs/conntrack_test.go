package ovs

import (
	"slices"
	"testing"
)

// TestCannotTrack: a kernel without zones of conntrack (User-Mode Linux's) has the rest.
func TestCannotTrack(t *testing.T) {
	const features = `Masked set action: Yes
Max VLAN headers: 2
Recirc: Yes
CT state: Yes
CT zone: No
CT mark: Yes
CT label: Yes
CT state NAT: Yes
CT orig tuple: Yes
`
	if got, want := cannotTrack([]byte(features)), []string{"CT zone", "CT orig tuple for IPv6"}; !slices.Equal(got, want) {
		t.Errorf("it lacks %q, want %q", got, want)
	}
}
