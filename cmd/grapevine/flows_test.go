package main

import (
	"context"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
)

func TestFlows(t *testing.T) {
	h := vineyard()
	h.Flows = func(context.Context) ([]api.Flow, error) {
		return []api.Flow{
			{Table: 20, Stage: "spoof-guard", Priority: 300, Packets: 3, Object: "endpoint " + strings.Repeat("f", 64), Match: "arp,in_port=3,arp_spa=10.128.0.2", Actions: "goto_table:30"},
			{Table: 70, Stage: "forwarding", Priority: 1049, Object: "range 10.128.2.0/24", Match: "ip,nw_dst=10.128.2.0/24", Actions: "goto_table:80"},
			{Table: 70, Stage: "forwarding", Priority: 2, Packets: 9, Object: "subnet 10.128.0.0/22", Match: "ip,nw_dst=10.128.0.0/22", Actions: "drop"},
			{Table: 80, Stage: "vnid-check", Packets: 2, Object: "drop: source and destination are on different networks", Actions: "drop"},
			{Table: 80, Stage: "vnid-check", Object: "drop: something that has not happened", Actions: "drop"},
			{Table: 80, Stage: "vnid-check", Packets: 1, Object: "vnid 1", Match: "reg0=0x1", Actions: "goto_table:90"},
		}, nil
	}
	for args, want := range map[string]string{ // the priorities, which tell them apart
		"flows": "300 2 0 0", "flows --all": "300 1049 2 0 0 0", "flows --drops": "2 0", "flows --drops --all": "2 0 0",
		"flows --stage 70": "2", "flows --stage spoof-guard": "300", "flows --for app": "300", "flows --for blue": "300 2 0", "flows --for 10.128.0.2": "300",
	} {
		out, err := run(t, h, strings.Fields(args)...)
		var got []string
		for line := range strings.Lines(out) {
			if f := strings.Fields(line); f[0] != "STAGE" && f[0] != "and" {
				got = append(got, f[2])
			}
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s: %v\n%s", args, got, want, err, out)
		}
	}
	out, err := run(t, h, "flows")
	if err != nil || !strings.Contains(out, "endpoint app ") || !strings.HasSuffix(out, "and 2 that have counted nothing (--all)\n") {
		t.Errorf("%v\n%s", err, out)
	}
	for args, want := range map[string]string{"flows --stage forward": "did you mean forwarding?", "flows --for ap": "did you mean app?", "flows --live": "grapevine flows --watch"} {
		if _, err := run(t, h, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
	var b strings.Builder
	flows, _ := h.Flows(t.Context())
	if err := showFlowsOn(&b, flows, nil, true, screen{80, 24}); err != nil || !strings.Contains(b.String(), "endpoint ffffffffffff ") {
		t.Errorf("%v\n%s", err, b.String())
	}
	for line := range strings.Lines(b.String()) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}
