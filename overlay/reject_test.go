package overlay

import (
	"os/exec"
	"testing"

	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
)

// TestSwitchCannotReject: no action of the switch makes an answer out of the packet that it denies. To tell TCP it would write
// flags and numbers, to tell all else it would make a packet around a part of this one. Where one day it takes such a flow, Reject
// has a way without the agent.
func TestSwitchCannotReject(t *testing.T) {
	_, b := ovstest.Start(t)
	if err := b.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	add := func(flow string) error {
		return exec.CommandContext(t.Context(), "ovs-ofctl", "-O", "OpenFlow14", "add-flow", "unix:"+b.RunDir+"/"+b.Name+".mgmt", "table=200,"+flow).Run()
	}
	if err := add("priority=1,tcp,actions=set_field:1->tcp_src,IN_PORT"); err != nil {
		t.Fatalf("a flow that the switch can have: %v", err)
	}
	for what, flow := range map[string]string{
		"RST of TCP":                          "priority=2,tcp,actions=set_field:0x14->tcp_flags,IN_PORT",
		"the number that a RST acknowledges":  "priority=3,tcp,actions=set_field:1->tcp_ack,IN_PORT",
		"ICMP out of TCP":                     "priority=4,tcp,actions=set_field:3->icmp_type,set_field:13->icmp_code,IN_PORT",
		"ICMP by way of another IP protocol":  "priority=5,tcp,actions=set_field:1->nw_proto,set_field:3->icmp_type,IN_PORT",
		"ICMPv6 out of UDP":                   "priority=6,udp6,actions=set_field:1->icmpv6_type,IN_PORT",
		"a rejection of its own (OVN's word)": "priority=7,tcp,actions=reject",
	} {
		if err := add(flow); err == nil {
			t.Errorf("the switch can: %s (%s)", what, flow)
		}
	}
}
