package ovs

import (
	"context"
	"fmt"
)

// ForgetMegaflows has ovs-vswitchd forget what it has worked out by the flows of before, where it may keep some of that for good. It is for
// after a change of flows, and does nothing with the kernel's datapath and where Open vSwitch is 3.3 or newer.
//
// What a packet comes to, the userspace datapath remembers for all packets like it (a megaflow), and works out again after each change. Two of
// these may be about one packet. To change the one, Open vSwitch before 3.3 (and 3.2.1, 3.1.3, 2.17.8) looks for it by a packet, and may
// find the other: the first then stays as it was, for as long as anything comes by it, and lets through what is forbidden now, or the
// other way round. Debian bookworm has 3.1.0. Its mending: openvswitch/ovs 21410ff80.
//
// The next packet of each megaflow goes through ovs-vswitchd. Those of other bridges of this datapath are forgotten as well.
func (b *Bridge) ForgetMegaflows(ctx context.Context) error {
	if b.Datapath != Userspace {
		return nil
	}
	// Asked each time: it may be another one since.
	said, err := b.Appctl(ctx, "version")
	if err != nil {
		return fmt.Errorf("ask the switch for its version: %w", err)
	}
	if !confuses(string(said)) {
		return nil
	}
	if _, err := b.Appctl(ctx, "revalidator/purge"); err != nil {
		return fmt.Errorf("have the switch forget what it worked out by the flows of before: %w", err)
	}
	return nil
}

// confuses says whether an Open vSwitch of this version may take one megaflow for another. One that does not say its version may.
func confuses(version string) bool {
	var major, minor int
	_, err := fmt.Sscanf(version, "ovs-vswitchd (Open vSwitch) %d.%d", &major, &minor)
	return err != nil || major < 3 || major == 3 && minor < 3
}
