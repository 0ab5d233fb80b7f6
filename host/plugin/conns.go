package plugin

import (
	"net"
	"sync"
)

// tracked is a listener that can also close the connections that it has accepted:
// Docker keeps idle ones open, and the sdk's server goes on serving them after its
// listener is closed.
type tracked struct {
	net.Listener
	mu   sync.Mutex
	open map[net.Conn]struct{}
}

func track(l net.Listener) *tracked {
	return &tracked{Listener: l, open: map[net.Conn]struct{}{}}
}

// Accept implements net.Listener.
func (t *tracked) Accept() (net.Conn, error) {
	c, err := t.Listener.Accept()
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open[c] = struct{}{}
	return &conn{c, t}, nil
}

// closeAll closes all connections that are open.
func (t *tracked) closeAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.open {
		_ = c.Close()
	}
}

// conn forgets itself when it is closed.
type conn struct {
	net.Conn
	t *tracked
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.t.mu.Lock()
	delete(c.t.open, c.Conn)
	c.t.mu.Unlock()
	return c.Conn.Close()
}
