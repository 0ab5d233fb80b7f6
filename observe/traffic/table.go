package traffic

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/overlay/counter"
)

// Record is what is known of one direction of a connection. Hosts tell each other records.
type Record struct {
	Half  counter.Half  `cbor:"1,keyasint"`
	Count counter.Count `cbor:"2,keyasint"`
	Src   Who           `cbor:"3,keyasint"`
	Dst   Who           `cbor:"4,keyasint"`

	index uint32    // of the interface by which it came; on this host
	again time.Time // when its ports were used again; of a merged one
}

// Who has an address: a container, a host, the outside.
type Who struct {
	Name    string `cbor:"1,keyasint,omitempty"`
	Network string `cbor:"2,keyasint,omitempty"` // of a container
	Host    string `cbor:"3,keyasint,omitempty"` // of a container
}

// jitter is how far apart one moment of the kernel's clock is read by two looks.
const jitter = 10 * time.Millisecond

// maxPast bounds what is kept of connections that have ended.
const maxPast = 8192

// table is what one host has counted: now, and of late. No Record is written to once it is in it: who asks has the same ones, since
// of a port scan's worth of them each copy is megabytes.
type table struct {
	live map[counter.Half]*Record
	past []*Record // the oldest first
}

// update takes what the kernel has counted so far, and returns what has ended: it is to be taken out of the kernel, and
// given to end. owns says whether a port of the switch is that of who has an address. What came by another one is no part of
// who talks to whom: who has raw sockets writes into his packets what he likes, and they are counted before the switch drops them.
func (t *table) update(counts map[counter.Key]counter.Count, who func(netip.Addr) Who, owns func(port string, a netip.Addr) bool, now time.Time) (ended []counter.Key) {
	live := make(map[counter.Half]*Record, len(counts))
	full := len(counts) > counter.Room*3/4
	aside := func(k counter.Key, last time.Time) {
		if silent := now.Sub(last); silent > afterEnd || full && silent > whenCrowd {
			ended = append(ended, k)
		}
	}
	for k, c := range counts {
		was, same := t.live[k.Half]
		same = same && was.index == k.Index
		if noise(k.Half) || !same && !owns(c.Port, k.Src) {
			aside(k, c.Last)
			continue
		}
		r := was
		src, dst := who(k.Src), who(k.Dst)
		if same { // who is gone keeps his name
			src, dst = known(src, was.Src), known(dst, was.Dst)
		}
		if !same || c.Packets != was.Count.Packets || c.Last.Sub(was.Count.Last).Abs() > jitter || src != was.Src || dst != was.Dst {
			r = &Record{Half: k.Half, Count: c, Src: src, Dst: dst, index: k.Index}
		}
		if other, twice := live[k.Half]; twice { // of an address that has come to another container, or to the same one anew
			if other.Count.Last.After(c.Last) {
				aside(k, c.Last)
				continue
			}
			aside(counter.Key{Half: k.Half, Index: other.index}, other.Count.Last)
		}
		live[k.Half] = r
	}
	for h, r := range live {
		if was, there := t.live[h]; there && was.index != r.index {
			t.remember(was)
		}
		back, answered := live[h.Back()]
		if !answered {
			back = new(Record)
		}
		if over(h, r.Count, back.Count, answered, full, now) {
			ended = append(ended, counter.Key{Half: h, Index: r.index})
		}
	}
	t.live = live
	return ended
}

// noise is what every container says to all, and nobody asks for.
func noise(h counter.Half) bool {
	return h.Dst.IsMulticast() || h.Src.IsLinkLocalUnicast() || h.Dst.IsLinkLocalUnicast() || h.Src.IsUnspecified() || h.Dst == netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

func known(now, was Who) Who {
	if now == (Who{}) {
		return was
	}
	return now
}

// end moves a half from now to of late, and returns what is known of it.
func (t *table) end(k counter.Key, c counter.Count) (r *Record, ok bool) {
	if r, ok = t.live[k.Half]; !ok || r.index != k.Index {
		return r, false
	}
	delete(t.live, k.Half)
	if c.Packets > 0 && c.Packets != r.Count.Packets {
		last := *r
		last.Count = c
		r = &last
	}
	t.remember(r)
	return r, true
}

func (t *table) remember(r *Record) {
	t.past = append(t.past, r)
	if len(t.past) > maxPast {
		t.past = append([]*Record(nil), t.past[len(t.past)-maxPast*3/4:]...)
	}
}

// records are all that is known, the newest first.
func (t *table) records() []*Record {
	list := append(make([]*Record, 0, len(t.past)+len(t.live)), t.past...)
	for _, r := range t.live {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b *Record) int { return b.Count.Last.Compare(a.Count.Last) })
	return list
}

// Flags of TCP.
const (
	fin = 1 << iota
	syn
	rst
	_
	ack
)

// How long a half is silent before it counts as ended.
const (
	afterEnd   = 5 * time.Second  // of a connection that was closed, reset or never answered
	afterWord  = 30 * time.Second // of what has no connections
	afterTCP   = 5 * time.Minute
	whenCrowd  = 2 * time.Second // of anything, if there is little room
	unanswered = 3 * time.Second
	late       = 2 * time.Second // what a caller who asks again may take longer than before
)

// over reports whether a half has ended.
func over(h counter.Half, c, back counter.Count, answered, full bool, now time.Time) bool {
	idle := now.Sub(c.Last)
	if answered {
		idle = min(idle, now.Sub(back.Last))
	}
	switch {
	case full:
		return idle > whenCrowd
	case h.Proto != tcp:
		return idle > afterWord
	case (c.Flags|back.Flags)&rst != 0, c.Flags&back.Flags&fin != 0, c.Flags&ack == 0 && !answered:
		return idle > afterEnd
	}
	return idle > afterTCP
}

const (
	icmp   = 1
	tcp    = 6
	udp    = 17
	icmpv6 = 58
	sctp   = 132
)

// Join makes connections of the records of one host or of several, the newest first. whole says that all hosts were
// asked that could have counted an answer.
func Join(records []*Record, whole bool, now time.Time) []api.Connection {
	all := make(map[counter.Half]*Record, len(records)) // there may be tens of thousands
	several := map[counter.Half][]Record{}
	for _, r := range records {
		if was, ok := all[r.Half]; !ok {
			all[r.Half] = r
		} else if several[r.Half] = append(several[r.Half], *r); len(several[r.Half]) == 1 {
			several[r.Half] = append(several[r.Half], *was)
		}
	}
	for h, list := range several {
		merged := merge(list)
		all[h] = &merged
	}
	list := make([]api.Connection, 0, len(all))
	for h, p := range all {
		r, back := *p, Record{}
		p, answered := all[h.Back()]
		if answered {
			back = *p
		}
		if answered && !opens(r, back) && h != h.Back() {
			continue // it is listed by its other half
		}
		if !answered && !opens(r, Record{Half: h.Back()}) { // the first packets were not counted here
			r, back, answered = Record{Half: h.Back(), Src: r.Dst, Dst: r.Src}, r, true
		}
		c := api.Connection{
			First: r.Count.First, Again: r.again, Last: r.Count.Last, From: end(r.Half.Src, r.Half.SrcPort, r.Src), To: end(r.Half.Dst, r.Half.DstPort, r.Dst),
			Proto: protocol(r.Half.Proto), Packets: r.Count.Packets, Bytes: r.Count.Bytes, BackPackets: back.Count.Packets, BackBytes: back.Count.Bytes,
		}
		if r.Count.Packets == 0 || answered && back.Count.First.Before(c.First) {
			c.First = back.Count.First
		}
		if back.Count.Last.After(c.Last) {
			c.Last = back.Count.Last
		}
		c.State = state(r, back, answered, whole || hears(r), now)
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b api.Connection) int {
		return cmp.Or(b.Last.Compare(a.Last), a.From.Addr.Compare(b.From.Addr), cmp.Compare(a.From.Port, b.From.Port))
	})
	return list
}

// merge is several counts of the same half: it was idle between, or its ports were used again.
func merge(list []Record) Record {
	slices.SortFunc(list, func(a, b Record) int {
		return cmp.Or(a.Count.First.Compare(b.Count.First), a.Count.Last.Compare(b.Count.Last))
	})
	a := list[0]
	begun, flags := a.Count.First, a.Count.Flags // of the last connection
	for _, b := range list[1:] {
		if anew(b, flags, begun, a.Count.Last) {
			begun, flags, a.again = b.Count.First, 0, b.Count.First
		}
		flags |= b.Count.Flags
		a.Src, a.Dst = known(b.Src, a.Src), known(b.Dst, a.Dst)
		a.Count.Packets, a.Count.Bytes = a.Count.Packets+b.Count.Packets, a.Count.Bytes+b.Count.Bytes
		a.Count.Flags |= b.Count.Flags
		if b.Count.Last.After(a.Count.Last) {
			a.Count.Last = b.Count.Last
		}
	}
	return a
}

// anew reports whether what was counted of a half is another connection than the one before, of these flags, which had begun
// and was silent since. A caller whom nobody answers asks again after about as long as he has asked already; what has no
// connections ends when nothing is said for a while.
func anew(r Record, flags uint8, begun, since time.Time) bool {
	silent := r.Count.First.Sub(since)
	switch {
	case r.Half.Proto != tcp:
		return silent > afterWord
	case r.Count.Opened&(syn|ack) != syn:
		return false
	case flags&(ack|fin|rst) != 0:
		return true
	}
	return silent > since.Sub(begun)+late
}

// opens reports whether a half is the one that began, as far as can be known.
func opens(r, back Record) bool {
	h := r.Half
	if h.Proto == tcp {
		began := func(r Record) bool { return r.Count.Opened&(syn|ack) == syn }
		if a, b := began(r), began(back); a != b {
			return a
		}
	}
	if (h.Proto == icmp || h.Proto == icmpv6) && r.Count.Opened != back.Count.Opened {
		return r.Count.Opened == 1 || back.Count.Packets == 0 && h.SrcPort == 0
	}
	const ephemeral = 32768 // where Linux takes the ports of who calls from
	if a, b := h.SrcPort >= ephemeral, h.DstPort >= ephemeral; a != b {
		return a
	}
	if back.Count.Packets == 0 {
		return true
	}
	return cmp.Or(r.Count.First.Compare(back.Count.First), h.Src.Compare(h.Dst), cmp.Compare(h.SrcPort, h.DstPort)) <= 0
}

// state says how a connection stands. heard says that an answer would have been counted.
func state(r, back Record, answered, heard bool, now time.Time) string {
	there, here := r.Count.Flags, back.Count.Flags
	old := now.Sub(r.Count.First) > unanswered
	if r.Half.Proto != tcp {
		switch {
		case answered:
			return "answered"
		case heard && old && asks(r):
			return "unanswered"
		}
		return "sent"
	}
	switch {
	case here&rst != 0 && r.Count.Packets > 0 && (there&ack == 0 || back.Count.Opened&rst != 0): // whatever the caller goes on to say
		return "refused"
	case (there|here)&rst != 0:
		return "reset"
	case there&here&fin != 0, !heard && !answered && there&fin != 0:
		return "closed"
	case there&ack != 0, r.Count.Packets == 0:
		return "open"
	case old && !answered && (heard || r.Count.Packets > 1): // who was refused does not ask again
		return "unanswered"
	}
	return "opening"
}

// asks reports whether what has no connections wants an answer: errors of ICMP, later fragments and tunnels do not.
func asks(r Record) bool {
	switch r.Half.Proto {
	case udp, sctp:
		return r.Half.SrcPort != 0
	case icmp, icmpv6:
		return r.Count.Opened == 1
	}
	return false
}

func end(a netip.Addr, port uint16, w Who) api.TrafficEnd {
	return api.TrafficEnd{Addr: a, Port: port, Name: w.Name, Network: w.Network, Host: w.Host}
}

func protocol(n uint8) string {
	switch n {
	case tcp:
		return "tcp"
	case udp:
		return "udp"
	case sctp:
		return "sctp"
	case icmp, icmpv6:
		return "icmp"
	}
	return strconv.Itoa(int(n))
}
