package docker

import (
	"context"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// unixSockets and tcpSockets list the sockets of this process's network namespace
// (proc_net(5)). A unix one has address, reference count, protocol, flags, type, state,
// inode, path; those that a server has accepted have the server's path. One of TCP begins
// with number, own address, the other one's, state.
const unixSockets = "/proc/net/unix"

var tcpSockets = []string{"/proc/net/tcp", "/proc/net/tcp6"}

// apiPorts are those at which an engine's API is, by convention, if it is to be had by TCP:
// without TLS, and with it.
var apiPorts = []uint16{2375, 2376}

// APIClients counts the connections of other programs to the engine's unix socket, and by TCP
// to the ports of its API: docker and Compose have one from their first request to their
// end. What comes to the unix socket from another network namespace is not seen. 0 as well
// while this client has never connected, and where the kernel does not tell.
func (c *Client) APIClients() int { return c.apiClients(0) }

// NewAPIClients counts those of APIClients that were not there yet at a call a while ago, which is how
// long those stay who ask for something, and not those who listen (`docker events`). It may count one
// too many for so long, never one too few.
func (c *Client) NewAPIClients() int { return c.apiClients(listens) }

// listens is how long a connection is there when its program is taken for one that listens.
const listens = 5 * time.Second

// apiClients counts those that were not seen yet as long ago as age; 0: all.
func (c *Client) apiClients(age time.Duration) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server == nil {
		return 0
	}
	list, now := c.list(), time.Now()
	n, seen := len(list)-len(c.open), map[string]time.Time{}
	for _, name := range list {
		seen[name] = now
		if first, known := c.seen[name]; known {
			seen[name] = first
		}
		if age > 0 && now.Sub(seen[name]) >= age {
			n--
		}
	}
	c.seen = seen
	for _, since := range c.open { // which of the list these are nobody tells
		if age > 0 && now.Sub(since) >= age {
			n++
		}
	}
	return max(0, n)
}

// list names all connections of the engine's API, each by the same name as long as it is there. c.mu is held.
func (c *Client) list() (names []string) {
	ports := apiPorts
	switch addr := c.server.(type) {
	case *net.UnixAddr:
		list, _ := os.ReadFile(unixSockets)
		names = connections(string(list), addr.Name)
	case *net.TCPAddr:
		ports = append(slices.Clone(ports), uint16(addr.Port))
	}
	if !served(ports) {
		return names
	}
	for _, file := range tcpSockets {
		list, _ := os.ReadFile(file)
		names = append(names, tcpConnections(string(list), ports)...)
	}
	// The kernel tells of a connection twice now and then, while others come and go between two reads.
	slices.Sort(names)
	return slices.Compact(names)
}

// connections lists the connections of the server at path, by the kernel's addresses of their sockets: one
// that the server has not accepted yet has no inode, and gets one later. Who may not see addresses
// (kptr_restrict) goes by inodes.
func connections(list, path string) (names []string) {
	const connecting, connected = "02", "03" // SS_CONNECTING: the server has not accepted it yet
	for line := range strings.Lines(list) {
		f := strings.Fields(line)
		if len(f) == 8 && (f[5] == connecting || f[5] == connected) && f[7] == path {
			if strings.Trim(f[0], "0:") == "" {
				f[0] = f[6]
			}
			names = append(names, f[0])
		}
	}
	return names
}

// tcpConnections lists what is connected to the ports, by both ends: one that the server has not accepted yet
// has no inode, and gets one later.
func tcpConnections(list string, ports []uint16) (ends []string) {
	const established = "01" // TCP_ESTABLISHED
	for line := range strings.Lines(list) {
		f := strings.Fields(line)
		if len(f) < 10 || f[3] != established {
			continue
		}
		_, hex, _ := strings.Cut(f[1], ":")
		if port, err := strconv.ParseUint(hex, 16, 16); err == nil && slices.Contains(ports, uint16(port)) {
			ends = append(ends, "tcp "+f[1]+" "+f[2])
		}
	}
	return ends
}

// connect opens a connection to the engine, and counts it until it is closed.
func (c *Client) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: Timeout}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[net.Conn]time.Time{}
	}
	c.open[conn] = time.Now()
	c.server = conn.RemoteAddr() // of a unix socket: as the server calls it, which may have another name for it
	return &counted{Conn: conn, closed: sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.open, conn)
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
