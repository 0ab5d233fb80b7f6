package link

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// sizeWithSource is that of struct bpf_tunnel_key up to the source, which is its last member.
const sizeWithSource = 44

// TunnelSource reports whether a program can say from which address the kernel is to send what
// it encapsulates (Linux 5.19): the kernel is asked, by a program that says it of one packet.
func TunnelSource() (bool, error) {
	RaiseMemlock()
	code := asm.Instructions{asm.Mov.Imm(asm.R0, 0)}
	for at := int16(-48); at < 0; at += 8 {
		code = append(code, asm.StoreMem(asm.RFP, at, asm.R0, asm.DWord))
	}
	code = append(code,
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -48),
		asm.Mov.Imm(asm.R3, sizeWithSource), asm.Mov.Imm(asm.R4, 0),
		asm.FnSkbSetTunnelKey.Call(), asm.Return())
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "gv_source", Type: ebpf.SchedCLS, Instructions: code, License: "GPL"})
	if err != nil {
		return false, fmt.Errorf("ask the kernel for sources of tunnels: %w", err)
	}
	defer prog.Close()
	ret, _, err := prog.Test(make([]byte, 64))
	if err != nil {
		return false, fmt.Errorf("ask the kernel for sources of tunnels: %w", err)
	}
	return ret == 0, nil
}
