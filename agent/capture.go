package agent

import (
	"github.com/grapevine-net/grapevine/observe/capture"
	"github.com/grapevine-net/grapevine/observe/mirror"
	"github.com/grapevine-net/grapevine/observe/taps"
)

// openCapture makes the desks where captures and mirrors are asked for.
func (a *Agent) openCapture() {
	a.captures = capture.New(capture.Config{
		Self: a.self(), Version: a.version, Consent: a.cfg.Capture, Log: a.log,
		Snapshot: a.replica.Snapshot,
		Call:     a.gossip.Call, Open: tapsOf(a).Capture,
	})
	a.mirrors = mirror.New(mirror.Config{Self: a.self(), Snapshot: a.replica.Snapshot, Open: tapsOf(a).Mirror, Log: a.log})
}

// taps are where packets are looked at here. What opens them is made later.
func tapsOf(a *Agent) taps.Taps {
	return taps.Taps{
		Sandbox: func(endpoint string) string { return sandboxOf(a.driver, endpoint) }, Client: func(endpoint string) string { return a.clients.Room(endpoint) },
		Underlay: a.underlay.Interface, Encryption: func() string { return a.plane.Encryption() },
	}
}
