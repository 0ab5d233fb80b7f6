package docker

import (
	"context"
	"net"
	"os"
	"strings"
	"sync"
)

// unixSockets lists the unix sockets of this process's network namespace (proc_net(5)):
// address, reference count, protocol, flags, type, state, inode, path. Those that a server
// has accepted have the server's path.
const unixSockets = "/proc/net/unix"

// Visitors counts the connections of other programs to the engine's unix socket: docker and
// Compose have one from their first request to their end. What is connected from another
// network namespace or by TCP is not seen. 0 as well while this client has never connected,
// and where the kernel does not tell.
func (c *Client) Visitors() int {
	c.mu.Lock()
	path, own := c.path, c.open
	c.mu.Unlock()
	list, err := os.ReadFile(unixSockets)
	if err != nil || path == "" {
		return 0
	}
	return max(0, connections(string(list), path)-own)
}

// connections counts the connections of the server at path.
func connections(list, path string) (n int) {
	const connecting, connected = "02", "03" // SS_CONNECTING: the server has not accepted it yet
	for line := range strings.Lines(list) {
		f := strings.Fields(line)
		if len(f) == 8 && (f[5] == connecting || f[5] == connected) && f[7] == path {
			n++
		}
	}
	return n
}

// connect opens a connection to the unix socket at path, and counts it until it is closed.
func (c *Client) connect(ctx context.Context, path string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: Timeout}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open++
	c.path = conn.RemoteAddr().String() // as the server calls it, which may have another name for it
	return &counted{Conn: conn, closed: sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.open--
	})}, nil
}

type counted struct {
	net.Conn
	closed func()
}

func (c *counted) Close() error {
	c.closed() // first: rather one too many than one too few
	return c.Conn.Close()
}
