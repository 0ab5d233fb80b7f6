package gossip

import (
	"log/slog"
	"net/netip"
	"time"
)

// core is what all rooms of a Gossip know. It is set before they run; stats and work have locks of their own.
type core struct {
	cfg     Config
	self    nodeID
	log     *slog.Logger
	started time.Time
	addr    netip.AddrPort // advertised
	stats   counters
	work    tasks
}
