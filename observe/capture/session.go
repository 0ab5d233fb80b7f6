package capture

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/host/packets"
	"github.com/grapevine-net/grapevine/observe/frames"
	"github.com/grapevine-net/grapevine/observe/pcapng"
)

const (
	// room is what a session keeps of packets that nobody has taken yet, bytes.
	room = 8 << 20
	// idle is how long a session of another host waits for it to ask.
	idle = 10 * time.Second
)

// Tap is where packets come from; *packets.Tap is one.
type Tap interface {
	Read() (packets.Packet, error)
	Counts() (seen, lost uint64)
	Close() error
}

// bounds end a session; 0: none of them does.
type bounds struct {
	packets, bytes uint64
	time           time.Duration
}

// session is one capture on this host. What it has captured stands in kept until it is taken.
type session struct {
	bounds
	cut   bool // payload is left out
	taps  []Tap
	began time.Time
	stop  chan struct{} // closed by end
	once  sync.Once
	// release lets go of the session's place; released is closed then.
	release  func()
	released chan struct{}

	mu      sync.Mutex
	more    chan struct{} // has room for one word that there is more
	kept    []byte
	before  uint64 // bytes that were taken
	written uint64 // bytes of packets
	took    time.Time
	closed  bool // nothing more is kept
	done    bool // all that there will be is in kept
	api.CaptureEnd
}

// begin captures from taps on, with head in front. It ends by its bounds, by end or with ctx.
func begin(ctx context.Context, b bounds, cut bool, taps []Tap, head []byte) *session {
	s := &session{bounds: b, cut: cut, taps: taps, began: time.Now(), stop: make(chan struct{}), released: make(chan struct{}), more: make(chan struct{}, 1), kept: head, took: time.Now()}
	if cut {
		s.Cut = "only the headers of packets, as GRAPEVINE_CAPTURE there says"
	}
	go s.run(ctx)
	return s
}

func (s *session) run(ctx context.Context) {
	if s.time > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.time)
		defer cancel()
	}
	var readers sync.WaitGroup
	for i, t := range s.taps {
		readers.Go(func() { s.end(s.read(uint32(i), t)) })
	}
	select {
	case <-s.stop:
	case <-ctx.Done():
		why := "the agent stops"
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			why = "the time is over"
		}
		s.end(why)
	}
	finish := time.Now()
	counts := make([][2]uint64, len(s.taps))
	for i, t := range s.taps {
		counts[i][0], counts[i][1] = t.Counts()
		_ = t.Close()
	}
	readers.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	ours := s.Lost // of all taps: counted at the first
	for i, c := range counts {
		s.Lost += c[1]
		s.kept = pcapng.Statistics{Interface: uint32(i), Start: s.began, Finish: finish, Received: c[0], Dropped: c[1], DroppedByUs: ours}.Append(s.kept)
		ours = 0
	}
	s.done = true
	s.word()
}

// end ends the session, if it has not ended.
func (s *session) end(why string) {
	s.once.Do(func() {
		s.mu.Lock()
		s.Why, s.closed = why, true
		s.mu.Unlock()
		close(s.stop)
	})
}

// read keeps the packets of a tap, and says why it ended.
func (s *session) read(n uint32, t Tap) (why string) {
	for {
		p, err := t.Read()
		switch {
		case errors.Is(err, packets.ErrGone):
			return "the container has ended, or left the network"
		case err != nil:
			return err.Error() // after a Close nobody reads it
		}
		if why := s.keep(n, p); why != "" {
			return why
		}
	}
}

// keep keeps a packet, or counts it as lost, and says which bound is reached.
func (s *session) keep(n uint32, p packets.Packet) (why string) {
	if s.cut {
		p.Data = p.Data[:frames.Read(p.Data).Headers]
	}
	block := pcapng.Packet{Interface: n, At: p.At, Data: p.Data, Length: p.Length, Out: p.Out}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return "ended"
	case len(s.kept)+block.Size() > room:
		s.Lost++
		return ""
	case s.bytes > 0 && s.written+uint64(len(p.Data)) > s.bytes:
		s.closed = true
		return "so many bytes were captured"
	}
	s.kept = block.Append(s.kept)
	s.Packets++
	s.written += uint64(len(p.Data))
	s.word()
	if s.packets > 0 && s.Packets == s.packets {
		s.closed = true
		return "so many packets were captured"
	}
	return ""
}

// word says that there is more; the caller has s.mu.
func (s *session) word() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// take waits until ctx ends for what there is from a byte on, at most so much. What stands before that byte was
// taken, and is kept no longer. done says that nothing comes after it.
func (s *session) take(ctx context.Context, from uint64, most int) (b []byte, done bool, end api.CaptureEnd) {
	for {
		s.mu.Lock()
		s.took = time.Now()
		if from >= s.before && from-s.before <= uint64(len(s.kept)) {
			s.kept = s.kept[from-s.before:]
			s.before = from
		}
		n := min(len(s.kept), most)
		b, done, end = append(b, s.kept[:n]...), s.done && n == len(s.kept), s.CaptureEnd
		s.mu.Unlock()
		if len(b) > 0 || done || most == 0 {
			return b, done, end
		}
		select {
		case <-s.more:
		case <-ctx.Done():
			return nil, false, end
		}
	}
}

// watch ends a session that nobody has taken from for too long. It returns then, or when all is over.
func (s *session) watch(patience time.Duration, over <-chan struct{}) {
	tick := time.NewTicker(patience / 10)
	defer tick.Stop()
	for {
		select {
		case <-s.released:
			return
		case <-over:
			return
		case <-tick.C:
		}
		s.mu.Lock()
		late := time.Since(s.took) > patience
		s.mu.Unlock()
		if late {
			s.end("nobody has read the packets for " + patience.String())
			return
		}
	}
}
