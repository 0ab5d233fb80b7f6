package capture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/gossip"
)

// Methods of calls between hosts.
const (
	methodStart = "capture.start"
	methodRead  = "capture.read"
	methodStop  = "capture.stop"
)

const (
	// mostRead bounds an answer, bytes, and longRead how long it waits for a packet.
	mostRead = 512 << 10
	longRead = time.Second
	// callPatience bounds a call, and nudge is how often a session is told that it is wanted, while
	// the reader takes nothing.
	callPatience = 10 * time.Second
	nudge        = 3 * time.Second
)

// question is about a session that the asker has numbered.
type question struct {
	ID    uint64 `cbor:"1,keyasint"`
	Order order  `cbor:"2,keyasint,omitempty"`
	From  uint64 `cbor:"3,keyasint,omitempty"` // what stands before has been read
	Most  int    `cbor:"4,keyasint,omitempty"` // bytes
}

type answer struct {
	Data []byte         `cbor:"1,keyasint,omitempty"`
	Done bool           `cbor:"2,keyasint,omitempty"`
	End  api.CaptureEnd `cbor:"3,keyasint,omitempty"`
}

// Methods answer other hosts.
func (d *Desk) Methods() map[string]func(ctx context.Context, from string, body []byte) ([]byte, error) {
	return map[string]func(context.Context, string, []byte) ([]byte, error){
		methodStart: d.serve(d.start),
		methodRead:  d.serve(d.read),
		methodStop: d.serve(func(_ context.Context, at seat, _ question) (answer, error) {
			d.drop(at)
			return answer{}, nil
		}),
	}
}

func (d *Desk) serve(f func(context.Context, seat, question) (answer, error)) func(context.Context, string, []byte) ([]byte, error) {
	return func(ctx context.Context, from string, body []byte) ([]byte, error) {
		var q question
		if err := cbor.Unmarshal(body, &q); err != nil {
			return nil, fmt.Errorf("read the question: %w", err)
		}
		a, err := f(ctx, seat{from, q.ID}, q)
		if err != nil {
			return nil, err
		}
		return cbor.Marshal(a)
	}
}

func (d *Desk) start(_ context.Context, at seat, q question) (answer, error) {
	if d.cfg.Consent == "off" {
		asker := "host " + d.cfg.Snapshot().HostName(cluster.NodeID(at.node))
		d.cfg.Log.Warn("another host asked for packets of a container, and gets none", "asked by", asker)
		return answer{}, errors.New("its packets are for root there alone (GRAPEVINE_CAPTURE=off): run this there, or by -H")
	}
	s, err := d.begin(q.Order, at.node, d.cfg.Consent != "full")
	if err != nil {
		return answer{}, err
	}
	d.mu.Lock()
	again, life := d.others[at] != nil, d.life
	if !again {
		d.others[at] = s
	}
	d.mu.Unlock()
	if again {
		s.release()
		return answer{}, errors.New("there is such a capture already")
	}
	go func() {
		s.watch(idle, life.Done())
		d.drop(at)
	}()
	return answer{}, nil
}

func (d *Desk) read(ctx context.Context, at seat, q question) (answer, error) {
	d.mu.Lock()
	s := d.others[at]
	d.mu.Unlock()
	if s == nil {
		return answer{}, errors.New("the capture has ended there: its agent was started anew, or nobody asked for it")
	}
	ctx, cancel := context.WithTimeout(ctx, longRead)
	defer cancel()
	b, done, end := s.take(ctx, q.From, max(0, min(q.Most, mostRead)))
	return answer{b, done, end}, nil
}

// drop ends a session of another host, and forgets it.
func (d *Desk) drop(at seat) {
	d.mu.Lock()
	s := d.others[at]
	delete(d.others, at)
	d.mu.Unlock()
	if s != nil {
		s.release()
	}
}

// remote is a session on another host.
type remote struct {
	d    *Desk
	node string
	id   uint64
	from uint64
	stop context.CancelFunc
}

// beginThere begins a capture on another host.
func (d *Desk) beginThere(ctx context.Context, host cluster.NodeID, o order) (source, error) {
	r := &remote{d: d, node: string(host), id: rand.Uint64()}
	if _, err := r.ask(ctx, methodStart, question{Order: o}); err != nil {
		return nil, plain(err)
	}
	ctx, r.stop = context.WithCancel(ctx)
	go r.nudge(ctx)
	return r, nil
}

// nudge says that the capture is wanted, however long the reader takes.
func (r *remote) nudge(ctx context.Context) {
	tick := time.NewTicker(nudge)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_, _ = r.ask(ctx, methodRead, question{}) // the next read says what is wrong
		}
	}
}

func (r *remote) ask(ctx context.Context, method string, q question) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	q.ID = r.id
	body, err := cbor.Marshal(q)
	if err != nil {
		return a, err
	}
	reply, err := r.d.cfg.Call(ctx, r.node, method, body)
	if err != nil {
		return a, err
	}
	return a, cbor.Unmarshal(reply, &a)
}

// next implements source. A call that was not answered is asked again: what was not read is still there.
func (r *remote) next(ctx context.Context) ([]byte, bool, api.CaptureEnd, error) {
	const tries = 3
	var err error
	for range tries {
		var a answer
		if a, err = r.ask(ctx, methodRead, question{From: r.from, Most: mostRead}); err == nil {
			r.from += uint64(len(a.Data))
			return a.Data, a.Done, a.End, nil
		}
		if _, said := errors.AsType[*gossip.RemoteError](err); said || ctx.Err() != nil {
			break
		}
	}
	return nil, false, api.CaptureEnd{}, plain(err)
}

func (r *remote) close() {
	r.stop()
	ctx, cancel := context.WithTimeout(context.Background(), callPatience)
	defer cancel()
	_, _ = r.ask(ctx, methodStop, question{}) // if it is not heard, nobody reads there
}

// plain leaves out of an error of the other host what only says that it was asked.
func plain(err error) error {
	if there, ok := errors.AsType[*gossip.RemoteError](err); ok && strings.HasPrefix(there.Text, "unknown method") {
		return errors.New("its agent is older, and cannot: upgrade it, or run tcpdump there")
	} else if ok {
		return errors.New(there.Text)
	}
	return err
}
