package probe

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// session notes the probes of one Path that arrive here.
type session struct {
	peer string // the other host
	deaf error  // why the tunnel is not listened to; nil: it is
	stop chan struct{}
	back chan back // answers to echoes of ours
	// frames are those of the tunnel. Echoes leave by them: to make a socket takes longer than the way.
	frames *frames

	mu   sync.Mutex
	seen map[Kind]map[int]bool // sizes
	said int                   // answers to echoes of the other host
}

// back is an answer to an echo.
type back struct {
	way  Kind
	size int
	at   time.Time
}

// maxEchoes bounds what a session answers: its host wants one of a size.
const maxEchoes = 64

// open begins a session, which ends by itself after lifetime.
func (p *Prober) open(id uint64, peer string) (*session, error) {
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
	s := &session{peer: peer, stop: make(chan struct{}), back: make(chan back, 16), seen: map[Kind]map[int]bool{Gossip: {}, Tunnel: {}}}
	p.sessions[id] = s
	s.frames, s.deaf = listen(p.cfg.Device)
	frames := s.frames
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
	if ok && kind.way() == Gossip {
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
	s := p.session(id)
	if s == nil {
		return
	}
	if kind == gossipBack || kind == tunnelBack {
		select {
		case s.back <- back{kind.way(), size, time.Now()}:
		default: // nobody waits for so many
		}
		return
	}
	if s.note(kind, size) {
		_ = p.echo(s, id, kind+1, size) // as if lost
	}
}

// echo sends an echo, or the answer to one.
func (p *Prober) echo(s *session, id uint64, kind Kind, size int) error {
	if kind.way() == Gossip {
		return p.sendSome(s.peer, id, kind, []int{size}, 1)
	}
	if s.deaf != nil {
		return s.deaf
	}
	to, found := p.cfg.Find(s.peer)
	if !found || size < smallest || size > largest {
		return fmt.Errorf("send an echo of %d bytes to host %s: that is no size, or its address is not known", size, s.peer)
	}
	return s.frames.send(pipeline.ProbeMAC(to.VTEP.Unmap().WithZone("")), encode(id, kind, size, size))
}

// note keeps in mind what has arrived, and reports whether it is an echo that is to be answered.
func (s *session) note(kind Kind, size int) (echo bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sizes := s.seen[kind.way()]; sizes != nil && len(sizes) < 1024 {
		sizes[size] = true
	}
	if kind != gossipEcho && kind != tunnelEcho || s.said >= maxEchoes {
		return false
	}
	s.said++
	return true
}
