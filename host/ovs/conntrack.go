package ovs

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// tracking is what rules between endpoints take of a datapath, as ovs-vswitchd calls it. A
// kernel whose conntrack has no zones takes a flow with ct(zone=...) not, and one with a plain
// ct() only to lose its packets: so it is asked first.
var tracking = []string{"Recirc", "CT state", "CT zone", "CT mark", "CT label", "CT orig tuple", "CT orig tuple for IPv6"}

// CannotTrack says what the bridge's datapath lacks for tracking connections, in
// ovs-vswitchd's words; nothing is all well. The bridge must be there.
func (b *Bridge) CannotTrack(ctx context.Context) (lacks []string, err error) {
	out, err := b.Appctl(ctx, "dpif/show-dp-features", b.Name)
	if err != nil {
		if taken := tapTaken(); b.Datapath == Userspace && taken != nil {
			err = taken
		}
		return nil, fmt.Errorf("ask what the datapath of %s can do: %w", b.Name, err)
	}
	return cannotTrack(out), nil
}

func cannotTrack(out []byte) (lacks []string) {
	has := map[string]bool{}
	for line := range bytes.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSpace(string(line)), ":")
		has[name] = strings.TrimSpace(value) == "Yes"
	}
	return slices.DeleteFunc(slices.Clone(tracking), func(name string) bool { return has[name] })
}

// IgnoreSequences lets the userspace datapath's connection tracking take TCP packets whatever their sequence numbers: who has some of a
// connection's packets go another way needs that. It is for all bridges of the daemon, until that ends.
func (b *Bridge) IgnoreSequences(ctx context.Context) error {
	if _, err := b.Appctl(ctx, "dpctl/ct-disable-tcp-seq-chk"); err != nil {
		return fmt.Errorf("let the datapath of %s track connections of which it sees a part: %w", b.Name, err)
	}
	return nil
}

// ForgetConnections makes the datapath forget the connections of a zone from and to
// addresses. What it knows of them may be out of date if their packets went another way. A
// container's start waits for this, and so it is no process's work.
func (b *Bridge) ForgetConnections(ctx context.Context, zone uint16, addrs ...netip.Addr) error {
	if len(addrs) == 0 {
		return nil
	}
	c, err := b.control(ctx)
	if err != nil {
		return fmt.Errorf("make the datapath of %s forget connections: %w", b.Name, err)
	}
	defer c.close()
	forget := func(tuple ...string) error {
		var said string
		return c.call(ctx, "dpctl/flush-conntrack", append([]string{fmt.Sprintf("zone=%d", zone)}, tuple...), &said)
	}
	for _, a := range addrs {
		for _, tuple := range tuplesOf(a) {
			if forget(tuple) == nil {
				continue
			}
			// Before Open vSwitch 3.1 a part of a tuple is none.
			if err := forget(); err != nil {
				return fmt.Errorf("make the datapath of %s forget connections of %s: %w", b.Name, a, err)
			}
			return nil
		}
	}
	return nil
}

// tuplesOf are what connections from and to an address have in common. Of IPv6 those of ICMPv6 are left to end by
// themselves, in a minute: to forget one by its address alone ends ovs-vswitchd (3.1.0, of Debian bookworm).
func tuplesOf(a netip.Addr) (tuples []string) {
	for _, end := range []string{"src", "dst"} {
		if a.Is4() {
			tuples = append(tuples, fmt.Sprintf("ct_nw_%s=%s", end, a))
			continue
		}
		for _, proto := range []int{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP} {
			tuples = append(tuples, fmt.Sprintf("ct_ipv6_%s=%s,ct_nw_proto=%d", end, a, proto))
		}
	}
	return tuples
}

// control connects to the socket of ovs-vswitchd that ovs-appctl speaks to (ovs-vswitchd(8),
// --unixctl). Its name has the process's ID.
func (i *Instance) control(ctx context.Context) (*conn, error) {
	pid, err := os.ReadFile(filepath.Join(i.RunDir, "ovs-vswitchd.pid"))
	if err != nil {
		return nil, err
	}
	return dialJSON(ctx, filepath.Join(i.RunDir, "ovs-vswitchd."+strings.TrimSpace(string(pid))+".ctl"))
}
