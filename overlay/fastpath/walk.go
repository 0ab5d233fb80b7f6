package fastpath

import (
	"fmt"
	"net/netip"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
	"github.com/grapevine-net/grapevine/overlay/walk"
)

// Walk is where the programs would take a packet, by what their maps hold now and not by what was put there.
func (p *Path) Walk(packet walk.Packet, in pipeline.Input) (walk.Fast, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.on || p.trouble != nil || p.objs == nil {
		return walk.Fast{}, nil
	}
	now := tables{locals: p.objs.GvLocals, ranges: p.objs.GvRanges}
	if err := now.read(); err != nil {
		return walk.Fast{On: true}, err
	}
	var config configValue
	if err := p.objs.GvConfig.Lookup(uint32(0), &config); err != nil {
		return walk.Fast{On: true}, fmt.Errorf("read the fast path's configuration: %w", err)
	}
	if config.On == 0 {
		return walk.Fast{}, nil
	}
	only := config.On&carriesSecure != 0
	if only && packet.VTEP.IsValid() && !packet.Plain {
		return walk.Fast{On: true}, nil // no program stands there
	}
	now.held.Gate = config.gate()
	asked, endpoints := Packet{
		Src: packet.Src, Dst: packet.Dst, From: packet.VTEP, VNID: packet.VNID, Protocol: packet.Proto, Port: packet.To,
		Gateway: packet.Endpoint == "" && !packet.VTEP.IsValid(),
	}, map[uint32]string{}
	for _, port := range in.Ports {
		l, err := link.Get(p.cfg.Device(port.Endpoint))
		if err != nil {
			continue // gone: the next pass sees that
		}
		endpoints[uint32(l.Index)] = port.Endpoint
		if port.Endpoint == packet.Endpoint && len(port.MAC) == len(asked.MAC) {
			asked.Ifindex, asked.MAC = uint32(l.Index), [6]byte(port.MAC)
		}
	}
	end := endOf(now.held.Verdict(asked), endpoints)
	fast := walk.Fast{End: end, On: true}
	if end != nil && end.VTEP.IsValid() && packet.Endpoint != "" {
		fast.Plain = Inside{p}.sends(packet, *end)
		if only && !fast.Plain {
			fast.End = nil
		}
	}
	return fast, nil
}

// endOf is a verdict, for who does not know the programs.
func endOf(v Verdict, endpoints map[uint32]string) *walk.End {
	switch {
	case v.Ifindex != 0 && endpoints[v.Ifindex] != "":
		return &walk.End{Endpoint: endpoints[v.Ifindex]}
	case v.Ifindex != 0:
		return &walk.End{Other: fmt.Sprintf("to interface %d, which is no container's", v.Ifindex)}
	case v.VTEP != netip.Addr{}:
		return &walk.End{VTEP: v.VTEP, VNID: v.VNID}
	case v.Gateway:
		return &walk.End{Gateway: true}
	}
	return nil
}
