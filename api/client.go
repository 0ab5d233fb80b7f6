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
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) },
		// The web page asks this many things at once, every two seconds: by ssh each connection is a login.
		MaxIdleConnsPerHost: 12,
	}
}

// Dial connects to the agent, for who speaks HTTP to it himself.
func (c *Client) Dial(ctx context.Context) (net.Conn, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, c.explain(err)
	}
	return conn, nil
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

func call[T any](ctx context.Context, c *Client, method, verb string, body any) (T, error) {
	var value T
	response, err := c.send(ctx, method, verb, body)
	if err != nil {
		return value, err
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&value); err != nil {
		return value, fmt.Errorf("read the agent's answer: %w", err)
	}
	return value, nil
}

// send asks, and returns an answer that is no error.
func (c *Client) send(ctx context.Context, method, verb string, body any) (*http.Response, error) {
	var sent io.Reader = http.NoBody
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		sent = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://agent/v1/"+verb, sent)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, c.explain(err)
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		return nil, failure(response)
	}
	return response, nil
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
