package docker

import (
	"context"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// Visitors counts the connections of other programs to the engine's unix socket, and by TCP
// to the ports of its API: docker and Compose have one from their first request to their
// end. What comes to the unix socket from another network namespace is not seen. 0 as well
// while this client has never connected, and where the kernel does not tell.
func (c *Client) Visitors() (n int) {
	c.mu.Lock()
	server, own := c.server, c.open
	c.mu.Unlock()
	if server == nil {
		return 0
	}
	ports := apiPorts
	switch addr := server.(type) {
	case *net.UnixAddr:
		list, _ := os.ReadFile(unixSockets)
		n = connections(string(list), addr.Name)
	case *net.TCPAddr:
		ports = append(slices.Clone(ports), uint16(addr.Port))
	}
	for _, file := range tcpSockets {
		list, _ := os.ReadFile(file)
		n += tcpConnections(string(list), ports)
	}
	return max(0, n-own)
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

// tcpConnections counts what is connected to the ports.
func tcpConnections(list string, ports []uint16) (n int) {
	const established = "01" // TCP_ESTABLISHED
	for line := range strings.Lines(list) {
		f := strings.Fields(line)
		if len(f) < 4 || f[3] != established {
			continue
		}
		_, hex, _ := strings.Cut(f[1], ":")
		if port, err := strconv.ParseUint(hex, 16, 16); err == nil && slices.Contains(ports, uint16(port)) {
			n++
		}
	}
	return n
}

// connect opens a connection to the engine, and counts it until it is closed.
func (c *Client) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: Timeout}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open++
	c.server = conn.RemoteAddr() // of a unix socket: as the server calls it, which may have another name for it
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
