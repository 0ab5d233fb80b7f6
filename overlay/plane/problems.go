package plane

import (
	"context"
	"errors"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/overlay/fastpath"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
	"github.com/grapevine-net/grapevine/overlay/secure"
)

// Flows answers GET /v1/flows.
func (p *Plane) Flows(ctx context.Context) ([]api.Flow, error) {
	list, err := p.overlay.Flows(ctx)
	if err != nil {
		return nil, err
	}
	flows := []api.Flow{}
	for _, f := range list {
		flows = append(flows, api.Flow{
			Table: f.Table, Stage: f.Stage, Priority: f.Priority, Match: f.Match, Actions: f.Actions,
			Object: f.Object, Cookie: f.Cookie, Packets: f.Packets, Bytes: f.Bytes,
		})
	}
	return append(flows, p.refused()...), nil
}

// refused are the rules that have dropped what was in the clear, left with another address than an egress's or by an exposed port, or
// came with an address of the cluster's, as flows of no table: they are nftables'. And what WireGuard's processes have refused, and the program at its device has dropped.
func (p *Plane) refused() (flows []api.Flow) {
	for _, r := range p.guard.Refused() {
		reason := pipeline.DropClear
		switch r.Chain {
		case "encrypted-in", "encrypted-forward", "ipsec-in":
			reason = pipeline.DropForgedClear
		case "served", "elsewhere":
			reason = pipeline.DropOtherAddress
		case "shadow":
			reason = pipeline.DropShadow
		case "claimed-in", "claimed-forward":
			reason = pipeline.DropClaimed
		case "posing":
			reason = pipeline.DropPosing
		}
		flows = append(flows, api.Flow{
			Table: nftables, Stage: r.Chain, Match: r.Comment, Actions: "drop", Cookie: reason.Cookie(), Packets: r.Packets, Bytes: r.Bytes,
		})
	}
	for device, n := range secure.Refused(p.cfg.Settings.Run) {
		if n > 0 {
			flows = append(flows, api.Flow{Table: nftables, Stage: device, Match: "no peer's, no session's, or heard before", Actions: "drop", Cookie: pipeline.DropByKey.Cookie(), Packets: n})
		}
	}
	if c, err := (fastpath.Inside{Path: p.fast.path}).Counts(); err == nil {
		for _, one := range []struct {
			reason pipeline.Reason
			what   string
			n      pipeline.Count
		}{{pipeline.DropNobodys, "in WireGuard without VXLAN, nobody's", c.Stray}, {pipeline.DropUnwound, "in WireGuard without VXLAN, for the switch", c.Lost}} {
			if one.n.Packets > 0 {
				flows = append(flows, api.Flow{Table: nftables, Stage: link.WireGuard, Match: one.what, Actions: "drop", Cookie: one.reason.Cookie(), Packets: one.n.Packets, Bytes: one.n.Bytes})
			}
		}
	}
	return flows
}

// nftables is a number of no table of the switch.
const nftables = 255

// Problems says what keeps the switch from being as it should be. gone are endpoints whose interfaces
// are somebody else's problem.
func (p *Plane) Problems(ctx context.Context, gone []string) (list []api.Problem) {
	if p.Embedded != nil {
		var rival *ovs.RivalError
		if errors.As(p.Embedded.Rival(ctx), &rival) {
			list = append(list, api.Problem{Code: api.SwitchRival, What: "the switch: " + rival.Error(), Do: "set GRAPEVINE_OVS=host: the bridges of both are then that Open vSwitch's"})
		}
		for _, err := range p.Embedded.Trouble() {
			list = append(list, api.Problem{Code: api.SwitchDown, What: "the switch: " + err.Error(), Do: "mend that, and it begins anew by itself within seconds; logs are in " + p.Embedded.RunDir})
		}
	}
	list = append(list, p.guard.Problems()...)
	for _, err := range p.overlay.Problems(gone...) {
		list = append(list, api.Problem{Code: api.SwitchFails, What: "the switch: " + err.Error(), Do: "the agent goes on trying; its log says more"})
	}
	list = append(list, crowded(p.overlay, p.cfg.Source.Snapshot())...)
	if err := p.rejects.Problem(); err != nil {
		list = append(list, api.Problem{Code: api.SwitchFails, What: "the switch: who is rejected by a policy is not told, and waits until it gives up: " + err.Error(), Do: "the agent goes on trying; what is rejected stays denied"})
	}
	list = append(list, p.posed.problems(time.Now())...)
	return append(list, p.fast.problems()...)
}
