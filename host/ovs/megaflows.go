package ovs

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
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

// settling is how long the datapath has to go by the flows that there are, by itself: some passes of those who work out megaflows anew.
const settling = 3 * time.Second

// many megaflows are not waited for: a pass over 30,000 takes up to 570 ms, and two were 1.7 s. A pass over fewer than these takes some 40 ms.
const many = 2000

// Settle returns when the datapath goes by the flows that the switch has, and by none that there were before. After a change of flows
// ovs-vswitchd works out again what it has in the datapath, megaflow by megaflow, and until it comes to one that goes on as it was: for
// milliseconds as a rule, and for a second or two where a container has made tens of thousands of them. Where there are many it has
// ovs-vswitchd forget them all, and the next packet of each goes through it. It blocks for half a second at most where there are few.
func (b *Bridge) Settle(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var poking sync.WaitGroup
	defer poking.Wait()
	defer cancel()
	// ovs-vswitchd answers revalidator/wait when it is awake for another reason, and beside the kernel's datapath it may sleep for long.
	poking.Go(func() {
		for ctx.Err() == nil {
			_, _ = b.Appctl(ctx, "version")
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	// Once it has answered a question it has had those who go through the megaflows know of the change.
	if _, err := b.Appctl(ctx, "version"); err != nil {
		return fmt.Errorf("ask the switch whether it goes by its flows: %w", err)
	}
	// Where its words are not understood there may be as many as it can have.
	said, err := b.Appctl(ctx, "upcall/show")
	if n, ok := megaflows(string(said)); err != nil || !ok || n > many {
		if err := b.purge(ctx); err != nil {
			return err
		}
	}
	// A pass may still be under way that began before the change, and who answers a packet may have begun to: of two ends the second is that
	// of a pass that began after it.
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

// purge has the switch forget all megaflows, and work out the next packet of each.
func (b *Bridge) purge(ctx context.Context) error {
	if _, err := b.Appctl(ctx, "revalidator/purge"); err != nil {
		return fmt.Errorf("have the switch forget what it worked out by the flows of before: %w", err)
	}
	return nil
}

// megaflows is how many ovs-vswitchd has in all datapaths, by upcall/show; false: it says none.
func megaflows(shown string) (n int, ok bool) {
	for _, found := range currentFlows.FindAllStringSubmatch(shown, -1) {
		in, err := strconv.Atoi(found[1])
		if err != nil {
			return 0, false
		}
		n, ok = n+in, true
	}
	return n, ok
}

var currentFlows = regexp.MustCompile(`(?m)^\s*flows\s*:\s*\(current (\d+)\)`)

// confuses says whether an Open vSwitch of this version may take one megaflow for another. One that does not say its version may.
func confuses(version string) bool {
	var major, minor int
	_, err := fmt.Sscanf(version, "ovs-vswitchd (Open vSwitch) %d.%d", &major, &minor)
	return err != nil || major < 3 || major == 3 && minor < 3
}
