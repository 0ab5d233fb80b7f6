package wireguard

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Peer is another host, as a device has it.
type Peer struct {
	Key      Key
	Endpoint netip.AddrPort // where it is sent to; WireGuard follows a peer that moves
	Inside   netip.Prefix   // the only addresses that it may have inside
	Also     netip.Prefix   // besides; invalid: no other one
	// Ranges are others that it may have for what goes without VXLAN. They come and go one by one: to give a peer all its addresses again would
	// lose what comes at that moment. Of a peer that a device has they are all that it may have.
	Ranges []netip.Prefix
	// Keepalive is how often it is sent something, so that there is a session without anything to be sent; 0: never.
	Keepalive time.Duration
	// Handshake is when the last one was, as the device says by the clock of then; zero: there was none.
	Handshake time.Time
	// Silent is for how long there was none, and Lost says that this is too long, as far as somebody has listened (Ear).
	Silent time.Duration
	Lost   bool
}

// allowed are Inside, Also and Ranges.
func (p Peer) allowed() []netip.Prefix {
	list := []netip.Prefix{p.Inside}
	if p.Also.IsValid() {
		list = append(list, p.Also)
	}
	return append(list, p.Ranges...)
}

// allow notes what a device lets a peer have.
func (p *Peer) allow(more netip.Prefix) {
	switch {
	case !p.Inside.IsValid():
		p.Inside = more
	default:
		p.Ranges = append(p.Ranges, more)
	}
}

// lacks says what a peer that a device has, p, is to be given to be as want, and what is to be taken from it.
func (p Peer) lacks(want Peer) (more, less []netip.Prefix) {
	has, is := p.allowed(), want.allowed()
	return without(is, has), without(has, is)
}

// without are those of a list that are not in another one.
func without(list, other []netip.Prefix) (out []netip.Prefix) {
	in := make(map[netip.Prefix]bool, len(other))
	for _, r := range other {
		in[r] = true
	}
	for _, r := range list {
		if !in[r] {
			out = append(out, r)
		}
	}
	return out
}

// lets reports whether nothing but ranges differs.
func (p Peer) lets(want Peer) bool {
	has := p.allowed()
	if !slices.Contains(has, want.Inside) || want.Also.IsValid() && !slices.Contains(has, want.Also) {
		return false
	}
	_, less := p.lacks(want)
	return len(less) == 0 || want.Ranges != nil
}

// State is what a device has.
type State struct {
	Private Key
	Port    uint16
	Peers   []Peer
}

// Change is what makes one State of another.
type Change struct {
	Private *Key
	Port    *uint16
	Set     []Peer // new or otherwise than they are; without an Endpoint that one stays
	Keep    []Peer // of these Keepalive alone: to give a peer the same addresses again would lose what comes at that moment
	Remove  []Key
	More    []Peer // may have Ranges besides; whoever else has one has it no more
	Less    []Peer // may not have Ranges any more
}

// Empty says that nothing changes.
func (c Change) Empty() bool {
	return c.Private == nil && c.Port == nil && len(c.Set)+len(c.Keep)+len(c.Remove)+len(c.More)+len(c.Less) == 0
}

// Touches are the addresses of which the device may not know for a moment whose they are, when it changes from have.
func (c Change) Touches(have State) (list []netip.Prefix) {
	gone := map[Key]bool{}
	for _, k := range c.Remove {
		gone[k] = true
	}
	for _, p := range c.Set {
		gone[p.Key] = true
		list = append(list, p.Ranges...)
	}
	for _, p := range have.Peers {
		if gone[p.Key] {
			list = append(list, p.allowed()...)
		}
	}
	for _, p := range slices.Concat(c.More, c.Less) {
		list = append(list, p.Ranges...)
	}
	return list
}

// nobody is a peer that has for a moment what is taken from others: kernels before Linux 6.16 take single addresses from a peer by no
// other way than giving them to another one. It is nobody's key, and it is nowhere.
var nobody = Key{0: 0x67, 1: 0x76, 31: 0x7f}

// passing is nobody with all that is taken from others.
func (c Change) passing() (p Peer) {
	p.Key = nobody
	for _, l := range c.Less {
		p.Ranges = append(p.Ranges, l.Ranges...)
	}
	return p
}

// fresh is how old the last handshake is at most with a peer that can be reached: WireGuard makes a new one every two
// minutes while something is sent, and uses none for longer than three.
const fresh = 3 * time.Minute

// lost is how long a peer is silent before the device is to forget what it knows of it, and then each time (Diff).
const lost = fresh + time.Minute

// Ear notes since when peers are silent, whatever the clock says meanwhile: a handshake counts when it is another one
// than before. The zero value has heard nothing yet.
type Ear struct{ of map[Key]heard }

type heard struct {
	handshake time.Time
	since     time.Time
	lost      time.Time // when it is lost next
}

// Listen says of each peer that a device has for how long it is silent. Of one that it has not seen before, the clock
// has to say it.
func (e *Ear) Listen(have *State, now time.Time) {
	of := make(map[Key]heard, len(have.Peers))
	for i := range have.Peers {
		p := &have.Peers[i]
		last, known := e.of[p.Key]
		if other := last.handshake != p.Handshake && !p.Handshake.IsZero(); other || !known {
			last.since = now
			if !known {
				last.since = now.Add(-min(max(now.Sub(p.Handshake), 0), fresh))
			}
			last.lost = last.since.Add(lost)
		}
		if p.Lost = !now.Before(last.lost); p.Lost {
			last.lost = now.Add(lost)
		}
		last.handshake = p.Handshake
		of[p.Key], p.Silent = last, now.Sub(last.since)
	}
	e.of = of
}

// Diff returns what makes the device's State the one that is wanted. said is where the peers were said to be last;
// where a peer answers, and nobody has said anything else since, it is where WireGuard has found it, behind NAT or
// moved, and stays there.
//
// A peer that has been silent for too long is removed and made anew. WireGuard takes no handshake that is older, by the
// clock of who sends it, than the last one: when all hosts' clocks were ahead and are set right, none is taken for as
// long as they were ahead. A peer that is new has no last one, and of sessions there are none any more to be lost.
func Diff(have, want State, said map[Key]netip.AddrPort) (c Change) {
	if have.Private != want.Private && have.Private != want.Private.Clamped() { // the kernel's ends all sessions if it is told what it has
		c.Private = &want.Private
	}
	if have.Port != want.Port {
		c.Port = &want.Port
	}
	at := map[Key]Peer{}
	for _, p := range have.Peers {
		at[p.Key] = p
	}
	for _, p := range want.Peers {
		old, there := at[p.Key]
		delete(at, p.Key)
		heard := !old.Handshake.IsZero() && old.Silent < fresh
		last, known := said[p.Key]
		stays := there && (old.Endpoint == p.Endpoint || known && last == p.Endpoint && heard || !known && heard)
		if there && old.Lost {
			if stays {
				p.Endpoint = old.Endpoint
			}
			c.Remove, c.Set = append(c.Remove, p.Key), append(c.Set, p)
			continue
		}
		if there && stays && old.lets(p) {
			if old.Keepalive != p.Keepalive {
				c.Keep = append(c.Keep, Peer{Key: p.Key, Keepalive: p.Keepalive})
			}
			more, less := old.lacks(p)
			if len(more) > 0 {
				c.More = append(c.More, Peer{Key: p.Key, Ranges: more})
			}
			if len(less) > 0 {
				c.Less = append(c.Less, Peer{Key: p.Key, Ranges: less})
			}
			continue
		}
		if stays {
			p.Endpoint = netip.AddrPort{}
		}
		c.Set = append(c.Set, p)
	}
	c.Remove = slices.AppendSeq(c.Remove, maps.Keys(at))
	slices.SortFunc(c.Remove, func(a, b Key) int { return slices.Compare(a[:], b[:]) })
	slices.SortFunc(c.Set, func(a, b Peer) int { return cmp.Compare(a.Key.String(), b.Key.String()) })
	return c
}
