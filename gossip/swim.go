package gossip

import (
	"fmt"
	"log"
	"time"

	"github.com/hashicorp/memberlist"
)

// dialTimeout bounds the opening of a stream: on a LAN an answer takes
// milliseconds, and whoever waits longer waits for a dead host.
const dialTimeout = 2 * time.Second

// streamTimeout bounds the whole of a stream: MaxBody at 2 MiB/s.
const streamTimeout = 10 * time.Second

// listen makes the memberlist, which answers from then on.
func (g *Gossip) listen() error {
	logger := log.New(g.judge, "", 0)
	mc := g.swimConfig(logger)
	inner := g.cfg.Transport
	if inner == nil {
		s, err := listenOn(g.cfg.Bind)
		if err != nil {
			return err
		}
		mc.BindPort = s.port()
		inner = s
	}
	if mc.AdvertisePort == 0 {
		mc.AdvertisePort = mc.BindPort
	}
	t := newTransport(g.door, inner)
	mc.Transport, g.trier.transport, g.post.transport = t, t, t
	var err error
	if g.ml, err = memberlist.Create(mc); err != nil {
		_ = t.Shutdown()
		return err
	}
	g.presence.ml, g.post.ml = g.ml, g.ml
	if !numberAcks(g.ml) {
		g.log.Warn("the answers to an earlier run of this agent may be sent again: this memberlist is not known")
	}
	if !g.spreader.pace.find(g.ml) {
		g.log.Warn("this agent costs more at rest than it should: this memberlist is not known")
	}
	if g.addr = addrOf(g.ml.LocalNode()); g.addr.Addr().IsUnspecified() {
		_ = g.ml.Shutdown()
		return fmt.Errorf("peers cannot reach %v: set the address to advertise", g.addr)
	}
	g.roster.countOwn()
	return nil
}

// swimConfig is memberlist's LAN configuration, tuned: push/pull twice as often; gossip
// ten times, while there is news (pace); and a host that
// comes back with another address is taken as soon as it is dead.
func (g *Gossip) swimConfig(logger *log.Logger) *memberlist.Config {
	mc := memberlist.DefaultLANConfig()
	mc.Name = g.cfg.Node
	mc.BindAddr, mc.BindPort = g.cfg.Bind.Addr().String(), int(g.cfg.Bind.Port())
	mc.AdvertisePort = 0
	if g.cfg.Advertise.IsValid() {
		mc.AdvertiseAddr, mc.AdvertisePort = g.cfg.Advertise.Addr().String(), int(g.cfg.Advertise.Port())
	}
	mc.TCPTimeout = streamTimeout
	mc.ProbeInterval, mc.ProbeTimeout = g.cfg.Timing.Probe, g.cfg.Timing.Probe/2
	mc.PushPullInterval = g.cfg.Timing.PushPull
	mc.GossipInterval = g.cfg.Timing.Gossip
	// A packet holds three or four endpoints, and each is sent 12 to 16 times. What does not fit
	// waits, the most often sent last, and whom that leaves out hears of it when it compares, up
	// to a second later. So many packets, each 20 ms, are 200 changes a second of a thousand
	// hosts. Fewer changes cost no more by it: a piece of news is sent as often, only sooner.
	mc.GossipNodes = 16
	// Who does not answer directly is asked for through so many others before it is suspected,
	// and has to tell all that it lives. Where a fifth of the packets is lost that was most of
	// what a large cluster sent; without loss nobody is asked.
	mc.IndirectChecks = 8
	mc.DeadNodeReclaimTime = time.Second
	// Payloads are small and packed by their owners; LZW costs more than it saves.
	mc.EnableCompression = false
	mc.Keyring = g.keyring.keys
	mc.Logger = logger
	mc.Delegate, mc.Events, mc.Conflict = delegate{g}, events{g}, events{g}
	mc.Alive, mc.Merge = admission{g}, admission{g}
	return mc
}

// delegate is memberlist's way to our messages.
type delegate struct{ g *Gossip }

// NodeMeta implements memberlist.Delegate.
func (d delegate) NodeMeta(int) []byte { return d.g.presence.nodeMeta() }

// GetBroadcasts implements memberlist.Delegate.
func (d delegate) GetBroadcasts(overhead, limit int) [][]byte {
	return d.g.spreader.waiting(overhead, limit)
}

// LocalState implements memberlist.Delegate: a push/pull carries the hash of our
// digest; who needs more fetches it. At a join the other side is nobody's member
// yet: it gets the oldest version.
func (d delegate) LocalState(bool) []byte {
	if d.g.ClusterID() == "" {
		return nil
	}
	return d.g.post.sealAs(d.g.cfg.speaks.min, kindSum, d.g.comparer.summary().encode())
}

// MergeRemoteState implements memberlist.Delegate.
func (d delegate) MergeRemoteState(b []byte, _ bool) { d.g.inbox.receive(b, true) }

// NotifyMsg implements memberlist.Delegate.
func (d delegate) NotifyMsg(b []byte) { d.g.inbox.receive(b, false) }
