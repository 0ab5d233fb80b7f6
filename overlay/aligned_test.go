package overlay

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/grapevine-net/grapevine/host/link"
)

// TestProgramsAreAligned: no tc program reads or writes a number at an address that is no multiple of its size, which
// some processors cannot do, and others, amd64 among them, do without a word. The kernel is asked to be strict.
func TestProgramsAreAligned(t *testing.T) {
	const strict = 1 // BPF_F_STRICT_ALIGNMENT (linux/bpf.h)
	link.RaiseMemlock()
	const data, end = 76, 80 // of struct __sk_buff
	askew := &ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, data, asm.Word), asm.LoadMem(asm.R3, asm.R1, end, asm.Word),
		asm.Mov.Imm(asm.R0, 0),
		asm.Mov.Reg(asm.R4, asm.R2), asm.Add.Imm(asm.R4, 16), asm.JGT.Reg(asm.R4, asm.R3, "out"),
		asm.LoadMem(asm.R0, asm.R2, 1, asm.Word),
		asm.Return().WithSymbol("out"),
	}}
	for _, flags := range []uint32{0, strict} {
		askew.Flags = flags
		p, err := ebpf.NewProgram(askew)
		if errors.Is(err, ebpf.ErrNotSupported) {
			t.Skip(err)
		}
		if refused := err != nil; refused != (flags == strict) {
			t.Fatalf("a program that is not aligned, with flags %d: %v", flags, err)
		}
		_ = p.Close()
	}
	objects, err := filepath.Glob("*/bpf_bpfel.o")
	if err != nil || len(objects) != 3 {
		t.Fatalf("the objects are %q, %v", objects, err)
	}
	for _, object := range objects {
		spec, err := ebpf.LoadCollectionSpec(object)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range spec.Programs {
			p.Flags |= strict
		}
		c, err := ebpf.NewCollection(spec)
		if err != nil {
			t.Errorf("%s: %v", object, err)
			continue
		}
		c.Close()
	}
}
