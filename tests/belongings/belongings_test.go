package belongings

import "testing"

func TestWithPorts(t *testing.T) {
	names := map[string]string{"3": "gvvxlan", "1": "gv0"}
	for flow, want := range map[string]string{
		"0 100 in_port=3 set_field:0x3->reg3,goto_table:10":                        "0 100 in_port=gvvxlan set_field:0x3->reg3,goto_table:10",
		"70 2750 ip,reg3=0x2,nw_dst=3.1.3.1 set_field:0->reg1,set_field:0x1->reg2": "70 2750 ip,reg3=0x2,nw_dst=3.1.3.1 set_field:0->reg1,set_field:gv0->reg2",
		"100 200 reg2=0x3 set_field:3->reg0,output:3":                              "100 200 reg2=gvvxlan set_field:3->reg0,output:gvvxlan",
		"100 100 reg2=0x7 output:7":                                                "100 100 reg2=0x7 output:7",
		"20 100 in_port=33 goto_table:3":                                           "20 100 in_port=33 goto_table:3",
	} {
		if got := withPorts(flow, names); got != want {
			t.Errorf("%s\nis %s\nwant %s", flow, got, want)
		}
	}
}
