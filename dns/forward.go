package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/semaphore"
)

// Limits of forwarding. Docker's resolver waits 4 s for a server, and most programs
// 5 s: a refusal has to come before.
const (
	budget      = 3800 * time.Millisecond // for all servers together
	resendAfter = 1300 * time.Millisecond // of a datagram, to the same server
	maxServers  = 3                       // of those in resolv.conf, as in resolver(3)
	maxForwards = 1024                    // questions under way, of this host
	maxPerAsker = 128                     // and of one container

	maxUDPPacket = 65535
)

var errOverload = errors.New("too many questions are under way")

// route is where a question goes that is not ours, and from where.
type route struct {
	servers []netip.AddrPort
	// dial connects to a server, from the namespace that the question is to be asked from.
	dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// budget is the time for all servers; resend, after which a datagram is repeated,
	// 0: never.
	budget, resend time.Duration
	denied         error // not nil: nobody is to be asked
	// from is the sandbox whose question it is: others may be told something else, or nothing.
	from string
}

// forwarder asks others. Equal questions that are under way at one time to one
// server are asked once.
type forwarder struct {
	all *semaphore.Weighted

	mu      sync.Mutex
	asking  map[string]*flight
	byAsker map[string]int
}

type flight struct {
	done chan struct{}
	wire []byte // ID of whoever asked first
	err  error
}

func newForwarder() *forwarder {
	return &forwarder{all: semaphore.NewWeighted(maxForwards), asking: map[string]*flight{}, byAsker: map[string]int{}}
}

// ask returns the response to a query as it came, with the query's own ID. It asks
// the servers in turn until one answers anything but SERVFAIL or REFUSED; if none
// does it returns such an answer if there was one. It takes at most the route's budget.
func (f *forwarder) ask(ctx context.Context, r route, network, asker string, query []byte) ([]byte, error) {
	if !f.enter(asker) {
		return nil, errOverload
	}
	defer f.leave(asker)
	return f.entered(ctx, r, network, query)
}

// entered is ask of an asker who has entered.
func (f *forwarder) entered(ctx context.Context, r route, network string, query []byte) ([]byte, error) {
	wire, err := f.once(flightKey(r, network, query), func() ([]byte, error) { return f.try(ctx, r, network, query) })
	if err != nil {
		return nil, err
	}
	wire = append([]byte(nil), wire...)
	copy(wire, query[:2])
	return wire, nil
}

// flightKey is all that an answer depends on. Questions asked from inside
// sandboxes are of different worlds, even if the server has the same address.
func flightKey(r route, network string, query []byte) string {
	var k strings.Builder
	k.WriteString(network)
	k.WriteString(r.from)
	for _, s := range r.servers {
		k.WriteString(s.String())
		k.WriteByte(' ')
	}
	k.Write(query[2:])
	return k.String()
}

func (f *forwarder) enter(asker string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byAsker[asker] >= maxPerAsker || !f.all.TryAcquire(1) {
		return false
	}
	f.byAsker[asker]++
	return true
}

func (f *forwarder) leave(asker string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all.Release(1)
	if f.byAsker[asker]--; f.byAsker[asker] == 0 {
		delete(f.byAsker, asker)
	}
}

func (f *forwarder) once(key string, do func() ([]byte, error)) ([]byte, error) {
	f.mu.Lock()
	if fl := f.asking[key]; fl != nil {
		f.mu.Unlock()
		<-fl.done
		return fl.wire, fl.err
	}
	fl := &flight{done: make(chan struct{})}
	f.asking[key] = fl
	f.mu.Unlock()
	fl.wire, fl.err = do()
	f.mu.Lock()
	delete(f.asking, key)
	f.mu.Unlock()
	close(fl.done)
	return fl.wire, fl.err
}

func (f *forwarder) try(ctx context.Context, r route, network string, query []byte) (wire []byte, err error) {
	if len(r.servers) == 0 {
		return nil, errors.New("there is no server to ask: the host's resolv.conf names none")
	}
	servers := r.servers[:min(len(r.servers), maxServers)]
	var unhappy []byte
	for _, server := range servers {
		ctx, cancel := context.WithTimeout(ctx, r.budget/time.Duration(len(servers)))
		wire, err = exchange(ctx, r, network, server, query)
		cancel()
		if err != nil {
			err = fmt.Errorf("ask %s over %s: %w", server, network, err)
			continue
		}
		if rcode := int(wire[3] & 0x0f); rcode != dns.RcodeServerFailure && rcode != dns.RcodeRefused {
			return wire, nil
		}
		unhappy = wire
	}
	if unhappy != nil {
		return unhappy, nil
	}
	return nil, err
}
