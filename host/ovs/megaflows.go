package ovs

import (
	"context"
	"fmt"
	"sync"
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
	return b.purge(ctx)
}

// settling is how long the datapath has to go by the flows that there are, by itself: twice what it took with 30,000 megaflows beside
// the kernel's datapath, on a slow machine.
const settling = 10 * time.Second

// Settle returns when the datapath goes by the flows that the switch has, and by none that there were before. After a change of flows
// ovs-vswitchd works out again what it has in the datapath, megaflow by megaflow, and until it comes to one that goes on as it was: for
// milliseconds as a rule, and for a second or two where a container has made tens of thousands of them. Where it takes longer than settling, ovs-vswitchd
// forgets all of them. That is the last resort: while it forgets tens of thousands it does nothing else, for up to three seconds.
func (b *Bridge) Settle(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var poking sync.WaitGroup
	defer poking.Wait()
	defer cancel()
	// Once it has answered a question it has had those who go through the megaflows know of the change.
	if _, err := b.Appctl(ctx, "version"); err != nil {
		return fmt.Errorf("ask the switch whether it goes by its flows: %w", err)
	}
	poking.Go(func() { b.hurry(ctx) })
	// A pass may still be under way that began before the change: of two ends the second is that of a pass that began after it.
	wait, ended := context.WithTimeout(ctx, settling)
	defer ended()
	for range 2 {
		if _, err := b.Appctl(wait, "revalidator/wait"); err == nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		return b.purge(ctx) // it takes long, or cannot tell of two datapaths
	}
	return nil
}

// hurry has passes begin one after the other until ctx is done. By themselves those who go through the megaflows rest for half a second
// when nothing changes, and beside the kernel's datapath ovs-vswitchd may sleep, so that it does not tell who waits that a pass has ended. What
// changes here is an entry of the bridge's MAC table, which no flow of ours asks (Open vSwitch 2.16; an older one is woken alone).
func (b *Bridge) hurry(ctx context.Context) {
	const nobody = "02:67:72:61:70:65"
	remove := func(ctx context.Context) { _, _ = b.Appctl(ctx, "fdb/del", b.Name, "0", nobody) }
	defer remove(context.WithoutCancel(ctx))
	for pause := 5 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 100*time.Millisecond) {
		_, _ = b.Appctl(ctx, "fdb/add", b.Name, b.Name, "0", nobody)
		remove(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// purge has the switch forget all megaflows, and work out the next packet of each.
func (b *Bridge) purge(ctx context.Context) error {
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
