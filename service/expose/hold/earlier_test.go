package hold

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/service/expose"
)

// before is a host on which somebody had port 8443 before it was exposed.
type before struct {
	t     *testing.T
	now   time.Time
	state *cluster.State
	file  *store.DB
	list  []Publisher
	err   error // Docker's
	asked int   // how often Docker was
	room  *Room
}

func newBefore(t *testing.T) *before {
	runtime.LockOSThread() // and for good: the thread ends with this goroutine, and its namespace with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("a network namespace: %v", err)
	}
	file, err := store.Open(filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	b := &before{t: t, now: time.Now(), state: cluster.New("00000000000000aa"), file: file}
	b.put(cluster.Network{Name: "blue", VNID: 1})
	b.expose(8443)
	b.restart()
	return b
}

func (b *before) put(body cluster.Body) {
	b.t.Helper()
	if _, _, err := b.state.Put(body); err != nil {
		b.t.Fatal(err)
	}
}

// expose has the service's ports be these ones.
func (b *before) expose(ports ...uint16) {
	b.t.Helper()
	s := cluster.Service{Network: "blue", Name: "web", Select: "web", Addrs: []netip.Addr{netip.MustParseAddr("10.1.0.99")}, Ports: []cluster.ServicePort{{Proto: "tcp", Port: 80, Target: 80}}}
	for _, p := range ports {
		s.Exposed = append(s.Exposed, cluster.ServicePort{Proto: "tcp", Port: p, Target: 80})
	}
	b.put(s)
}

// restart is the agent's.
func (b *before) restart() {
	if b.room != nil {
		b.room.held.Close()
	}
	b.room = New(Config{
		Self: b.state.Self(), Gateway: "gv0", Source: b, Heed: expose.Services, Off: true, Log: slog.New(slog.DiscardHandler), State: b.file,
		Publishers: func(context.Context) ([]Publisher, error) { b.asked++; return b.list, b.err },
	})
	b.t.Cleanup(b.room.held.Close)
}

func (b *before) Snapshot() *cluster.Snapshot { return b.state.Snapshot() }
func (b *before) Watch() <-chan struct{}      { return nil }

// after is what this host does d later, with Docker's answer.
func (b *before) after(d time.Duration) {
	b.now = b.now.Add(d)
	b.room.round(b.now)
	select {
	case at := <-b.room.past.ask:
		b.room.past.inquireAt(b.t.Context(), at)
	default:
	}
	b.now = b.now.Add(beat)
	b.room.round(b.now)
}

func (b *before) want(what string, taken, away bool) {
	b.t.Helper()
	notes := b.room.Notes()
	if is := b.room.Holder("tcp", 8443) == ""; is != taken || (len(notes) == 1) != taken {
		b.t.Fatalf("%s: somebody else has the port: %v, want %v (notes: %+v)", what, is, taken, notes)
	}
	if taken && (notes[0].Away != away || notes[0].By == "") {
		b.t.Fatalf("%s: %+v, want away: %v", what, notes[0], away)
	}
}

// listen has the port until the function is called.
func (b *before) listen() (end func()) {
	b.t.Helper()
	l, err := net.Listen("tcp4", ":8443")
	if err != nil {
		b.t.Fatal(err)
	}
	return func() { _ = l.Close() }
}

// noted is how many ports the disk has.
func (b *before) noted() (n int) {
	b.t.Helper()
	if err := b.file.View(func(tx *store.Tx) error {
		return earlierBucket.ForEach(tx, func(string, earlier) error { n++; return nil })
	}); err != nil {
		b.t.Fatal(err)
	}
	return n
}

// TestEarlierProgram: a program that had the port before has it again after its restart, and a boot; of one that does
// not come back the port is this host's after Patience, in which Docker has answered.
func TestEarlierProgram(t *testing.T) {
	b := newBefore(t)
	end := b.listen()
	b.after(glance)
	b.want("it listens", true, false)
	end()
	b.after(glance)
	b.want("it restarts", true, true)
	end = b.listen()
	b.after(Patience)
	b.want("it is there again", true, false)
	end()
	b.err = errors.New("docker is not there yet")
	b.restart()
	for range 3 {
		b.after(Patience)
		b.want("the host has booted, and Docker does not answer", true, true)
	}
	b.err = nil
	b.after(glance)
	b.after(Patience / 2)
	b.want("Docker answers", true, true)
	b.after(Patience)
	b.want("it is gone for long", false, false)
	if n := b.noted(); n != 0 {
		t.Errorf("%d ports are noted still", n)
	}
}

// TestEarlierContainer: the port of a container is its own while it is there, running or not, and nobody's once it is removed.
func TestEarlierContainer(t *testing.T) {
	b := newBefore(t)
	end := b.listen() // Docker's proxy
	other := Publisher{Name: "other", Running: true, Has: func(p expose.Port) bool { return p == expose.Port{Port: 8443} }}
	b.list = []Publisher{{Name: "another", Has: func(expose.Port) bool { return false }}, other}
	b.after(glance)
	b.after(glance)
	b.want("it runs", true, false)
	if by := b.room.Notes()[0].By; by != "container other (-p)" {
		t.Errorf("%s has it", by)
	}
	end()
	other.Running = false
	b.list[1] = other
	b.restart()
	for range 3 {
		b.after(Patience)
		b.want("it is stopped", true, true)
	}
	b.list = b.list[:1]
	b.after(reminder)
	b.want("it is removed", false, false)
}

// TestEarlierNext: the port of a program that is gone waits for a stopped container that is to have it, which is named, and Docker is asked
// each minute.
func TestEarlierNext(t *testing.T) {
	b := newBefore(t)
	end := b.listen()
	b.after(glance)
	b.list = []Publisher{{Name: "web", Has: func(p expose.Port) bool { return p == expose.Port{Port: 8443} }}}
	b.after(reminder)
	b.want("it listens", true, false)
	program := b.room.Notes()[0].By
	end()
	for range 3 {
		b.after(Patience)
		b.want("a container is to have it", true, true)
		if n := b.room.Notes()[0]; n.By != program || n.Next != "container web (-p)" {
			t.Errorf("%s had it, and %q is to have it", n.By, n.Next)
		}
	}
	asked := b.asked
	for range int(reminder / glance) {
		b.after(glance)
	}
	if n := b.asked - asked; n > 2 {
		t.Errorf("Docker was asked %d times in a minute", n)
	}
	b.err, b.list = errors.New("docker does not answer"), nil
	b.after(reminder)
	if n := b.room.Notes(); len(n) != 1 || n[0].Next == "" {
		t.Errorf("Docker does not answer, and the container is forgotten: %+v", n)
	}
	b.err = nil
	b.after(reminder)
	b.want("the container is removed", true, true)
	if n := b.room.Notes()[0]; n.Next != "" {
		t.Errorf("the container is removed: %+v", n)
	}
	b.after(Patience)
	b.want("it is gone for long", false, false)
}

// TestEarlierConnection: a connection from the port is in the way of holding it, and nobody who had it before.
func TestEarlierConnection(t *testing.T) {
	b := newBefore(t)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: 8443}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		b.after(glance)
		if n := b.room.Notes(); len(n) != 1 || n[0].Away || b.noted() != 0 {
			t.Fatalf("%d ports are noted: %+v", b.noted(), n)
		}
	}
	_ = unix.Close(fd)
	b.after(glance)
	b.want("it has ended", false, false)
}

// TestEarlierEnds: who exposes the port anew has it if it is free then, and who exposes it no more leaves no note.
func TestEarlierEnds(t *testing.T) {
	b := newBefore(t)
	end := b.listen()
	b.after(glance)
	end()
	b.after(glance)
	b.want("it is away", true, true)
	b.expose()
	b.expose(8443)
	b.after(glance)
	b.want("exposed anew", false, false)

	b.room.held.Close()
	b.restart()
	end = b.listen()
	b.after(glance)
	b.want("another has it", true, false)
	end()
	b.expose(9000)
	b.after(glance)
	if n := b.noted(); n != 0 || len(b.room.Notes()) != 0 {
		t.Errorf("%d ports are noted still: %+v", n, b.room.Notes())
	}

	b.room.held.Close()
	b.expose(8443)
	b.restart()
	end = b.listen()
	b.after(glance)
	b.want("the only port is another's", true, false)
	end()
	b.expose()
	b.after(glance)
	if n := b.noted(); n != 0 || len(b.room.Notes()) != 0 {
		t.Errorf("the only port is exposed no more, and %d are noted still: %+v", n, b.room.Notes())
	}
}
