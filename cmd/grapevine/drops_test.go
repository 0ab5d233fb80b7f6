package main

import (
	"context"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

func TestDrops(t *testing.T) {
	cookie := func(s pipeline.Stage, k pipeline.ObjectKind, object uint64) uint64 {
		return pipeline.Cookie{Round: pipeline.Round, Stage: s, Kind: k, Object: object}.Pack()
	}
	h := vineyard()
	app := "endpoint " + strings.Repeat("f", 64)
	flows := []api.Flow{
		{Packets: 11, Cookie: cookie(pipeline.VNIDCheck, pipeline.KindDrop, uint64(pipeline.DropOtherNetwork)), Actions: "drop"},
		{Packets: 900, Cookie: cookie(pipeline.Forwarding, pipeline.KindDrop, uint64(pipeline.DropMulticast)), Match: "ip,nw_dst=224.0.0.0/4", Actions: "drop"},
		{Packets: 4, Object: app, Cookie: cookie(pipeline.SpoofGuard, pipeline.KindEndpoint, 1), Match: "in_port=3", Actions: "drop"},
		{Packets: 2, Cookie: cookie(pipeline.SpoofGuard, pipeline.KindRoute, 1), Match: "ip,reg3=0x3,nw_src=10.128.2.0/24", Actions: "drop"},
		{Packets: 7, Object: "rule shop/db ingress[0]", Cookie: cookie(pipeline.IngressRules, pipeline.KindRule, 1), Actions: "drop"},
		{Packets: 6, Cookie: cookie(pipeline.IngressRules, pipeline.KindDrop, uint64(pipeline.DropIngress)), Match: "ct_state=-inv+trk,ct_nw_src=10.128.0.7,ip,reg13=0xc/0xc", Actions: "drop"},
		{Packets: 9, Object: app, Cookie: cookie(pipeline.Forwarding, pipeline.KindEndpoint, 1), Actions: "goto_table:80"},
		{Cookie: cookie(pipeline.Forwarding, pipeline.KindDrop, uint64(pipeline.DropNoRoute)), Actions: "drop"},
	}
	h.Flows = func(context.Context) ([]api.Flow, error) { return flows, nil }
	out, err := run(t, h, "drops")
	if err != nil || !strings.HasPrefix(out, "This host's switch drops what nobody honest sends: app: its source") {
		t.Errorf("%v\n%s", err, out)
	}
	at := -1
	for _, want := range []string{"4         spoofed", "2         wrong-vtep       10.128.2.0/24", "11        other-network", "7         policy-rule      a caller", "a container that it is about", "shop/db ingress[0] denies it", "6         ingress-policy   a caller        10.128.0.7", "\nother-network: if they are to meet: `grapevine network join"} {
		i := strings.Index(out, want)
		if i < at || i < 0 {
			t.Errorf("no %q, or not in its place:\n%s", want, out)
		}
		at = i
	}
	if strings.Contains(out, "multicast") || strings.Contains(out, "no-route") {
		t.Errorf("noise, or what has not happened:\n%s", out)
	}
	if out, err := run(t, h, "drops", "--all"); err != nil || !strings.Contains(out, "224.0.0.0/4") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := run(t, h, "drops", "-o", "json"); err != nil || !strings.Contains(out, `"who": "app"`) || !strings.Contains(out, `"endpoint": "ffff`) || !strings.Contains(out, `"rule": "shop/db ingress[0]"`) {
		t.Errorf("%v\n%s", err, out)
	}
	flows = flows[:1]
	if out, err := run(t, h, "drops"); err != nil || !strings.HasPrefix(out, "This host's switch drops nothing that is not meant so.") {
		t.Errorf("%v\n%s", err, out)
	}
	flows = nil
	if out, err := run(t, h, "drops"); err != nil || !strings.Contains(out, "has dropped nothing that matters") {
		t.Errorf("%v\n%s", err, out)
	}
}
