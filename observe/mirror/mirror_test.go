package mirror

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/packets"
)

const here, there = cluster.NodeID("00000000000000aa"), cluster.NodeID("00000000000000bb")

// copying is a Copy that copies nothing.
type copying struct {
	ended  chan error
	closed bool
}

func (c *copying) Name() string                  { return "mirror0" }
func (c *copying) Ended() <-chan error           { return c.ended }
func (c *copying) Counts() (copied, lost uint64) { return 7, 1 }
func (c *copying) Close() error                  { c.closed = true; return nil }

// world has web, ids and more here, and db on another host.
type world struct {
	mu     sync.Mutex
	state  *cluster.State
	desk   *Desk
	opened []*copying
	stop   context.CancelFunc
	over   chan error
}

func endpoint(name string, host cluster.NodeID, at string) cluster.Endpoint {
	return cluster.Endpoint{ID: strings.Repeat(name[:1], 64), Container: strings.Repeat(name[:1], 64), Network: "blue", Name: name, Host: host, Addrs: []netip.Addr{netip.MustParseAddr(at)}, MAC: "0a:00:00:00:00:01"}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{state: cluster.New(here), over: make(chan error, 1)}
	other := cluster.New(there)
	if _, _, err := other.Put(endpoint("db", there, "10.1.1.1")); err != nil {
		t.Fatal(err)
	}
	for r := range other.Snapshot().Records() {
		if _, err := w.state.Merge([]cluster.Record{r}); err != nil {
			t.Fatal(err)
		}
	}
	w.put(t, endpoint("web", here, "10.1.0.1"), endpoint("ids", here, "10.1.0.2"), endpoint("api", here, "10.1.0.3"), endpoint("cache", here, "10.1.0.4"), endpoint("front", here, "10.1.0.5"), endpoint("queue", here, "10.1.0.6"))
	w.desk = New(Config{Self: here, Snapshot: w.snapshot, Log: slog.New(slog.DiscardHandler), Open: func([]cluster.Endpoint, cluster.Endpoint) (Copy, error) {
		c := &copying{ended: make(chan error, 1)}
		w.opened = append(w.opened, c)
		return c, nil
	}})
	ctx, cancel := context.WithCancel(t.Context())
	w.stop = cancel
	go func() { w.over <- w.desk.Run(ctx) }()
	synctest.Wait()
	return w
}

func (w *world) snapshot() *cluster.Snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state.Snapshot()
}

// forget takes an endpoint's record away.
func (w *world) forget(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state.Delete(endpoint(name, here, "10.1.0.1").Key(), time.Now())
}

func (w *world) put(t *testing.T, bodies ...cluster.Body) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range bodies {
		if _, _, err := w.state.Put(b); err != nil {
			t.Fatal(err)
		}
	}
}

// running says how many run once all that was to happen has.
func (w *world) running(t *testing.T) int {
	t.Helper()
	synctest.Wait()
	list, err := w.desk.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(w.desk.Notes()) != len(list) {
		t.Errorf("%d run, status says %q", len(list), w.desk.Notes())
	}
	return len(list)
}

// TestEnds: a mirror ends by its time, by who ends it, with the agent, and when a container is gone or called otherwise.
func TestEnds(t *testing.T) {
	for what, end := range map[string]func(*testing.T, *world){
		"time": func(*testing.T, *world) { time.Sleep(10 * time.Minute) },
		"somebody": func(t *testing.T, w *world) {
			if _, err := w.desk.Stop(t.Context(), api.StopMirrorRequest{Container: "web"}); err != nil {
				t.Error(err)
			}
		},
		"all": func(t *testing.T, w *world) {
			if _, err := w.desk.Stop(t.Context(), api.StopMirrorRequest{All: true}); err != nil {
				t.Error(err)
			}
		},
		"the agent":     func(_ *testing.T, w *world) { w.stop() },
		"the interface": func(_ *testing.T, w *world) { w.opened[0].ended <- packets.ErrGone },
		"its container": func(_ *testing.T, w *world) {
			w.forget("web")
			time.Sleep(2 * glance)
		},
		"the other one": func(_ *testing.T, w *world) {
			w.forget("ids")
			time.Sleep(2 * glance)
		},
		"its name": func(t *testing.T, w *world) {
			e := endpoint("web", here, "10.1.0.1")
			e.Name = "www"
			w.put(t, e)
			time.Sleep(2 * glance)
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				done, err := w.desk.Start(t.Context(), api.MirrorRequest{Container: "web", To: "ids"})
				if err != nil || !strings.Contains(done.Text, "ids sees all packets of web at its interface mirror0 until ") {
					t.Fatal(done, err)
				}
				time.Sleep(time.Minute)
				if n := w.running(t); n != 1 {
					t.Fatalf("%d run after a minute", n)
				}
				end(t, w)
				if n := w.running(t); n != 0 || !w.opened[0].closed {
					t.Errorf("%d run, closed: %v", n, w.opened[0].closed)
				}
				w.stop()
				if err := <-w.over; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestRefused: what cannot be, or would be too much, is refused, and says what to do.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		refused := func(r api.MirrorRequest, want string) {
			t.Helper()
			var said *api.Error
			if _, err := w.desk.Start(t.Context(), r); !errors.As(err, &said) || !strings.Contains(said.Message, want) {
				t.Errorf("%+v: %v, want %q", r, err, want)
			}
		}
		refused(api.MirrorRequest{Container: "ghost", To: "ids"}, "there is no container ghost")
		refused(api.MirrorRequest{Container: "web"}, "add --to CONTAINER")
		refused(api.MirrorRequest{Container: "web", To: "web"}, "to itself")
		refused(api.MirrorRequest{Container: "db", To: "ids"}, "run it there, or with -H ssh://root@")
		refused(api.MirrorRequest{Container: "web", To: "db"}, "a mirror has both containers on one")
		refused(api.MirrorRequest{Container: "web", To: "ids", Seconds: 90000}, "a mirror lasts 24h0m0s at most")
		refused(api.MirrorRequest{Container: "web", To: "ids", Seconds: -1}, "at most")
		for _, name := range []string{"web", "api", "cache", "front"} {
			if _, err := w.desk.Start(t.Context(), api.MirrorRequest{Container: name, To: "ids"}); err != nil {
				t.Error(err)
			}
		}
		refused(api.MirrorRequest{Container: "web", To: "api"}, "they go to ids already")
		refused(api.MirrorRequest{Container: "queue", To: "ids"}, "4 mirrors run on this host already")
		if _, err := w.desk.Stop(t.Context(), api.StopMirrorRequest{Container: "queue"}); err == nil {
			t.Error("what does not run was ended")
		}
		w.stop()
		if err := <-w.over; err != nil {
			t.Error(err)
		}
		if n := w.running(t); n != 0 {
			t.Errorf("%d run without an agent", n)
		}
		if _, err := w.desk.Start(t.Context(), api.MirrorRequest{Container: "web", To: "ids"}); err == nil {
			t.Error("begun without an agent")
		}
	})
}
