package gossip

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// callTimeout is for calls whose context has no deadline.
const callTimeout = 30 * time.Second

// ErrUnreachable is in the error of a call to a host that is not a living member
// of the cluster, or dies while the call waits.
var ErrUnreachable = errors.New("host is not reachable")

// errBusy says that nothing was done and that it is worth asking again.
var errBusy = errors.New("too many calls at once")

var errClosed = errors.New("gossip has ended")

// RemoteError is an error that the called host returned.
type RemoteError struct {
	Node, Method string
	Text         string // the error's text there
}

func (e *RemoteError) Error() string {
	return fmt.Sprintf("call %s on host %s: %s", e.Method, e.Node, e.Text)
}

// callTable holds the calls that wait for a response.
type callTable struct {
	mu      *sync.Mutex
	next    uint64
	waiting map[uint64]*waiting
}

type waiting struct {
	node string
	done chan outcome // room for one
}

type outcome struct {
	response
	err error
}

// newCallTable numbers calls from a random point on, so that a late response to
// an earlier run of this host meets none of them.
func newCallTable() callTable {
	return callTable{&sync.Mutex{}, rand.Uint64(), map[uint64]*waiting{}}
}

func (t *callTable) open(node string) (uint64, *waiting) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next++
	w := &waiting{node, make(chan outcome, 1)}
	t.waiting[t.next] = w
	return t.next, w
}

func (t *callTable) close(id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waiting, id)
}

// answer gives a call its response, and reports false if none waits for it.
func (t *callTable) answer(from string, r response) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.waiting[r.id]
	if w == nil || w.node != from {
		return false
	}
	delete(t.waiting, r.id)
	w.done <- outcome{response: r}
	return true
}

// fail ends the calls to a host.
func (t *callTable) fail(node string, state MemberState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, w := range t.waiting {
		if w.node == node {
			delete(t.waiting, id)
			w.done <- outcome{err: fmt.Errorf("%w: it is %s", ErrUnreachable, state)}
		}
	}
}

// caller asks other hosts.
type caller struct {
	*core
	roster *roster
	post   *post
	run    func(ctx context.Context, method string, body []byte) ([]byte, error) // a handler of this host's own
	calls  callTable
}

// call is Gossip.Call.
func (c *caller) call(ctx context.Context, node, method string, body []byte) ([]byte, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTimeout)
		defer cancel()
	}
	for {
		result, err := c.once(ctx, node, method, body)
		if !errors.Is(err, errBusy) {
			return result, err
		}
		if !sleep(ctx, 20*time.Millisecond+rand.N(100*time.Millisecond)) {
			return nil, err
		}
	}
}

func (c *caller) once(ctx context.Context, node, method string, body []byte) ([]byte, error) {
	wrap := func(err error) error { return fmt.Errorf("call %s on host %s: %w", method, node, err) }
	if len(body) > MaxBody {
		return nil, wrap(fmt.Errorf("request of %d bytes: at most %d", len(body), MaxBody))
	}
	if len(method) > 255 {
		return nil, wrap(fmt.Errorf("method of %d bytes: at most 255", len(method)))
	}
	if node == c.cfg.Node {
		result, err := c.run(ctx, method, body)
		if err != nil {
			return nil, wrap(err)
		}
		return result, nil
	}
	to, err := c.roster.find(node)
	if err != nil {
		return nil, wrap(err)
	}
	return c.node(ctx, to, c.post.writes(), method, body)
}

// node asks once, and returns errBusy (wrapped) if the host is.
func (c *caller) node(ctx context.Context, to *memberlist.Node, version uint8, method string, body []byte) ([]byte, error) {
	wrap := func(err error) error { return fmt.Errorf("call %s on host %s: %w", method, to.Name, err) }
	for range staleTries {
		o, err := c.ask(ctx, to, version, method, body)
		switch {
		case err != nil:
			return nil, wrap(err)
		case o.status == statusOK:
			return o.body, nil
		case o.status != statusBusy:
			return nil, &RemoteError{to.Name, method, string(o.body)}
		case len(o.body) != 8:
			return nil, wrap(errBusy)
		}
		c.roster.setEpoch(to.Name, binary.BigEndian.Uint64(o.body))
		version = min(max(version, protoEpochs), c.cfg.speaks.max) // as the host itself does
	}
	return nil, wrap(errBusy)
}

// staleTries is how often a call is sent whose host says that it is of another epoch.
const staleTries = 3

// ask sends a request and waits for the response.
func (c *caller) ask(ctx context.Context, to *memberlist.Node, version uint8, method string, body []byte) (response, error) {
	timeout := callTimeout
	if t, ok := ctx.Deadline(); ok {
		timeout = time.Until(t)
	}
	id, w := c.calls.open(to.Name)
	defer c.calls.close(id)
	r := request{id, c.roster.epochOf(to.Name), timeout, c.addr, method, body}
	failed := make(chan error, 1)
	ok := c.work.spawn(func(context.Context) {
		if err := c.post.sendReliable(ctx, to, c.post.sealAs(version, kindRequest, r.encode(version))); err != nil {
			failed <- err
		}
	})
	if !ok {
		return response{}, errClosed
	}
	select {
	case <-ctx.Done():
		return response{}, ctx.Err()
	case <-c.work.ctx.Done():
		return response{}, errClosed
	case err := <-failed:
		return response{}, err
	case o := <-w.done:
		return o.response, o.err
	}
}

func (c *caller) heard(from string, b []byte) {
	r, err := decodeResponse(b)
	if err != nil {
		c.stats.add(RefusedGarbage, 1)
		return
	}
	c.calls.answer(from, r) // a late one is no news
}
