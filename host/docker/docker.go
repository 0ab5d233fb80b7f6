// Package docker is a thin client of the Docker Engine's API: the few calls that
// the agent needs, each with a timeout, in types of our own.
//
// It asks for lists and events, which wait for nobody; Inspect and Start are the exceptions.
package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/client"
)

// Timeout bounds every call but Start and Events.
const Timeout = 10 * time.Second

// ErrNotFound is wrapped by the errors of calls on an object that Docker does not have.
var ErrNotFound = errors.New("no such object in docker")

// ErrConflict is wrapped by the errors of calls that Docker refuses in its
// present state: removing a network with containers, creating a name twice.
var ErrConflict = errors.New("docker refuses in its present state")

// Client talks to one engine. It connects when first used and again after any
// failure, so it survives restarts and upgrades of dockerd. It is safe for
// concurrent use.
type Client struct {
	host  string
	stops stops // as Watch has heard

	mu     sync.Mutex
	cli    *client.Client         // nil: to be made at the next call
	open   map[net.Conn]time.Time // connections, and since when
	seen   map[string]time.Time   // when connections of anybody were first seen, by the names of list
	server net.Addr               // of the last one, nil before the first
}

// New returns a client for host, such as "unix:///var/run/docker.sock" or
// "tcp://127.0.0.1:2375". It does not connect.
func New(host string) *Client { return &Client{host: host} }

// Close drops the connections. The client remains usable.
func (c *Client) Close() {
	c.mu.Lock()
	cli := c.cli
	c.cli = nil
	c.mu.Unlock()
	if cli != nil {
		_ = cli.Close() // of which each connection comes back for the lock
	}
}

func (c *Client) dial() (*client.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cli != nil {
		return c.cli, nil
	}
	dial := c.connect
	if path, ok := strings.CutPrefix(c.host, "unix://"); ok {
		dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return c.connect(ctx, "unix", path) }
	}
	cli, err := client.NewClientWithOpts(client.WithHost(c.host), client.WithAPIVersionNegotiation(), client.WithDialContext(dial))
	if err != nil {
		return nil, fmt.Errorf("docker at %s: %w", c.host, err)
	}
	c.cli = cli
	return cli, nil
}

// pingTimeout bounds Ping: an engine that works answers at once.
const pingTimeout = 3 * time.Second

// Ping asks the engine for a sign of life.
func (c *Client) Ping(ctx context.Context) error {
	return c.within(ctx, pingTimeout, "ping", func(ctx context.Context, cli *client.Client) error {
		_, err := cli.Ping(ctx)
		return err
	})
}

// do runs one call with the package's timeout. After a failure to connect the
// client is made anew: the engine that answers next may speak another version.
func (c *Client) do(ctx context.Context, what string, f func(context.Context, *client.Client) error) error {
	return c.within(ctx, Timeout, what, f)
}

// within is do with another timeout.
func (c *Client) within(ctx context.Context, timeout time.Duration, what string, f func(context.Context, *client.Client) error) error {
	cli, err := c.dial()
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err = f(ctx, cli)
	switch {
	case err == nil:
		return nil
	case cerrdefs.IsNotFound(err):
		return fmt.Errorf("%s: %w: %w", what, ErrNotFound, err)
	case cerrdefs.IsConflict(err), cerrdefs.IsPermissionDenied(err):
		return fmt.Errorf("%s: %w: %w", what, ErrConflict, err)
	case client.IsErrConnectionFailed(err):
		c.Close()
	}
	return fmt.Errorf("%s: docker at %s: %w", what, c.host, err)
}
