package ovs

import (
	"context"
	"fmt"
	"time"
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

// settling is how long the datapath has to go by the flows that there are: ten times what it takes with 30,000 megaflows.
const settling = 3 * time.Second

// Settle returns when the datapath goes by the flows that the switch has, and by none that there were before. After a change of flows
// ovs-vswitchd works out again what it has in the datapath, megaflow by megaflow, and until it comes to one that goes on as it was: for
// milliseconds as a rule, and for a second or two where a container has made tens of thousands of them. It blocks for half a second
// at most where there are few.
func (b *Bridge) Settle(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// It answers when it is awake for another reason, and beside the kernel's datapath it may sleep for long.
	go func() {
		for ctx.Err() == nil {
			_, _ = b.Appctl(ctx, "version")
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	wait, ended := context.WithTimeout(ctx, settling)
	defer ended()
	// Once it has answered a question it has had those who go through the megaflows know of the change. A pass may still be under way that
	// began before: of two ends the second is that of one that began after it.
	for _, command := range []string{"version", "revalidator/wait", "revalidator/wait"} {
		if _, err := b.Appctl(wait, command); err == nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		// It takes long, or cannot tell of two datapaths: what it has worked out goes, and the next packets are looked at anew.
		if _, err := b.Appctl(ctx, "revalidator/purge"); err != nil {
			return fmt.Errorf("have the switch forget what it worked out by the flows of before: %w", err)
		}
		return nil
	}
	return nil
}

// confuses says whether an Open vSwitch of this version may take one megaflow for another. One that does not say its version may.
func confuses(version string) bool {
	var major, minor int
	_, err := fmt.Sscanf(version, "ovs-vswitchd (Open vSwitch) %d.%d", &major, &minor)
	return err != nil || major < 3 || major == 3 && minor < 3
}
