package socket

import (
	"net"
	"sync"
)

// maxGuests is how many connections a group's socket has at once: more than all who look have open.
const maxGuests = 64

// guests are the connections of a group's socket. Where there are more than that, one goes: of the user that has
// most of them, the oldest. So who opens connections without end, such as a container that was given the
// socket, costs so much, and keeps out only itself.
type guests struct {
	mu     sync.Mutex
	number uint64
	all    map[*guest]struct{}
}

// guest is one of them. Its fields are the guests'.
type guest struct {
	net.Conn
	of     *guests
	user   uint32
	number uint64 // the lower, the older
}

// enter takes a connection in, and closes another one if there is no room for both.
func (g *guests) enter(c net.Conn, user uint32) net.Conn {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.number++
	in := &guest{Conn: c, of: g, user: user, number: g.number}
	if g.all == nil {
		g.all = map[*guest]struct{}{}
	}
	g.all[in] = struct{}{}
	if len(g.all) <= maxGuests {
		return in
	}
	sum := map[uint32]int{}
	for o := range g.all {
		sum[o.user]++
	}
	var goes *guest
	for o := range g.all {
		if goes == nil || sum[o.user] > sum[goes.user] || sum[o.user] == sum[goes.user] && o.number < goes.number {
			goes = o
		}
	}
	delete(g.all, goes)
	_ = goes.Conn.Close()
	return in
}

// Close makes room.
func (c *guest) Close() error {
	c.of.mu.Lock()
	delete(c.of.all, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
