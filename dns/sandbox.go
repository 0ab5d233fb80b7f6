package dns

import (
	"context"
	"slices"

	"github.com/grapevine-net/grapevine/host/netns"
)

// attachment is the resolver inside one sandbox.
type attachment struct {
	endpoints []string
	stop      context.CancelFunc // nil: not running
	ended     chan struct{}      // closed when it has left the sandbox
	state     presence
	tried     chan struct{} // closed once the state is another one than onTheWay
}

// presence says how far an attachment has come.
type presence int

const (
	onTheWay presence = iota // waits for the namespace
	inside
	shutOut // the last try failed
)

// now notes how far an attachment has come, and returns how far it was.
func (s *Server) now(a *attachment, state presence) (before presence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, a.state = a.state, state; before == onTheWay {
		close(a.tried)
	}
	return before
}

// Attach has the resolver answer inside a container's network namespace, at key (a
// file; libnetwork's sandbox key), in front of Docker's own resolver. What it does
// not know, Docker's resolver is asked, in the container's name. Then names are
// answered on internal networks, whatever the default gateway is, and whichever
// namespace the engine asks other servers from.
//
// Attach does not block, and waits in the background for a namespace that is not yet
// there. It may be called again, and before Run. Nothing of it outlives the
// process, not even a kill: the kernel takes the rule away with the socket
// that made it, and Docker's resolver is as it was.
func (s *Server) Attach(endpoint, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.sandboxes[key]
	if a == nil {
		a = &attachment{tried: make(chan struct{})}
		s.sandboxes[key] = a
	}
	if !slices.Contains(a.endpoints, endpoint) {
		a.endpoints = append(slices.Clone(a.endpoints), endpoint)
	}
	s.start(key, a)
}

// Await waits until the resolver answers in a namespace to which it was attached, or could not at its first try; for as long as ctx; also before
// Run, which begins that. It does not wait for a namespace that is not there yet.
func (s *Server) Await(ctx context.Context, key string) {
	ns, err := netns.Open(key)
	if ns == nil || err != nil {
		return
	}
	_ = ns.Close()
	s.mu.Lock()
	a := s.sandboxes[key]
	s.mu.Unlock()
	if a == nil {
		return
	}
	select {
	case <-a.tried:
	case <-ctx.Done():
	}
}

// Detach ends what Attach began for the endpoint; with a sandbox's last endpoint
// the resolver leaves it. Detaching what is not attached is no error.
func (s *Server) Detach(endpoint string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, a := range s.sandboxes {
		a.endpoints = slices.DeleteFunc(slices.Clone(a.endpoints), func(e string) bool { return e == endpoint })
		if len(a.endpoints) > 0 {
			continue
		}
		delete(s.sandboxes, key)
		if a.stop != nil {
			a.stop()
			s.leaving[key] = a.ended
		}
	}
}

// runSandboxes lets attachments run until ctx is done, then waits for their end.
func (s *Server) runSandboxes(ctx context.Context) {
	s.mu.Lock()
	s.run = ctx
	for key, a := range s.sandboxes {
		s.start(key, a)
	}
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	s.run = nil
	s.mu.Unlock()
	s.wait.Wait()
}

// goesOn reports whether Run has not been told to end.
func (s *Server) goesOn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run != nil && s.run.Err() == nil
}

// start runs an attachment if it is not running yet, after the one before it in the
// same sandbox: two cannot have a table of one name. The caller has s.mu.
func (s *Server) start(key string, a *attachment) {
	if s.run == nil || a.stop != nil {
		return
	}
	before := s.leaving[key]
	var ctx context.Context
	ctx, a.stop = context.WithCancel(s.run)
	a.ended = make(chan struct{})
	s.wait.Go(func() {
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			a.stop() // it may be the server that ends
			if s.leaving[key] == a.ended {
				delete(s.leaving, key)
			}
			close(a.ended)
		}()
		if before != nil {
			<-before
		}
		s.stayIn(ctx, key, a)
	})
}
