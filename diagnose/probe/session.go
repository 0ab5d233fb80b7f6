package probe

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// session notes the probes of one Path that arrive here.
type session struct {
	deaf error // why the tunnel is not listened to; nil: it is
	stop chan struct{}

	mu   sync.Mutex
	seen map[Kind]map[int]bool // sizes
}

// open begins a session, which ends by itself after lifetime.
func (p *Prober) open(id uint64) (*session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.done:
		return nil, errors.New("the agent is about to end")
	default:
	}
	if p.sessions[id] != nil || len(p.sessions) >= maxSessions {
		return nil, errors.New("too many hosts ask for probes at once: ask again in half a minute")
	}
	s := &session{stop: make(chan struct{}), seen: map[Kind]map[int]bool{Gossip: {}, Tunnel: {}}}
	p.sessions[id] = s
	var frames *frames
	frames, s.deaf = listen(p.cfg.Device)
	p.work.Go(func() {
		expired := time.NewTimer(lifetime)
		defer expired.Stop()
		select {
		case <-s.stop:
		case <-expired.C:
			p.end(id)
		case <-p.done:
		}
		frames.close()
	})
	if s.deaf == nil {
		p.work.Go(func() { frames.each(p.take) })
	}
	return s, nil
}

// end ends a session. That there is none is no error.
func (p *Prober) end(id uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.sessions[id]; s != nil {
		close(s.stop)
		delete(p.sessions, id)
	}
}

func (p *Prober) session(id uint64) *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sessions[id]
}

func (s *session) heard() heard {
	s.mu.Lock()
	defer s.mu.Unlock()
	return heard{slices.Sorted(maps.Keys(s.seen[Gossip])), slices.Sorted(maps.Keys(s.seen[Tunnel]))}
}

// Datagram notes a probe to the gossip port. What is none is not taken (false).
func (p *Prober) Datagram(b []byte) bool {
	_, kind, _, ok := decode(b)
	if ok && kind == Gossip {
		p.take(b)
	}
	return ok
}

// take notes a probe, if it is of a session.
func (p *Prober) take(b []byte) {
	id, kind, size, ok := decode(b)
	if !ok {
		return
	}
	if s := p.session(id); s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if sizes := s.seen[kind]; sizes != nil && len(sizes) < 1024 {
			sizes[size] = true
		}
	}
}
