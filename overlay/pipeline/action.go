package pipeline

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Actions are texts in the switch's own spelling; OpenFlow 1.4 instructions
// (goto_table) come last.

// drop is the empty action list.
const drop = "drop"

func actions(a ...string) string { return strings.Join(a, ",") }

// load writes a whole register as set_field, a part of one as load: that is how
// OpenFlow 1.4, which has no mask in set_field, gives them back.
func load(r register, v uint32) string {
	if r.Bits == 32 {
		return fmt.Sprintf("set_field:%s->reg%d", hexText(v), r.Num)
	}
	part := fmt.Sprintf("%d..%d", r.Low, r.Low+r.Bits-1)
	if r.Bits == 1 {
		part = strconv.Itoa(r.Low)
	}
	return fmt.Sprintf("load:%s->NXM_NX_REG%d[%s]", hexText(v), r.Num, part)
}

func goTo(s Stage) string { return fmt.Sprintf("goto_table:%d", s) }

// again has the same stage look at the packet once more.
func again(s Stage) string { return fmt.Sprintf("resubmit(,%d)", s) }

func output(port uint32) string {
	if t := portText(port); t == "LOCAL" {
		return t
	}
	return fmt.Sprintf("output:%d", port)
}

func outputReg(r register) string         { return fmt.Sprintf("output:NXM_NX_REG%d[]", r.Num) }
func setEthSrc(m net.HardwareAddr) string { return fmt.Sprintf("set_field:%s->eth_src", m) }
func setEthDst(m net.HardwareAddr) string { return fmt.Sprintf("set_field:%s->eth_dst", m) }

func setTunDst(a netip.Addr) string {
	return fmt.Sprintf("set_field:%s->%s", addrText(a), tunField(a, "dst"))
}

func move(from, to string) string { return "move:" + from + "->" + to }

// bits names the low n bits of a whole register in a move.
func (r register) bits(n int) string {
	if n == 32 {
		return fmt.Sprintf("NXM_NX_REG%d[]", r.Num)
	}
	return fmt.Sprintf("NXM_NX_REG%d[0..%d]", r.Num, n-1)
}
