package ovs

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseFlows(t *testing.T) {
	out := `OFPST_FLOW reply (OF1.4) (xid=0x2):
 cookie=0x0, duration=0.007s, table=0, n_packets=0, n_bytes=0, priority=101,vlan_tci=0x1000/0x1000 actions=drop
 cookie=0x10a, duration=9.1s, table=10, n_packets=7, n_bytes=588, reset_counts priority=0 actions=set_field:0x1->reg3,goto_table:20
 cookie=0x1, duration=1s, table=20, n_packets=1, n_bytes=2, idle_timeout=60, ip,nw_src=10.0.0.0/8 actions=IN_PORT
 cookie=0x1, duration=1s, table=20, n_packets=1, n_bytes=2, actions=drop
`
	want := []Flow{
		{Priority: 101, Match: "vlan_tci=0x1000/0x1000", Actions: "drop"},
		{Table: 10, Cookie: 0x10a, Priority: 0, Attributes: "reset_counts", Actions: "set_field:0x1->reg3,goto_table:20", Packets: 7, Bytes: 588},
		{Table: 20, Cookie: 1, Priority: 32768, Match: "ip,nw_src=10.0.0.0/8", Attributes: "idle_timeout=60", Actions: "IN_PORT", Packets: 1, Bytes: 2},
		{Table: 20, Cookie: 1, Priority: 32768, Actions: "drop", Packets: 1, Bytes: 2},
	}
	got, err := parseFlows([]byte(out))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, bad := range []string{"cookie=0x1, priority=1", "cookie=x, priority=1 actions=drop", "table=256, actions=drop"} {
		if f, err := parseFlows([]byte(bad)); err == nil {
			t.Errorf("%q became %+v", bad, f)
		}
	}
}

func FuzzParseFlow(f *testing.F) {
	f.Add(" cookie=0x1, duration=1s, table=20, n_packets=1, n_bytes=2, priority=9,ip actions=drop")
	f.Fuzz(func(t *testing.T, line string) {
		if flow, err := parseFlow(line); err == nil && len(flow.Match)+len(flow.Actions) > len(line) {
			t.Errorf("%q became longer: %+v", line, flow)
		}
	})
}
