// Package plugin speaks Docker's plugin protocol: POSTs of JSON over a unix
// socket, one path for each method (moby: pkg/plugins, libnetwork/docs/remote.md
// and ipam.md). It knows bytes and errors, and nothing of what the calls do.
//
// One Server answers for both of grapevine's drivers, as a managed plugin has a
// single socket.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/docker/go-plugins-helpers/sdk"
)

// MaxBody is the size in bytes of the largest request body that is accepted: of a container with
// all ports of all protocols published Docker sends 40 MB, those of EXPOSE beside those of -p. Only
// root can connect to the socket.
const MaxBody = 64 << 20

// shown is how much of a request is in the log.
const shown = 4 << 10

// stopGrace is how long Serve waits for running requests when it stops.
const stopGrace = time.Second

// lateAfter is how long a call may take before the log names it: nothing is to take so
// long, and `docker` waits meanwhile.
const lateAfter = 10 * time.Second

// patience is how long a call may take. Docker would wait for ever, and meanwhile lets nobody
// else change the network; what was to be done is tried again by the agent.
const patience = time.Minute

// manifest is the answer to Plugin.Activate: what the plugin implements.
const manifest = `{"Implements": ["NetworkDriver", "IpamDriver"]}`

// Driver is one of the two drivers of a plugin. Its value is the prefix of the
// driver's methods.
type Driver string

// The drivers, by the names in the manifest.
const (
	Network Driver = "NetworkDriver"
	IPAM    Driver = "IpamDriver"
)

// errorKey is the field of a reply in which Docker looks for an error: it is
// "Err" for network drivers and "Error" for IPAM drivers.
func (d Driver) errorKey() string {
	if d == IPAM {
		return "Error"
	}
	return "Err"
}

// Server serves the plugin protocol. Register all methods with Handle and
// HandleNoBody before Serve.
type Server struct {
	mux      sdk.Handler
	log      *slog.Logger
	late     time.Duration
	patience time.Duration
	lost     func(method string)

	stop    context.Context // ended when Serve stops: cancels running requests
	cancel  context.CancelFunc
	running sync.RWMutex // read-held by each request
	stopped bool         // Serve is over; running covers it
}

// New returns a Server that answers Plugin.Activate and, until methods are
// registered, 404 to everything else, which Docker takes as "not implemented".
func New(log *slog.Logger) *Server {
	s := &Server{mux: sdk.NewHandler(manifest), log: log, late: lateAfter, patience: patience, lost: func(string) {}}
	s.stop, s.cancel = context.WithCancel(context.Background())
	return s
}

// OnLost has f called with each method ("NetworkDriver.DeleteEndpoint") of a request that is
// refused since its body is empty. It must be set before Serve.
func (s *Server) OnLost(f func(method string)) { s.lost = f }

// Serve answers requests on l until ctx ends, then closes l, gives the running
// ones a second to finish, cancels the contexts of the rest and returns nil. It
// blocks; it returns an error only if l fails by itself.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	defer s.cancel()
	served := make(chan error, 1)
	conns := track(l)
	defer conns.closeAll()
	go func() { served <- s.mux.Serve(conns) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve plugin socket %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		s.log.Warn("close plugin socket", "addr", l.Addr().String(), "err", err)
	}
	<-served //nolint:errcheck // that it was closed
	idle := make(chan struct{})
	go func() {
		s.running.Lock() // when no request is left
		s.stopped = true
		s.running.Unlock()
		close(idle)
	}()
	select {
	case <-idle:
	case <-time.After(stopGrace):
		s.cancel()
		<-idle
	}
	return nil
}
