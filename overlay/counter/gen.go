package counter

// Needs clang-14, llvm-14 and libbpf-dev, as Debian bookworm has them; the objects are
// committed so that building does not. TestObjectsAreCurrent makes them in $GENERATED
// and compares. The include directories are where Debian keeps asm/types.h.
//
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-14 -output-dir=$GENERATED -go-package counter -output-stem bpf -no-global-types -cflags "-O2 -g -Wall -Werror -mcpu=v1 -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu" bpf bpf/counter.c
