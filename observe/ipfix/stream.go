package ipfix

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

const (
	// batch is how many flows are written together, and stuck how long a collector may take for them.
	batch = 8
	stuck = 10 * time.Second
)

// stream sends what waits by TCP, until ctx ends. What there is to tell waits for a collector that is away, as long as
// there is room; what was on its way when a connection broke is gone, and not told twice.
func (e *Exporter) stream(ctx context.Context, collector string) error {
	var s *session
	defer func() { s.close() }()
	var failed time.Time
	said := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.wake:
		}
		if s.broken() {
			s.close()
			s = nil
		}
		if s == nil && time.Since(failed) >= e.anew {
			var err error
			if s, err = open(ctx, collector, e.cfg.Domain); err != nil {
				failed = time.Now()
				if err.Error() != said && ctx.Err() == nil {
					said = err.Error()
					e.cfg.Log.Warn("the collector of IPFIX cannot be connected to: what there is to tell waits", "collector", collector, "err", err)
				}
			} else {
				said = ""
			}
		}
		if s == nil {
			continue
		}
		flows, lost := e.take()
		if lost > 0 {
			e.cfg.Log.Warn("flows were not told to the collector: there were too many at once, or it was away for long", "flows", lost)
		}
		if left, err := s.send(flows); err != nil {
			e.cfg.Log.Warn("the connection to the collector of IPFIX broke", "collector", collector, "err", err)
			s.close()
			s = nil
			e.putBack(left)
		}
	}
}

// putBack has flows wait again, before those that came since.
func (e *Exporter) putBack(flows []Flow) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiting = append(slices.Clone(flows), e.waiting...)
	if n := len(e.waiting) - most; n > 0 {
		e.waiting, e.lost = e.waiting[n:], e.lost+n
	}
}

// session is one connection: templates and sequence numbers are its own (RFC 7011, 3.1 and 10.4).
type session struct {
	conn    net.Conn
	encoder Encoder
	ended   chan struct{} // closed when the collector has hung up
}

func open(ctx context.Context, collector string, domain uint32) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, stuck)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", collector)
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn, encoder: Encoder{Domain: domain, Once: true}, ended: make(chan struct{})}
	go func() { // a collector says nothing; close ends this
		defer close(s.ended)
		_, _ = io.Copy(io.Discard, conn)
	}()
	return s, nil
}

// broken says whether the collector has hung up. What is written then seems to be sent.
func (s *session) broken() bool {
	if s == nil {
		return false
	}
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

func (s *session) close() {
	if s != nil {
		_ = s.conn.Close()
		<-s.ended
	}
}

// send writes flows, and says which were not begun when it failed.
func (s *session) send(flows []Flow) (left []Flow, err error) {
	for len(flows) > 0 {
		some := flows[:min(batch, len(flows))]
		flows = flows[len(some):]
		err := s.conn.SetWriteDeadline(time.Now().Add(stuck))
		if err == nil {
			_, err = s.conn.Write(bytes.Join(s.encoder.Messages(some, time.Now()), nil))
		}
		if err != nil {
			return flows, fmt.Errorf("write %d flows: %w", len(some), err)
		}
	}
	return nil, nil
}
