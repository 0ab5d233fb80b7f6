// Package door lets so many connections at once into a server of HTTP, whoever they are of.
package door

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// Door is a listener that lets so many connections in. Where there are more, one goes that is not known: of
// the source that has most of those, the oldest. So a flood from few places keeps nobody out but
// itself, and who was known once stays.
type Door struct {
	net.Listener
	most int

	mu     sync.Mutex
	number uint64
	all    map[*visitor]struct{}
}

// New is a door to what l takes, for at most so many at once.
func New(l net.Listener, most int) *Door {
	return &Door{Listener: l, most: most, all: map[*visitor]struct{}{}}
}

// visitor is one connection. Its fields are the door's.
type visitor struct {
	net.Conn
	door   *Door
	source netip.Addr // an IPv6 network counts as one
	number uint64     // the lower, the older
	known  bool       // who asks by it has shown that he may
}

// Accept returns the next connection for which there is room.
func (d *Door) Accept() (net.Conn, error) {
	for {
		c, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		v := &visitor{Conn: c, door: d, source: sourceOf(c.RemoteAddr())}
		goes := d.enter(v)
		if goes != nil {
			goes.Conn.Close()
		}
		if goes != v {
			return v, nil
		}
	}
}

// enter takes a visitor in, and returns the one that has to go for it, perhaps itself.
func (d *Door) enter(v *visitor) (goes *visitor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.number++
	v.number = d.number
	d.all[v] = struct{}{}
	if len(d.all) <= d.most {
		return nil
	}
	sum := map[netip.Addr]int{}
	for o := range d.all {
		if !o.known {
			sum[o.source]++
		}
	}
	for o := range d.all {
		switch {
		case o.known:
		case goes == nil, sum[o.source] > sum[goes.source], sum[o.source] == sum[goes.source] && o.number < goes.number:
			goes = o
		}
	}
	delete(d.all, goes)
	return goes
}

// Close makes room.
func (v *visitor) Close() error {
	v.door.mu.Lock()
	delete(v.door.all, v)
	v.door.mu.Unlock()
	return v.Conn.Close()
}

func sourceOf(a net.Addr) netip.Addr {
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	bits := 64
	addr := ap.Addr().Unmap().WithZone("")
	if addr.Is4() {
		bits = 32
	}
	p, _ := addr.Prefix(bits) // never an error of these
	return p.Addr()
}

type visitorKey struct{}

// Context is for http.Server.ConnContext: Known needs it.
func Context(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, visitorKey{}, c)
}

// Known notes that whoever asks has shown that he may.
func Known(r *http.Request) {
	if v, ok := r.Context().Value(visitorKey{}).(*visitor); ok {
		v.door.mu.Lock()
		v.known = true
		v.door.mu.Unlock()
	}
}
