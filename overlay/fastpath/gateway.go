package fastpath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// gate is what a configuration says of the gateway.
func (c configValue) gate() Gate {
	if c.Gateway == 0 {
		return Gate{}
	}
	return Gate{
		On: true, MAC: c.GatewayMAC,
		VXLAN: binary.BigEndian.Uint16(c.VXLANPort[:]), Gossip: binary.BigEndian.Uint16(c.GossipPort[:]),
	}
}

// open lets packets to and from the gateway through.
func (c *configValue) open(g Gate, index uint32) {
	c.GatewayMAC, c.Gateway = g.MAC, index
	binary.BigEndian.PutUint16(c.VXLANPort[:], g.VXLAN)
	binary.BigEndian.PutUint16(c.GossipPort[:], g.Gossip)
}

// gateway is the index of the gateway's interface; 0: the switch carries to and from it. It does, too,
// where somebody shapes what the interface sends, or has XDP in its driver: the programs would
// take the packets away from those.
func (c Config) gateway(in pipeline.Input, log *slog.Logger) (uint32, error) {
	if c.Gateway == "" || !gateOf(in).On {
		return 0, nil
	}
	l, err := link.Get(c.Gateway)
	if errors.Is(err, link.ErrNotFound) {
		return 0, nil // Open vSwitch is making it anew
	}
	if err != nil {
		return 0, err
	}
	shaper, err := link.Shaper(l.Name)
	if err != nil {
		return 0, err
	}
	if shaper != "" {
		log.Debug("the switch carries to and from the gateway, which has a qdisc or XDP of somebody's", "what", shaper)
		return 0, nil
	}
	return uint32(l.Index), nil
}

// leaveGateway takes the program from the gateway's interface.
func (p *Path) leaveGateway() error {
	if p.cfg.Gateway == "" {
		return nil
	}
	delete(p.attached, p.cfg.Gateway)
	if err := link.DetachTC(p.cfg.Gateway, link.Egress, gatewayProgram); err != nil {
		return fmt.Errorf("keep what the gateway sends on the switch: %w", err)
	}
	return nil
}
