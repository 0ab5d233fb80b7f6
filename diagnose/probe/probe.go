package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Methods of the calls between agents.
const (
	methodOpen  = "probe.open"
	methodHeard = "probe.heard"
	methodSend  = "probe.send"
	methodClose = "probe.close"
)

const (
	maxSessions = 64               // of other hosts with this one, at a time
	lifetime    = 30 * time.Second // of one whose host does not end it
	copies      = 3                // of each probe: a lost one is no verdict
	// patience is for the first probes, which may meet a switch that has no flow for
	// them yet; when some have arrived, the others are not far behind.
	patience      = 1500 * time.Millisecond
	patienceLater = 500 * time.Millisecond
	pollEvery     = 30 * time.Millisecond
)

// Peers carries calls: gossip.Gossip.
type Peers interface {
	Call(ctx context.Context, node, method string, body []byte) ([]byte, error)
}

// Host is what probes to a host need to know of it.
type Host struct {
	VTEP    netip.Addr     // where the tunnel ends
	Address netip.Addr     // in the underlay
	Gossip  netip.AddrPort // where its agent listens
}

// Config is what a Prober needs.
type Config struct {
	Peers Peers
	// Self is this host's node ID; Find knows the hosts by theirs.
	Self string
	Find func(node string) (Host, bool)
	// Device is the gateway port.
	Device string
}

// Prober is a host's part in probes, of its own and of others. Its methods may be
// called concurrently. Close ends it.
type Prober struct {
	cfg  Config
	work sync.WaitGroup
	done chan struct{}

	mu       sync.Mutex
	sessions map[uint64]*session
}

// New returns a Prober. Its methods (Methods) and Datagram are to be given to gossip.
func New(cfg Config) *Prober {
	return &Prober{cfg: cfg, done: make(chan struct{}), sessions: map[uint64]*session{}}
}

// Close ends all sessions and waits for their goroutines.
func (p *Prober) Close() {
	if p == nil {
		return
	}
	p.mu.Lock()
	select {
	case <-p.done:
	default:
		close(p.done)
	}
	p.mu.Unlock()
	p.work.Wait()
}

// Way is the largest size that passed in each direction, bytes; 0: nothing did.
type Way struct{ Out, In int }

// Report is what was found out about the path to a host and back.
type Report struct {
	// Answer is how long a call took.
	Answer time.Duration
	// Skew is by how much the other clock is ahead of ours, true to half of Answer.
	Skew           time.Duration
	Gossip, Tunnel Way
	// TunnelErr says why the tunnel could not be tried at all.
	TunnelErr error
}

// Limits are the sizes up to which to try, each the MTU of who sends: bytes.
type Limits struct{ Gossip, Tunnel Way }

// Path tries the path to a host and back, which takes a few milliseconds if all is
// well, and some seconds where packets are lost. Its error says why the host could not
// be asked.
func (p *Prober) Path(ctx context.Context, node string, limits Limits) (r Report, err error) {
	id := rand.Uint64()
	begin := time.Now()
	their, err := call[opened](ctx, p, node, methodOpen, request{Session: id})
	if err != nil {
		return r, err
	}
	r.Answer = time.Since(begin)
	r.Skew = their.Now.Sub(begin.Add(r.Answer / 2))
	defer func() {
		_, _ = call[struct{}](context.WithoutCancel(ctx), p, node, methodClose, request{Session: id})
	}()
	ours, err := p.open(id, node)
	if err != nil {
		return r, err
	}
	defer p.end(id)

	tasks, ctx := errgroup.WithContext(ctx)
	out := func(kind Kind, limit int, found *int) {
		tasks.Go(func() (err error) {
			patience := newPatience()
			*found, err = search(limit, func(sizes []int) ([]int, error) {
				if err := p.send(node, id, kind, sizes); err != nil {
					return nil, err
				}
				return await(ctx, patience(), sizes, func() ([]int, error) {
					h, err := call[heard](ctx, p, node, methodHeard, request{Session: id})
					return h.of(kind), err
				})
			})
			return err
		})
	}
	in := func(kind Kind, limit int, found *int) {
		tasks.Go(func() (err error) {
			patience := newPatience()
			*found, err = search(limit, func(sizes []int) ([]int, error) {
				if _, err := call[struct{}](ctx, p, node, methodSend, request{id, kind, sizes}); err != nil {
					return nil, err
				}
				return await(ctx, patience(), sizes, func() ([]int, error) { return ours.heard().of(kind), nil })
			})
			return err
		})
	}
	out(Gossip, limits.Gossip.Out, &r.Gossip.Out)
	in(Gossip, limits.Gossip.In, &r.Gossip.In)
	if r.TunnelErr = errors.Join(ours.deaf, their.deaf()); r.TunnelErr == nil {
		out(Tunnel, limits.Tunnel.Out, &r.Tunnel.Out)
		in(Tunnel, limits.Tunnel.In, &r.Tunnel.In)
	}
	return r, tasks.Wait()
}

// newPatience tells how long to wait, the first time and later.
func newPatience() func() time.Duration {
	next := patience
	return func() (d time.Duration) {
		d, next = next, patienceLater
		return d
	}
}

// await returns which of the sizes arrived, as soon as all have or patience ends.
func await(ctx context.Context, patience time.Duration, sizes []int, ask func() ([]int, error)) ([]int, error) {
	for end := time.Now().Add(patience); ; {
		all, err := ask()
		if err != nil {
			return nil, err
		}
		arrived := slices.DeleteFunc(slices.Clone(sizes), func(s int) bool { return !slices.Contains(all, s) })
		if len(arrived) == len(sizes) || time.Now().After(end) {
			return arrived, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pollEvery):
		}
	}
}

// request is the body of all calls.
type request struct {
	Session uint64 `json:"session"`
	Kind    Kind   `json:"kind,omitempty"`
	Sizes   []int  `json:"sizes,omitempty"`
}

// opened answers methodOpen.
type opened struct {
	Now  time.Time `json:"now"`
	Deaf string    `json:"deaf,omitempty"` // why the tunnel cannot be listened to
	// Echoes are answered: not by older agents.
	Echoes bool `json:"echoes,omitempty"`
}

func (o opened) deaf() error {
	if o.Deaf == "" {
		return nil
	}
	return errors.New("there: " + o.Deaf)
}

// heard answers methodHeard: the sizes that arrived.
type heard struct {
	Gossip []int `json:"gossip"`
	Tunnel []int `json:"tunnel"`
}

func (h heard) of(k Kind) []int {
	if k == Gossip {
		return h.Gossip
	}
	return h.Tunnel
}

func call[T any](ctx context.Context, p *Prober, node, method string, r request) (answer T, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return answer, err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	body, err = p.cfg.Peers.Call(ctx, node, method, body)
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	return answer, err
}

// Methods are the handlers of calls from other hosts.
func (p *Prober) Methods() map[string]func(ctx context.Context, from string, body []byte) ([]byte, error) {
	return map[string]func(context.Context, string, []byte) ([]byte, error){
		methodOpen: handle(func(from string, r request) (any, error) {
			s, err := p.open(r.Session, from)
			if err != nil {
				return nil, err
			}
			o := opened{Now: time.Now(), Echoes: true}
			if s.deaf != nil {
				o.Deaf = s.deaf.Error()
			}
			return o, nil
		}),
		methodHeard: handle(func(_ string, r request) (any, error) {
			s := p.session(r.Session)
			if s == nil {
				return nil, errors.New("no such session: it has ended")
			}
			return s.heard(), nil
		}),
		// A host is sent probes at its own addresses only.
		methodSend: handle(func(from string, r request) (any, error) {
			if len(r.Sizes) > perRound {
				return nil, fmt.Errorf("%d sizes at once: at most %d", len(r.Sizes), perRound)
			}
			if r.Kind != Gossip && r.Kind != Tunnel {
				return nil, fmt.Errorf("probes of kind %d are unknown", r.Kind)
			}
			return struct{}{}, p.send(from, r.Session, r.Kind, r.Sizes)
		}),
		methodClose: handle(func(_ string, r request) (any, error) {
			p.end(r.Session)
			return struct{}{}, nil
		}),
	}
}

func handle(f func(from string, r request) (any, error)) func(context.Context, string, []byte) ([]byte, error) {
	return func(_ context.Context, from string, body []byte) ([]byte, error) {
		var r request
		if err := json.Unmarshal(body, &r); err != nil {
			return nil, fmt.Errorf("request for probes: %w", err)
		}
		answer, err := f(from, r)
		if err != nil {
			return nil, err
		}
		return json.Marshal(answer)
	}
}
