package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"sync/atomic"
	"syscall"
)

// Client calls the agent whose socket is at a path. Its methods block until the
// answer is there or ctx is done; errors are for people.
type Client struct {
	socket string
	over   string // the host that it is asked by way of ssh; empty: this one
	dial   func(context.Context) (net.Conn, error)
	http   http.Client
	// reader is set when the socket for readers was taken, which hangs up on who is none.
	reader atomic.Bool
}

// NewClient does not connect yet. Who may not reach the socket takes another one, that of readers.
func NewClient(socket string, readers ...string) *Client {
	c := &Client{socket: socket}
	c.dial = func(ctx context.Context) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		for _, r := range readers {
			if !errors.Is(err, fs.ErrPermission) {
				break
			}
			if other, otherErr := new(net.Dialer).DialContext(ctx, "unix", r); otherErr == nil {
				c.reader.Store(true)
				return other, nil
			}
		}
		return conn, err
	}
	c.http.Transport = c.transport()
	return c
}

// NewClientOver calls the agent of another host, by connections that dial makes.
func NewClientOver(host string, dial func(context.Context) (net.Conn, error)) *Client {
	c := &Client{over: host, dial: dial}
	c.http.Transport = c.transport()
	return c
}

func (c *Client) transport() *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) }}
}

// Dial connects to the agent, for who speaks HTTP to it himself.
func (c *Client) Dial(ctx context.Context) (net.Conn, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, c.explain(err)
	}
	return conn, nil
}

// Status and the others call the handler of the same name.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return call[Status](ctx, c, http.MethodGet, "status", nil)
}

// Nodes lists the hosts of the cluster.
func (c *Client) Nodes(ctx context.Context) ([]Node, error) {
	return call[[]Node](ctx, c, http.MethodGet, "nodes", nil)
}

// Networks lists the networks of the cluster.
func (c *Client) Networks(ctx context.Context) ([]Network, error) {
	return call[[]Network](ctx, c, http.MethodGet, "networks", nil)
}

// Endpoints lists the containers' places in networks.
func (c *Client) Endpoints(ctx context.Context) ([]Endpoint, error) {
	return call[[]Endpoint](ctx, c, http.MethodGet, "endpoints", nil)
}

// Ring lists who owns which addresses.
func (c *Client) Ring(ctx context.Context) ([]Pool, error) {
	return call[[]Pool](ctx, c, http.MethodGet, "ring", nil)
}

// Flows lists the flows of the agent's switch.
func (c *Client) Flows(ctx context.Context) ([]Flow, error) {
	return call[[]Flow](ctx, c, http.MethodGet, "flows", nil)
}

// Doctor looks for what is wrong, which takes seconds where packets are lost.
func (c *Client) Doctor(ctx context.Context) (Diagnosis, error) {
	return call[Diagnosis](ctx, c, http.MethodGet, "doctor", nil)
}

// Ping sends another host, by its name, ID or address, an echo each way.
func (c *Client) Ping(ctx context.Context, host string) (Ping, error) {
	return call[Ping](ctx, c, http.MethodGet, "ping?host="+url.QueryEscape(host), nil)
}

// JoinCommand returns the lines that add a host; they contain the gossip key.
func (c *Client) JoinCommand(ctx context.Context) (JoinCommand, error) {
	return call[JoinCommand](ctx, c, http.MethodGet, "join-command", nil)
}

// Leave takes the agent's host out of the cluster; the agent ends after it.
func (c *Client) Leave(ctx context.Context, r LeaveRequest) (Done, error) {
	return call[Done](ctx, c, http.MethodPost, "leave", r)
}

// Join brings the agent's host back into a cluster, after it has left.
func (c *Client) Join(ctx context.Context) (Done, error) {
	return call[Done](ctx, c, http.MethodPost, "join", JoinRequest{})
}

// Forget takes over what a dead host owns.
func (c *Client) Forget(ctx context.Context, r ForgetRequest) (Done, error) {
	return call[Done](ctx, c, http.MethodPost, "forget", r)
}

// Backup writes the state of the agent's host to w.
func (c *Client) Backup(ctx context.Context, w io.Writer) error {
	return c.stream(ctx, w, "v1/backup")
}

// Metrics writes what Prometheus would read to w.
func (c *Client) Metrics(ctx context.Context, w io.Writer) error {
	return c.stream(ctx, w, "metrics")
}

// stream writes the body of an answer to w.
func (c *Client) stream(ctx context.Context, w io.Writer, path string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/"+path, http.NoBody)
	if err != nil {
		return fmt.Errorf("make the request: %w", err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return c.explain(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return failure(response)
	}
	if _, err := io.Copy(w, response.Body); err != nil {
		return fmt.Errorf("read the agent's answer: %w", err)
	}
	return nil
}

// Keys lists the gossip keys of all hosts.
func (c *Client) Keys(ctx context.Context) ([]Key, error) {
	return call[[]Key](ctx, c, http.MethodGet, "keys", nil)
}

// ChangeKeys changes the gossip keys of all hosts.
func (c *Client) ChangeKeys(ctx context.Context, r KeysRequest) (Done, error) {
	return call[Done](ctx, c, http.MethodPost, "keys", r)
}

// FastPath switches the fast path of the agent's host until the agent's next start.
func (c *Client) FastPath(ctx context.Context, r FastPathRequest) (Done, error) {
	return call[Done](ctx, c, http.MethodPost, "fastpath", r)
}

// Policies lists the policies of the cluster.
func (c *Client) Policies(ctx context.Context) (Policies, error) {
	return call[Policies](ctx, c, http.MethodGet, "policies", nil)
}

// Apply writes policies.
func (c *Client) Apply(ctx context.Context, r ApplyRequest) (Done, error) {
	return call[Done](ctx, c, http.MethodPost, "policies/apply", r)
}

// DeletePolicy deletes a policy.
func (c *Client) DeletePolicy(ctx context.Context, r DeletePolicyRequest) (Done, error) {
	return call[Done](ctx, c, http.MethodPost, "policies/delete", r)
}

// Explain says whether policies let a connection through.
func (c *Client) Explain(ctx context.Context, r ExplainRequest) (Explanation, error) {
	return call[Explanation](ctx, c, http.MethodPost, "policies/explain", r)
}

func call[T any](ctx context.Context, c *Client, method, verb string, body any) (T, error) {
	var value T
	var sent io.Reader = http.NoBody
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return value, fmt.Errorf("encode the request: %w", err)
		}
		sent = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://agent/v1/"+verb, sent)
	if err != nil {
		return value, fmt.Errorf("make the request: %w", err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return value, c.explain(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return value, failure(response)
	}
	if err := json.NewDecoder(response.Body).Decode(&value); err != nil {
		return value, fmt.Errorf("read the agent's answer: %w", err)
	}
	return value, nil
}

// failure is the Error that the agent answered.
func failure(response *http.Response) error {
	e := &Error{Status: response.StatusCode}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxBody)).Decode(e); err != nil || e.Message == "" {
		e.Message = "the agent answered " + response.Status
	}
	return e
}

// explain says what an error of the connection means to the user.
func (c *Client) explain(err error) error {
	var none *exec.Error // there is no ssh
	// Who is hung up on sees one of many errors, of which net/http names not all.
	hungUp := !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) && !errors.As(err, &none)
	switch {
	case c.over != "" && errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the agent of %s does not answer in time, over ssh", c.over)
	case c.over != "" && hungUp:
		return fmt.Errorf("the agent of %s could not be asked over ssh: what is said above is why", c.over)
	case c.over != "":
		return fmt.Errorf("ask the agent of %s: %w", c.over, err)
	case errors.Is(err, fs.ErrPermission), hungUp && c.reader.Load():
		return fmt.Errorf("the agent's socket %s is for root, and to look for who may use Docker (its group): run this with sudo", c.socket)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no agent answers at %s: is it running? (systemctl status grapevine, or docker plugin ls)", c.socket)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the agent at %s does not answer in time: its log may say why (journalctl -u grapevine, or the Docker daemon's log for the plugin)", c.socket)
	}
	return fmt.Errorf("ask the agent at %s: %w", c.socket, err)
}
