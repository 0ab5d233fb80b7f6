package probe

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

// echoPatience is how long an answer to an echo may take.
const echoPatience = time.Second

// ErrOld is the error of a host whose agent answers no echoes.
var ErrOld = errors.New("its agent is older, and answers no echoes")

// Echo is one packet there and back.
type Echo struct {
	Size int
	Took time.Duration // 0: it did not come back
	// Arrived: it did not come back, though it came to the other host.
	Arrived bool
	// Err says why it could not be sent.
	Err error
}

// Pong is what came back of a Ping.
type Pong struct {
	Answer   time.Duration // of a call, which goes by TCP
	Underlay Echo          // UDP, between the agents
	Tunnel   Echo          // a small frame through both switches
	Full     Echo          // the largest that containers send
}

// Ping sends a host an echo by each way, and waits at most a second for what comes back. full is the size of
// the largest frame. Its error says why the host could not be asked.
func (p *Prober) Ping(ctx context.Context, node string, full int) (pong Pong, err error) {
	id := rand.Uint64()
	begin := time.Now()
	their, err := call[opened](ctx, p, node, methodOpen, request{Session: id})
	if err != nil {
		return pong, err
	}
	pong.Answer = time.Since(begin)
	defer func() {
		_, _ = call[struct{}](context.WithoutCancel(ctx), p, node, methodClose, request{Session: id})
	}()
	if !their.Echoes {
		return pong, ErrOld
	}
	ours, err := p.open(id, node)
	if err != nil {
		return pong, err
	}
	defer p.end(id)

	type flight struct {
		*Echo
		kind Kind
		at   time.Time
	}
	var flying []*flight
	for _, f := range []*flight{{&pong.Underlay, gossipEcho, time.Time{}}, {&pong.Tunnel, tunnelEcho, time.Time{}}, {&pong.Full, tunnelEcho, time.Time{}}} {
		f.Size = smallest
		if f.Echo == &pong.Full {
			f.Size = full
		}
		if f.kind == tunnelEcho {
			f.Err = errors.Join(ours.deaf, their.deaf())
		}
		if f.Err == nil {
			f.at = time.Now()
			f.Err = p.echo(ours, id, f.kind, f.Size)
		}
		if f.Err == nil {
			flying = append(flying, f)
		}
	}
	over := time.NewTimer(echoPatience)
	defer over.Stop()
	for len(flying) > 0 {
		select {
		case <-ctx.Done():
			return pong, ctx.Err()
		case b := <-ours.back:
			flying = slices.DeleteFunc(flying, func(f *flight) bool {
				if f.kind.way() != b.way || f.Size != b.size {
					return false
				}
				f.Took = max(b.at.Sub(f.at), 1)
				return true
			})
			continue
		case <-over.C:
		}
		h, err := call[heard](ctx, p, node, methodHeard, request{Session: id})
		for _, f := range flying {
			f.Arrived = err == nil && slices.Contains(h.of(f.kind.way()), f.Size)
		}
		return pong, nil
	}
	return pong, nil
}
