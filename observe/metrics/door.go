package metrics

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// maxConnections is more than a few Prometheus servers open.
const maxConnections = 32

// door lets so many connections in. Where there are more, one goes that has not shown the token: of
// the source that has most of those, the oldest. So a flood from few places keeps nobody out but
// itself, and who has shown it once stays.
type door struct {
	net.Listener

	mu     sync.Mutex
	number uint64
	all    map[*visitor]struct{}
}

// visitor is one connection. Its fields are the door's.
type visitor struct {
	net.Conn
	door   *door
	source netip.Addr // an IPv6 network counts as one
	number uint64     // the lower, the older
	known  bool       // it has shown the token
}

// Accept returns the next connection for which there is room.
func (d *door) Accept() (net.Conn, error) {
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
func (d *door) enter(v *visitor) (goes *visitor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.number++
	v.number = d.number
	d.all[v] = struct{}{}
	if len(d.all) <= maxConnections {
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

func withVisitor(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, visitorKey{}, c)
}

// welcome notes that whoever asks has shown the token.
func welcome(r *http.Request) {
	if v, ok := r.Context().Value(visitorKey{}).(*visitor); ok {
		v.door.mu.Lock()
		v.known = true
		v.door.mu.Unlock()
	}
}
