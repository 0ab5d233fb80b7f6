package pipeline

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// Actions are texts in the switch's own spelling; OpenFlow 1.4 instructions
// (goto_table) come last.

// drop is the empty action list.
const drop = "drop"

func actions(a ...string) string { return strings.Join(a, ",") }

func load(r register, v uint32) string {
	// A set_field of zero is written 0 with a mask or without.
	return fmt.Sprintf("set_field:%s->reg%d", maskedText(v<<r.Low, r.mask()), r.Num)
}

func goTo(s Stage) string { return fmt.Sprintf("goto_table:%d", s) }

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
	return fmt.Sprintf("set_field:%s->%s", a, tunField(a, "dst"))
}

func move(from, to string) string { return "move:" + from + "->" + to }

// bits names the low n bits of a register in a move.
func (r register) bits(n int) string {
	if n == 32 {
		return fmt.Sprintf("NXM_NX_REG%d[]", r.Num)
	}
	return fmt.Sprintf("NXM_NX_REG%d[0..%d]", r.Num, n-1)
}
