package docker

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"github.com/docker/docker/client"
	"golang.org/x/sys/unix"
)

// stops are the containers that are being stopped: each has got the signal by which its image is stopped, and Docker
// waits for its end. Docker's lists do not say it.
type stops struct {
	mu    sync.Mutex
	has   map[string]bool // by ID
	asked map[string]int  // those that have got a signal, of which it is not known yet whether it is that one: by ID, the number of the question
	last  int             // question
}

// ask begins a question about a container that has got a signal.
func (s *stops) ask(id string) (question int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked == nil {
		s.asked = map[string]int{}
	}
	s.last++
	s.asked[id] = s.last
	return s.last
}

// answer ends a question, and reports whether that changes something: its container may have ended meanwhile.
func (s *stops) answer(id string, question int, stopping bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked[id] != question {
		return false
	}
	delete(s.asked, id)
	if !stopping || s.has[id] {
		return false
	}
	if s.has == nil {
		s.has = map[string]bool{}
	}
	s.has[id] = true
	return true
}

// end is that of a container, or its next begin.
func (s *stops) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.has, id)
	delete(s.asked, id)
}

func (s *stops) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.has, s.asked = nil, nil
}

func (s *stops) of(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.has[id]
}

// isStop asks whether a signal that a container has got is its own to stop: others are for programs that go on, such as SIGHUP.
func (c *Client) isStop(ctx context.Context, id, signal string) (is bool) {
	err := c.do(ctx, "inspect container "+id, func(ctx context.Context, cli *client.Client) error {
		r, err := cli.ContainerInspect(ctx, id)
		is = err == nil && r.Config != nil && signal == strconv.Itoa(signalOf(r.Config.StopSignal))
		return err
	})
	return is && err == nil
}

// signalOf is the number of a signal as images name it, `SIGQUIT`, `quit`, `3` or `SIGRTMIN+3`: SIGTERM if there is none, 0 if it is unknown.
func signalOf(name string) int {
	if name == "" {
		return int(unix.SIGTERM)
	}
	if n, err := strconv.Atoi(name); err == nil {
		return n
	}
	name = strings.TrimPrefix(strings.ToUpper(name), "SIG")
	if more, is := strings.CutPrefix(name, "RTMIN"); is {
		const first = 34 // as glibc has it, and Docker
		n, err := strconv.Atoi("0" + strings.TrimPrefix(more, "+"))
		if err != nil {
			return 0
		}
		return first + n
	}
	return int(unix.SignalNum("SIG" + name))
}
