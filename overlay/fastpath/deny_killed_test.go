package fastpath

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/tests/turns"
)

// TestDenyKilledBetweenWrites: while two containers talk a rule forbids it, and the agent is killed before the first of what it does to
// the maps and to the switch, before the second, and so on. Once the flows forbid it nothing gets through, with no agent there; until
// then what they let through goes on; and the next agent ends it in any case. A run of all tests has a part of the writes.
func TestDenyKilledBetweenWrites(t *testing.T) {
	r := newRuled(t)
	r.echo()
	changed, unchanged := 0, 0
	from, step := turns.Every(3)
	for n := from; ; n += step {
		r.enforce("", services...)
		conns := map[string]net.Conn{"tcp": r.dial("tcp"), "udp": r.dial("udp"), "tcp that the switch has never seen": r.owns()}
		for what, c := range conns {
			for range 5 {
				if err := said(c, 10*time.Second); err != nil {
					t.Fatal(n, what, err)
				}
			}
		}
		flood := r.flood()
		r.life = &life{left: n}
		r.enforce("")
		over := *r.life
		r.life = nil
		r.path.tables.before = nil
		if over.changed {
			changed++
			flood.end(t, n, "the flows have changed")
		} else {
			unchanged++
			for what, c := range conns {
				if err := said(c, 10*time.Second); err != nil {
					t.Errorf("killed before write %d, the flows let it through, and it ends: %s: %v", n, what, err)
				}
			}
		}
		shut := func(when string) {
			for what, c := range conns {
				if err := said(c, 200*time.Millisecond); err == nil {
					t.Errorf("killed before write %d, %s: what is forbidden goes on: %s", n, when, what)
				}
			}
		}
		if over.changed {
			shut("without an agent")
		}
		must(t, r.path.Close())
		r.agent()
		r.epoch--
		r.enforce("")
		if !over.changed {
			flood.end(t, n, "the next agent is there")
		}
		shut("with the next agent")
		for _, c := range conns {
			_ = c.Close()
		}
		if over.left >= 0 {
			t.Logf("%d writes; of those looked at the flows had not changed yet at %d", n, unchanged)
			break
		}
	}
	if step == 1 && (changed < 2 || unchanged < 4) {
		t.Errorf("the flows had changed %d times, and not yet %d times: the test shows little", changed, unchanged)
	}
}

// flood is datagrams by number, which the other side sends back.
type flood struct {
	c    net.Conn
	back chan uint64 // those that came, at the end
	stop chan struct{}
	sent chan uint64
}

func (r *ruled) flood() *flood {
	f := &flood{r.dial("udp"), make(chan uint64, 1), make(chan struct{}), make(chan uint64)}
	go func() {
		number := uint64(0)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-f.stop:
				return
			case f.sent <- number:
			case <-tick.C:
				number++
				_, _ = f.c.Write(binary.BigEndian.AppendUint64(nil, number)) // "refused" is an answer
			}
		}
	}()
	go func() {
		last := uint64(0)
		for b := make([]byte, 8); ; {
			switch _, err := f.c.Read(b); {
			case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, net.ErrClosed):
				f.back <- last
				return
			case err == nil:
				last = max(last, binary.BigEndian.Uint64(b))
			}
		}
	}()
	return f
}

// end lets it go on for a while, and none of what is sent from now on may come back.
func (f *flood) end(t *testing.T, n int, when string) {
	t.Helper()
	last := <-f.sent
	for now := last; now < last+50; now = <-f.sent {
		time.Sleep(time.Millisecond)
	}
	close(f.stop)
	_ = f.c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if back := <-f.back; back > last+1 {
		t.Errorf("killed before write %d, %s: datagram %d comes back, and %d was the last before", n, when, back, last)
	}
}
