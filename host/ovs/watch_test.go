package ovs

import (
	"encoding/json"
	"testing"
)

func TestParseMonitor(t *testing.T) {
	flow := Flow{Table: 20, Cookie: 0x114, Match: "ip,reg3=0x2,nw_src=10.128.0.1", Actions: "goto_table:30"}
	drop := Flow{Table: 70, Cookie: 0x146, Match: "ip,nw_dst=10.128.0.0/22", Actions: "drop"}
	for line, want := range map[string]Change{
		" event=ADDED table=20 cookie=0x114 ip,reg3=0x2,nw_src=10.128.0.1 actions=goto_table:30\n":                  {FlowSet, flow},
		" event=MODIFIED table=70 cookie=0x146 ip,nw_dst=10.128.0.0/22\n":                                           {FlowSet, drop},
		" event=DELETED reason=delete table=20 cookie=0x114 ip,reg3=0x2,nw_src=10.128.0.1 actions=goto_table:30 \n": {FlowGone, flow},
		" event=ADDED table=0 idle_timeout=100 cookie=0\n":                                                          {FlowSet, Flow{Actions: "drop", Attributes: "idle_timeout=100"}},
		" event=ABBREV xid=0x1\n":                        {},
		"ONFST_FLOW_MONITOR_PAUSED (OF1.4) (xid=0x0):\n": {},
		" event=ADDED table=many cookie=0\n":             {},
	} {
		if got, some := parseMonitor(line); !some || got != want {
			t.Errorf("%q: %+v, want %+v", line, got, want)
		}
	}
	for _, head := range []string{"OFPST_FLOW_MONITOR reply (OF1.4) (xid=0x0):\n", "OFPT_ECHO_REQUEST (OF1.4) (xid=0x0): 0 bytes of payload\n", "\n"} {
		if c, some := parseMonitor(head); some {
			t.Errorf("%q: %+v", head, c)
		}
	}
}

func TestParseUpdate(t *testing.T) {
	for params, want := range map[string]What{
		`["grapevine",{"Interface":{"u":{"new":{"name":"gv1"}}}}]`:                                      Ports,
		`["grapevine",{"Bridge":{"u":{"old":{"ports":["set",[]]},"new":{"ports":["uuid","x"]}}}}]`:      Ports,
		`["grapevine",{"Bridge":{"u":{"old":{"name":"gvbr0"}}},"Interface":{"v":{"old":{"name":""}}}}]`: Anything,
		`["grapevine",{"Bridge":{"u":{"new":{"name":"gvbr0"}}}}]`:                                       Anything,
		`{}`: Anything,
	} {
		if got := parseUpdate(json.RawMessage(params)); got != want {
			t.Errorf("%s: %v, want %v", params, got, want)
		}
	}
}
