package plane

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/bypass"
	"github.com/grapevine-net/grapevine/overlay/fastpath"
)

// bare has containers' packets go without headers to neighbours that take them so, and says in this host's record what
// of these headers the others are to know (GRAPEVINE_ENCAP=auto).
type bare struct {
	p        *Plane
	wake     chan struct{}
	line     atomic.Pointer[string] // for people; nil: it is not asked for
	over     bool                   // nothing is sent so, and the others have been told
	told     time.Time              // when this host's record was written last
	due      time.Time              // when it is to be, at the latest; zero: it says all
	arrivals arrivals
}

const (
	bareEvery    = 10 * time.Second       // what goes without headers is said again, long before fastpath.BareLease is over
	bareCalm     = 100 * time.Millisecond // changes of the snapshot within are taken together
	barePatience = 30 * time.Second       // for the first pass of an agent that starts
	bareApart    = 2 * time.Second        // between two records, or a little more, lest many hosts write at once; until then packets have headers
)

// run keeps it until ctx ends, and leaves it so: an agent that ends for good takes it back by leaving.
func (b *bare) run(ctx context.Context) {
	var since time.Time // it is not known
	for ctx.Err() == nil {
		changed := b.p.cfg.Source.Watch()
		err := b.pass()
		pause := bareEvery
		switch {
		case err == nil && !b.p.cfg.Settings.Bare:
			return
		case errors.Is(err, fastpath.ErrBareNotYet):
			if pause = time.Second; since.IsZero() {
				since = time.Now()
			}
			if time.Since(since) > barePatience {
				err = b.stop()
			}
		default:
			since = time.Time{}
		}
		if !b.due.IsZero() {
			pause = min(pause, max(0, time.Until(b.due)))
		}
		if err != nil && !errors.Is(err, fastpath.ErrBareNotYet) {
			b.p.log.Warn("packets without headers", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-b.wake:
		case <-time.After(pause):
		case <-changed:
			select {
			case <-ctx.Done():
			case <-time.After(bareCalm):
			}
		}
	}
}

// kick has what goes without headers looked at anew, since the fast path was switched.
func (b *bare) kick() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *bare) path() fastpath.Headerless { return fastpath.Headerless{Path: b.p.fast.path} }

func (b *bare) pass() error {
	if !b.p.cfg.Settings.Bare {
		return b.stop()
	}
	snap, self := b.p.cfg.Source.Snapshot(), b.p.cfg.Self
	nic, err := net.InterfaceByName(b.p.cfg.Underlay.Interface)
	if err != nil {
		return errors.Join(fmt.Errorf("underlay %s: %w", b.p.cfg.Underlay.Interface, err), b.stop())
	}
	near, err := segments(nic)
	if err != nil {
		return errors.Join(err, b.stop())
	}
	if why := changesMAC(nic.Name); why != "" {
		b.say("; none without headers: " + why)
		return b.stop()
	}
	own, _ := cluster.Get[cluster.Bare](snap, string(self))
	want := cluster.Bare{Host: self, MAC: nic.HardwareAddr, Says: bareSays(snap, self)}
	if err := cluster.Validate(want); err != nil {
		return errors.Join(fmt.Errorf("underlay %s: %w", nic.Name, err), b.stop())
	}
	peers := barePeers(snap, self, want.MAC, near)
	b.arrivals.keep(peers)
	err = b.path().Set(bareTables(snap, own, want, peers, b.p.cfg.Underlay.Addr.Unmap(), b.arrivals.lost))
	switch {
	case errors.Is(err, fastpath.ErrBareNotYet):
		return err
	case err != nil:
		b.say("; none without headers: " + err.Error())
		return b.stop()
	}
	b.over = false
	taking, lost := 0, []string(nil)
	for _, p := range peers {
		want.Takes = append(want.Takes, cluster.BareTakes{Host: p.Host, Stamp: p.Stamp})
		switch {
		case b.arrivals.lost(p.Host):
			lost = append(lost, p.name)
		case p.takes(own, want):
			taking++
		}
	}
	if want.Stamp = own.Stamp; !sameSays(own, want) {
		want.Stamp = uint64(time.Now().UnixNano())
	}
	b.say(fmt.Sprintf("; without headers to %d of %d hosts", taking, len(hostsBut(snap, self))) + withHeaders(lost))
	if sameSays(own, want) && slices.Equal(own.Takes, want.Takes) {
		b.due = time.Time{}
		return nil
	}
	// Nothing is sent before it is said, and what was said is taken for longer than this.
	now := time.Now()
	if b.due.IsZero() {
		b.due = later(now, b.told.Add(bareApart+rand.N(bareApart)))
	}
	if now.Before(b.due) {
		return nil
	}
	b.told, b.due = now, time.Time{}
	return b.p.cfg.Tell(want)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// stop sends nothing without headers any more, and then tells the others that it takes none. What they still send it takes for a while.
func (b *bare) stop() error {
	_, there := cluster.Get[cluster.Bare](b.p.cfg.Source.Snapshot(), string(b.p.cfg.Self))
	if b.over && !there {
		return nil
	}
	// Where it is not known yet how it is the others hear of it all the same: a host that was off may take none.
	err := b.path().Unset()
	if err != nil && !errors.Is(err, fastpath.ErrBareNotYet) {
		return err
	}
	if there {
		if err := b.p.cfg.Tell(nil); err != nil {
			return err
		}
	}
	b.over, b.due = err == nil, time.Time{}
	return err
}

func (b *bare) say(text string) { b.line.Store(&text) }

// status is what is to be said of it behind how the fast path is.
func (b *bare) status() string {
	text := b.line.Load()
	if text == nil {
		return ""
	}
	line := *text
	c, err := b.path().Counts()
	if err != nil {
		return line + "; " + err.Error()
	}
	for _, one := range []struct {
		n    uint64
		what string
	}{
		{c.Forged.Packets, "forged ones dropped"},
		{c.Kept.Packets, "kept from leaving in containers' names"},
		{c.Lost.Packets, "lost on their way to the switch"},
	} {
		if one.n > 0 {
			line += fmt.Sprintf("; %d %s", one.n, one.what)
		}
	}
	return line
}

func hostsBut(snap *cluster.Snapshot, self cluster.NodeID) (ids []cluster.NodeID) {
	for n := range cluster.All[cluster.Node](snap) {
		if n.ID != self {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

// changesMAC says why packets may leave an interface from another MAC address than its own: a bond does so that shares out what it sends,
// by this interface or one below it.
func changesMAC(name string) string {
	dir := "/sys/class/net/" + name
	if mode, err := os.ReadFile(dir + "/bonding/mode"); err == nil {
		if f := strings.Fields(string(mode)); len(f) > 0 && (f[0] == "balance-tlb" || f[0] == "balance-alb") {
			return fmt.Sprintf("%s is a bond in the mode %s, which sends from other MAC addresses than its own", name, f[0])
		}
	}
	below, _ := filepath.Glob(dir + "/lower_*")
	for _, b := range below {
		if why := changesMAC(strings.TrimPrefix(filepath.Base(b), "lower_")); why != "" {
			return why
		}
	}
	return ""
}

// segments are what is reached at an interface without a router, in IPv4.
func segments(nic *net.Interface) (list []netip.Prefix, err error) {
	addrs, err := nic.Addrs()
	if err != nil {
		return nil, fmt.Errorf("addresses of %s: %w", nic.Name, err)
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
			list = append(list, p.Masked())
		}
	}
	return list, nil
}

// bareSays is what a host says of its containers: of which network those of a subnet are. What is encrypted, and what reaches all networks,
// has headers.
func bareSays(snap *cluster.Snapshot, self cluster.NodeID) (list []cluster.BareSays) {
	here := map[string]bool{}
	for e := range cluster.Written[cluster.Endpoint](snap, self) {
		here[e.Network] = true
	}
	for s := range cluster.All[cluster.Subnet](snap) {
		n, there := cluster.Get[cluster.Network](snap, s.Network)
		if !there || !here[s.Network] || n.VNID == 0 || n.Encrypted() || s.Prefix.Addr().IsLinkLocalUnicast() || s.Prefix != s.Prefix.Masked() {
			continue
		}
		list = append(list, cluster.BareSays{Prefix: s.Prefix, VNID: n.VNID})
	}
	slices.SortFunc(list, func(a, b cluster.BareSays) int {
		if c := a.Prefix.Addr().Compare(b.Prefix.Addr()); c != 0 {
			return c
		}
		return a.Prefix.Bits() - b.Prefix.Bits()
	})
	return list[:min(len(list), cluster.MaxBareSays)]
}

// barePeer is a neighbour that takes packets without headers from some hosts.
type barePeer struct {
	cluster.Bare
	vtep netip.Addr
	name string
}

// takes says whether it has heard what this host says, which is what it is to say.
func (p barePeer) takes(own, want cluster.Bare) bool {
	return own.Stamp != 0 && string(own.MAC) == string(want.MAC) && slices.Contains(p.Takes, cluster.BareTakes{Host: own.Host, Stamp: own.Stamp})
}

// barePeers are this host's neighbours. Of two that claim one MAC address neither is one.
func barePeers(snap *cluster.Snapshot, self cluster.NodeID, mac net.HardwareAddr, near []netip.Prefix) (list []barePeer) {
	claims := map[string]int{string(mac): 1}
	for b := range cluster.All[cluster.Bare](snap) {
		if b.Host != self {
			claims[string(b.MAC)]++
		}
	}
	for b := range cluster.All[cluster.Bare](snap) {
		n, there := cluster.Get[cluster.Node](snap, string(b.Host))
		vtep := n.VTEP.Unmap()
		if b.Host == self || !there || n.Encrypts() || n.Encap != "" || !vtep.Is4() || claims[string(b.MAC)] > 1 || len(b.Says) > cluster.MaxBareSays {
			continue
		}
		if slices.ContainsFunc(near, func(p netip.Prefix) bool { return p.Contains(vtep) }) {
			list = append(list, barePeer{b, vtep, n.Name})
		}
	}
	slices.SortFunc(list, func(a, b barePeer) int { return slices.Compare([]byte(a.Host), []byte(b.Host)) })
	return list[:min(len(list), cluster.MaxBareTakes)]
}

// bareTables are what the programs are to know. Of what this host says they know what it has said already, and would still say: the others
// have heard that, or will not be sent anything. Who gets nothing so is lost.
func bareTables(snap *cluster.Snapshot, own, want cluster.Bare, peers []barePeer, vtep netip.Addr, lost func(cluster.NodeID) bool) (t fastpath.Bare) {
	secret := map[uint32]bool{0: true}
	for n := range cluster.All[cluster.Network](snap) {
		if n.Encrypted() {
			secret[n.VNID] = true
		}
	}
	known := map[netip.Prefix]bool{}
	for s := range cluster.All[cluster.Subnet](snap) {
		known[s.Prefix] = true
	}
	for _, s := range want.Says {
		// What the others have not been told yet nobody else is to say, and nothing is sent by it.
		said := fastpath.BareSays{MAC: bypass.MAC(want.MAC), Prefix: s.Prefix, VTEP: vtep}
		if slices.Contains(own.Says, s) && string(own.MAC) == string(want.MAC) {
			said.VNID = s.VNID
		}
		t.Says = append(t.Says, said)
	}
	for _, p := range peers {
		t.Hosts = append(t.Hosts, fastpath.BareHost{MAC: bypass.MAC(p.MAC), VTEP: p.vtep, Takes: p.takes(own, want) && !lost(p.Host)})
		for _, s := range p.Says {
			if known[s.Prefix] && !secret[s.VNID] {
				t.Says = append(t.Says, fastpath.BareSays{MAC: bypass.MAC(p.MAC), Prefix: s.Prefix, VTEP: p.vtep, VNID: s.VNID})
			}
		}
	}
	return t
}

// sameSays reports whether two records say the same of their host's containers.
func sameSays(a, b cluster.Bare) bool {
	return a.Stamp != 0 && string(a.MAC) == string(b.MAC) && slices.Equal(a.Says, b.Says)
}
