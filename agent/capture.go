package agent

import (
	"cmp"
	"context"
	"errors"

	"golang.org/x/net/bpf"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/packets"
	"github.com/grapevine-net/grapevine/observe/capture"
)

// openCapture makes the desks where captures and mirrors are asked for.
func (a *Agent) openCapture() {
	a.captures = capture.New(capture.Config{
		Self: a.self(), Version: a.version, Consent: a.cfg.Capture, Log: a.log,
		Snapshot: func() *cluster.Snapshot { return a.replica.Snapshot() },
		Call: func(ctx context.Context, node, method string, body []byte) ([]byte, error) {
			return a.gossip.Call(ctx, node, method, body)
		},
		Open: a.openTap,
	})
	a.mirrors = mirroring{a}.desk()
}

// openTap reads the packets at the container's end of an endpoint.
func (a *Agent) openTap(endpoint string, filter []bpf.RawInstruction) (capture.Tap, capture.Place, error) {
	sandbox := cmp.Or(sandboxOf(a.driver, endpoint), a.clients.Room(endpoint))
	if sandbox == "" {
		return nil, capture.Place{}, errors.New("it does not run: start it first")
	}
	inside, err := link.Inside(endpoint, sandbox)
	if err != nil {
		return nil, capture.Place{}, err
	}
	tap, err := packets.Open(sandbox, inside.Index, filter)
	if err != nil {
		return nil, capture.Place{}, err
	}
	return tap, capture.Place{Name: inside.Name, MAC: inside.MAC}, nil
}
