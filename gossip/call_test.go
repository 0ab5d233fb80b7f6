package gossip

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/gossip/memnet"
)

func seconds(t *testing.T, n int) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(n)*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestCall(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		hosts := cluster(t, net, 3)
		for _, h := range hosts {
			h.Handle("echo", func(_ context.Context, from string, body []byte) ([]byte, error) {
				return append([]byte(from+" "), body...), nil
			})
			h.Handle("fail", func(context.Context, string, []byte) ([]byte, error) {
				return nil, errors.New("no space left")
			})
			h.Handle("panic", func(context.Context, string, []byte) ([]byte, error) { panic("oops") })
		}
		for _, to := range hosts { // host 0 is the caller itself
			got, err := hosts[0].Call(seconds(t, 5), to.id, "echo", []byte("hi"))
			if want := hosts[0].id + " hi"; err != nil || string(got) != want {
				t.Errorf("echo on %s: %q, %v; want %q", to.id, got, err, want)
			}
			for method, want := range map[string]string{
				"fail": "no space left", "nothing": `unknown method "nothing"`, "panic": "handler panicked: oops",
			} {
				_, err := hosts[0].Call(seconds(t, 5), to.id, method, nil)
				if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), to.id) {
					t.Errorf("%s on %s: error %v, want %q and the host", method, to.id, err, want)
				}
				var remote *RemoteError
				if errors.As(err, &remote) != (to != hosts[0]) {
					t.Errorf("%s on %s: error of type %T", method, to.id, err)
				}
			}
		}
	})
}

func TestCallLargeBodies(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		hosts := cluster(t, net, 2)
		hosts[1].Handle("echo", func(_ context.Context, _ string, b []byte) ([]byte, error) { return b, nil })
		hosts[1].Handle("grow", func(_ context.Context, _ string, b []byte) ([]byte, error) { return append(b, 1), nil })
		body := bytes.Repeat([]byte("x"), MaxBody)
		if got, err := hosts[0].Call(seconds(t, 5), hosts[1].id, "echo", body); err != nil || !bytes.Equal(got, body) {
			t.Errorf("16 MiB there and back: %d bytes, %v", len(got), err)
		}
		if _, err := hosts[0].Call(seconds(t, 5), hosts[1].id, "grow", body); err == nil || !strings.Contains(err.Error(), "response of") {
			t.Errorf("response over the limit: %v", err)
		}
		if _, err := hosts[0].Call(seconds(t, 5), hosts[1].id, "echo", append(body, 1)); err == nil || !strings.Contains(err.Error(), "request of") {
			t.Errorf("request over the limit: %v", err)
		}
	})
}

func TestCallTimesOut(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		hosts := cluster(t, net, 2)
		ended := make(chan error, 1)
		hosts[1].Handle("hang", func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
			<-ctx.Done()
			ended <- ctx.Err()
			return nil, ctx.Err()
		})
		began := time.Now()
		_, err := hosts[0].Call(seconds(t, 3), hosts[1].id, "hang", nil)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 3*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the handler's context: %v, want the caller's patience", err)
		}
	})
}

func TestCallFailsAtOnceOnDeadAndUnknown(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		hosts := cluster(t, net, 3)
		hosts[1].Handle("hang", func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		waits := make(chan error, 1)
		go func() {
			_, err := hosts[0].Call(seconds(t, 300), hosts[1].id, "hang", nil)
			waits <- err
		}()
		time.Sleep(time.Second)
		net.Cut(hosts[0].ip, hosts[1].ip)
		net.Cut(hosts[2].ip, hosts[1].ip)
		if err := <-waits; !errors.Is(err, ErrUnreachable) {
			t.Errorf("call that waits for a host that dies: %v", err)
		}
		began := time.Now()
		for _, id := range []string{hosts[1].id, "00000000000000ff"} {
			if _, err := hosts[0].Call(seconds(t, 60), id, "hang", nil); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), id) {
				t.Errorf("call to %s: %v", id, err)
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("took %v", took)
		}
	})
}

// More calls than a host runs at once all succeed, and it never runs more.
func TestCallsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		hosts := cluster(t, net, 2)
		var running, most, total atomic.Int32
		hosts[1].Handle("slow", func(context.Context, string, []byte) ([]byte, error) {
			if n := running.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(50 * time.Millisecond)
			running.Add(-1)
			total.Add(1)
			return nil, nil
		})
		const calls = 200
		errs := make(chan error, calls)
		for range calls {
			go func() {
				_, err := hosts[0].Call(seconds(t, 30), hosts[1].id, "slow", nil)
				errs <- err
			}()
		}
		for range calls {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if most.Load() > maxHandlers || total.Load() != calls {
			t.Errorf("%d at once, %d in all; want at most %d, and %d", most.Load(), total.Load(), maxHandlers, calls)
		}
		if hosts[1].Stats()[LostBusy] == 0 {
			t.Error("nothing was counted as busy")
		}
	})
}

// Close ends calls that wait and handlers that run.
func TestCloseEndsCalls(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		hosts := cluster(t, net, 2)
		hosts[1].Handle("hang", func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
			<-ctx.Done()
			return nil, fmt.Errorf("ended: %w", ctx.Err())
		})
		waits := make(chan error, 1)
		go func() {
			_, err := hosts[0].Call(seconds(t, 300), hosts[1].id, "hang", nil)
			waits <- err
		}()
		time.Sleep(time.Second)
		hosts[0].stop()
		if err := <-waits; !errors.Is(err, errClosed) {
			t.Errorf("call when its host closes: %v", err)
		}
		began := time.Now()
		hosts[1].stop() // its handler would hang for minutes
		if took := time.Since(began); took > dialTimeout {
			t.Errorf("close took %v", took)
		}
		if _, err := hosts[1].Call(context.Background(), hosts[0].id, "hang", nil); err == nil {
			t.Error("call after close succeeds")
		}
	})
}

// TestAskedBeforeRun: who asks a host that is just starting, and listens already, is answered when that
// runs, and does not wait until it gives the question up.
func TestAskedBeforeRun(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		first := start(t, n, 0, nil)
		first.state.put("known", "v")
		late := &host{state: newToy(), id: hostID(1)}
		tr, err := n.Listen(hostAddr(1))
		if err != nil {
			t.Fatal(err)
		}
		late.Gossip, err = New(Config{Node: late.id, Bind: hostAddr(1), Keys: [][]byte{testKey}, ClusterID: "alpha", Transport: tr, Log: quiet()}, late.state)
		if err != nil {
			t.Fatal(err)
		}
		late.state.put("its own", "v")
		if _, err := first.ml.Join([]string{hostAddr(1).String()}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // in which it is asked for what it has
		late.Handle("echo", func(_ context.Context, _ string, body []byte) ([]byte, error) { return body, nil })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- late.Run(ctx) }()
		within(t, time.Second, "what it has is fetched", func() bool { return first.state.get("its own") != "" })
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
