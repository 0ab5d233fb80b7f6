package api

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

// TestConnectionsStay: who asks several things at once, again and again, does not connect again.
func TestConnectionsStay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "grapevine.sock")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	const atOnce = 6
	var here sync.WaitGroup // all of a round are asked at once
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, l, Handlers{Nodes: func(context.Context) ([]Node, error) {
			here.Done()
			here.Wait()
			return nil, nil
		}})
	}()
	var dials atomic.Int32
	c := NewClientOver("host2", func(ctx context.Context) (net.Conn, error) {
		dials.Add(1)
		return new(net.Dialer).DialContext(ctx, "unix", path)
	})
	for range 5 {
		here.Add(atOnce)
		var asked sync.WaitGroup
		for range atOnce {
			asked.Go(func() {
				if _, err := c.Nodes(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		asked.Wait()
	}
	c.http.CloseIdleConnections()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := dials.Load(); n > 8 {
		t.Errorf("%d connections for rounds of %d questions", n, atOnce)
	}
}
