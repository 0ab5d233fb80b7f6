package trace

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"github.com/fxamacker/cbor/v2"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/view"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/gossip"
	"github.com/grapevine-net/grapevine/observe/trace/lead"
	"github.com/grapevine-net/grapevine/overlay/walk"
	"github.com/grapevine-net/grapevine/service"
	"github.com/grapevine-net/grapevine/service/expose"
)

// methodDoor asks another host who has a port of it.
const methodDoor = "trace.door"

// Leads is what is known of who leads connections elsewhere.
type Leads struct {
	Services func(context.Context) ([]api.Service, error)
	Egresses func(context.Context) ([]api.Egress, error)
	Stand    service.Hosts
	// Door says who has a port of this host.
	Door func(at netip.AddrPort, proto string) expose.Door
}

// knock is a question about a host's port.
type knock struct {
	At    netip.AddrPort `cbor:"1,keyasint"`
	Proto string         `cbor:"2,keyasint"`
}

// answerDoor answers another host.
func (d *Desk) answerDoor(_ context.Context, _ string, body []byte) ([]byte, error) {
	var k knock
	if err := cbor.Unmarshal(body, &k); err != nil {
		return nil, fmt.Errorf("read the question: %w", err)
	}
	return cbor.Marshal(d.cfg.Leads.Door(k.At, k.Proto))
}

// door asks a host who has a port of it.
func (d *Desk) door(ctx context.Context, host cluster.NodeID, k knock) (door expose.Door, err error) {
	if host == d.cfg.Self {
		return d.cfg.Leads.Door(k.At, k.Proto), nil
	}
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	body, err := cbor.Marshal(k)
	if err != nil {
		return door, err
	}
	answer, err := d.cfg.Call(ctx, string(host), methodDoor, body)
	var remote *gossip.RemoteError
	switch {
	case errors.As(err, &remote) && strings.HasPrefix(remote.Text, "unknown method"):
		return door, errors.New("its agent is of an older version")
	case remote != nil:
		return door, errors.New(remote.Text)
	case err != nil:
		return door, err
	}
	return door, cbor.Unmarshal(answer, &door)
}

// Lead answers POST /v1/trace/lead.
func (d *Desk) Lead(ctx context.Context, r api.TraceRequest) (l api.Lead, err error) {
	f := lead.Facts{Snap: d.cfg.Snapshot(), Stand: d.cfg.Leads.Stand, Door: func(n cluster.Node, at netip.AddrPort, proto string) (expose.Door, error) {
		return d.door(ctx, n.ID, knock{at, proto})
	}}
	if f.Services, err = d.cfg.Leads.Services(ctx); err != nil {
		return l, err
	}
	if f.Egresses, err = d.cfg.Leads.Egresses(ctx); err != nil {
		return l, err
	}
	l = lead.Of(f, r)
	if l.Kind == api.LeadService && l.Wrong == "" && !r.Dry {
		l.Sent = d.sendTo(ctx, f.Snap, l)
	}
	return l, nil
}

// sendTo sends a real packet to a service's address, and says where the container's own rules led it.
func (d *Desk) sendTo(ctx context.Context, snap *cluster.Snapshot, l api.Lead) *api.TracePacket {
	from, err := view.EndpointsOf(snap, l.From)
	if err != nil {
		return &api.TracePacket{Error: err.Error()}
	}
	from = slices.DeleteFunc(from, func(e cluster.Endpoint) bool { return e.Network != l.Backs[0].Network })
	if len(from) != 1 {
		return &api.TracePacket{Error: fmt.Sprintf("there are several %s: name one by its address", l.From)}
	}
	i := slices.IndexFunc(from[0].Addrs, func(a netip.Addr) bool { return a.Is4() == l.Addr.Is4() })
	if i < 0 {
		return &api.TracePacket{Error: fmt.Sprintf("%s has no address of the family of %s", l.From, l.Addr)}
	}
	c := connection{from: from[0], start: from[0].Host, source: uint16(firstPort + rand.IntN(4000))}
	c.packet = walk.Packet{Src: from[0].Addrs[i], Dst: l.Addr, Proto: protocols[l.Proto], To: l.Port}
	if l.Port == 0 {
		if c.packet.Proto = walk.ICMP; l.Addr.Is6() {
			c.packet.Proto = walk.ICMPv6
		}
	}
	return d.does(ctx, snap, c)
}
