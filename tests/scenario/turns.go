package scenario

import (
	"context"
	"flag"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// turns are the places where scripts run: as many at the same time as `go test -parallel` says, and one more
// for each that idles. Two run always, and one while the machine is crowded: on a slow one, scripts beside each other
// would take each other's time, until what waits for the other waits in vain. Another one begins where the processors
// have time for it, whoever else runs on them: scripts wait for much of theirs, and how many fill a machine depends on
// which they are, and on it. That they have time is seen in seconds, a crowd is remembered for a minute.
type turns struct {
	mu        sync.Mutex
	all, free int // free is negative while those that idled are back and nobody has ended yet
	crowded   func() bool
	spare     func() bool   // asked when all but that is as it is to be
	left      chan struct{} // capacity 1: somebody has left
}

// always is how many scripts run though the processors are busy, without a crowd.
const always = 2

func newTurns() *turns {
	all := 1
	if f := flag.Lookup("test.parallel"); f != nil {
		if n, ok := f.Value.(flag.Getter).Get().(int); ok {
			all = n
		}
	}
	const tooMany = 1.5 // crowds: the processors are busy with fewer, and what has just ended still counts for a minute
	return &turns{all: all, free: all, crowded: func() bool { return lab.Crowd() > tooMany }, spare: newSpare().enough, left: make(chan struct{}, 1)}
}

// wait takes a place when one is free.
func (p *turns) wait() {
	for !p.take() {
		select {
		case <-p.left:
		case <-time.After(500 * time.Millisecond): // as to the crowd and the processors
		}
	}
}

func (p *turns) take() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	running := p.all - p.free
	if p.free <= 0 || running > 0 && (running >= always || p.crowded()) && !p.spare() {
		return false
	}
	p.free--
	return true
}

// resume takes a place back at once: what a script does next may depend on when it does.
func (p *turns) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free--
}

func (p *turns) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free++
	select {
	case p.left <- struct{}{}:
	default:
	}
}

// idle COMMAND...: this waits long and does little meanwhile (Docker's own patience with a driver that is
// gone, say), so that another script begins.
func idle(ctx context.Context, s *state, args []string) (string, error) {
	c, rest, err := parse(args)
	if err != nil {
		return "", err
	}
	s.places.leave()
	defer s.places.resume()
	return c(ctx, s, rest)
}

// suite is the test whose subtests are the scripts: in their order, each when there is a place.
type suite struct {
	script
	late    map[string]time.Time // which are skipped when it is that late
	running sync.WaitGroup
}

// Run begins a script, and returns.
func (s *suite) Run(name string, f func(testscript.T)) {
	s.places.wait()
	if s.tooLate(name, time.Now()) {
		s.places.leave()
		s.T.Run(name, func(t *testing.T) {
			t.Skip("left out, since this machine is slow and the run would take too long: make test-lab")
		})
		return
	}
	s.running.Go(func() {
		defer s.places.leave()
		s.T.Run(name, func(t *testing.T) { f(&script{t, s.places}) })
	})
}

// tooLate reports whether a script whose turn it is now is to be skipped.
func (s *suite) tooLate(name string, now time.Time) bool {
	end, is := s.late[name]
	return is && now.After(end)
}

// script is the test that one script is.
type script struct {
	*testing.T
	places *turns
}

// Run implements testscript.T.
func (s *script) Run(name string, f func(testscript.T)) {
	s.T.Run(name, func(t *testing.T) { f(&script{t, s.places}) })
}

// Parallel does nothing: it is turns that says what runs at the same time. Package testing knows no order
// and no one that waits.
func (s *script) Parallel() {}

// Verbose implements testscript.T.
func (s *script) Verbose() bool { return testing.Verbose() }

// long are scripts that take half a minute and more beside others, longest first.
var long = []string{
	"isolation", "policy", "quick-start", "switch-wiped", "paths-cut", "ipv6", "encrypted-network", "fastpath", "egress", "isolation-firewalls",
	"examples", "expose", "published-survive", "doctor", "published-isolated", "network-command", "mtu", "hundred-containers", "compose", "limits",
	"boot", "names-isolated", "ufw-firewalld", "global-network", "compose-examples", "bgp", "short-lived", "forget", "encrypted", "moby-networks",
	"client", "leaked", "life",
}

// longFirst puts scripts that idle before the others, and then those that take long: what takes longest is not to begin
// last, when nothing is left to run beside it.
func longFirst(files []string, read func(string) ([]byte, error)) []string {
	after := func(file string) int {
		if text, err := read(file); err == nil && strings.Contains(string(text), "\nidle ") {
			return -1
		}
		if i := slices.Index(long, strings.TrimSuffix(filepath.Base(file), ".txtar")); i >= 0 {
			return i
		}
		return len(long)
	}
	files = slices.Clone(files)
	slices.SortStableFunc(files, func(a, b string) int { return after(a) - after(b) })
	return files
}
