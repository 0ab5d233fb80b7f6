package link

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/cilium/ebpf"
	bpflink "github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// knownBPF is what is known of BPF objects by their IDs, which the kernel counts upwards: none is another one's before two thousand
// million have been made. To ask for what an object is takes a dozen system calls, and who looks each second finds the same ones.
type knownBPF struct {
	mu   sync.Mutex
	what map[uint32]string
	most int
}

// of is what get says of an object, now or before.
func (k *knownBPF) of(id uint32, get func() (string, error)) (string, error) {
	k.mu.Lock()
	what, known := k.what[id]
	k.mu.Unlock()
	if known {
		return what, nil
	}
	what, err := get()
	if err != nil {
		return "", err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.what == nil || len(k.what) >= k.most {
		k.what = map[uint32]string{} // those that are gone
	}
	k.what[id] = what
	return what, nil
}

var (
	programNames = knownBPF{most: 1024}
	stackLinks   = knownBPF{most: 8192}
)

// programName is the name of a program.
func programName(id ebpf.ProgramID) (string, error) {
	return programNames.of(uint32(id), func() (string, error) {
		prog, err := ebpf.NewProgramFromID(id)
		if err != nil {
			return "", fmt.Errorf("look at tc program %d: %w", id, err)
		}
		defer prog.Close()
		info, err := prog.Info()
		if err != nil {
			return "", fmt.Errorf("look at tc program %d: %w", id, err)
		}
		return info.Name, nil
	})
}

// stackLink says what a link has to do with packets in the host's stack; "": nothing. Its program may become another one, its kind not.
func stackLink(id bpflink.ID) (string, error) {
	return stackLinks.of(uint32(id), func() (string, error) {
		l, err := bpflink.NewFromID(id)
		if err != nil {
			return "", err
		}
		defer l.Close()
		info, err := l.Info()
		if err != nil {
			return "", err
		}
		if info.Type == bpflink.NetfilterType {
			return fmt.Sprintf("the BPF program %d is a hook of netfilter", info.Program), nil
		}
		if ns := info.NetNs(); ns != nil && ebpf.AttachType(ns.AttachType) == ebpf.AttachSkLookup {
			return fmt.Sprintf("the BPF program %d chooses the sockets of what arrives", info.Program), nil
		}
		return "", nil
	})
}

// linkBehind is the ID of the first link behind id; ENOENT: there is none.
func linkBehind(id bpflink.ID) (bpflink.ID, error) {
	attr := struct{ start, next, flags uint32 }{start: uint32(id)}
	_, _, e := unix.Syscall(unix.SYS_BPF, unix.BPF_LINK_GET_NEXT_ID, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if e != 0 {
		return 0, e
	}
	return bpflink.ID(attr.next), nil
}
