package tunnel

// Needs clang, llvm-strip and libbpf's headers; the objects are committed so that
// building does not. The include directories are where Debian keeps asm/types.h.
//
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -go-package tunnel -output-stem bpf -no-global-types -cflags "-O2 -g -Wall -Werror -mcpu=v1 -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu" bpf bpf/tunnel.c
