package lab

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// get asks the daemon behind a unix socket until it answers, ends, or req.Wait is
// over. Any answer will do.
func (s *server) get(ctx context.Context, req request) error {
	ctx, cancel := context.WithTimeout(ctx, req.Wait)
	defer cancel()
	s.mu.Lock()
	d := s.daemons[req.Name]
	s.mu.Unlock()
	for {
		err := getOnce(ctx, req)
		if err == nil {
			return nil
		}
		if d != nil && !d.running() {
			return fmt.Errorf("%s ended before it answered", req.Name)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("no answer on %s within %s: %w", req.Unix, req.Wait, err)
		}
	}
}

func getOnce(ctx context.Context, req request) error {
	if req.Path == "" {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", req.Unix)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	_, _, err := askDaemon(ctx, req)
	return err
}

// askDaemon is one GET from a daemon: the status and the body of its answer.
func askDaemon(ctx context.Context, req request) (status int, body []byte, err error) {
	hr, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+req.Name+req.Path, nil)
	if err != nil {
		return 0, nil, err
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", req.Unix)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	resp, err := client.Do(hr)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}
