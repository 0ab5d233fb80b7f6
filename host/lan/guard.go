package lan

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// guardPause is how long nothing is read once somebody was heard: who floods the LAN costs this host nothing.
const guardPause = 500 * time.Millisecond

// Guard hears on an interface's LAN who else says that it has an address, by whatever word of ARP (RFC 5227, 2.4) or by a neighbour
// advertisement, and calls claimed with its MAC, a few times a second at most. end ends that. over is closed when it has
// ended, as it does by itself when the interface goes down. Of an address on no LAN nobody is heard.
func Guard(nic string, a netip.Addr, claimed func(net.HardwareAddr)) (end func(), over <-chan struct{}, err error) {
	done := make(chan struct{})
	if nic == Loopback {
		return sync.OnceFunc(func() { close(done) }), done, nil
	}
	filter := claims(a)
	s, err := openFiltered(nic, a.Is6(), filter)
	if err != nil {
		return nil, nil, fmt.Errorf("hear on %s who else has %v: %w", nic, a, err)
	}
	says := holder
	if a.Is6() {
		says = advertiser
	}
	closed := make(chan struct{})
	go func() {
		defer close(done)
		defer s.file.Close()
		buf := make([]byte, 128)
		for {
			n, err := s.file.Read(buf)
			if err != nil { // closed, or the interface is down
				return
			}
			who := says(buf[:n], a)
			if who == nil || bytes.Equal(who, s.nic.HardwareAddr) {
				continue
			}
			claimed(who)
			select { // what comes meanwhile fills the socket's buffer, and no more
			case <-closed:
				return
			case <-time.After(guardPause):
			}
		}
	}()
	return sync.OnceFunc(func() { close(closed); _ = s.file.Close() }), done, nil
}

// claims lets a socket hear those alone that say of an address that it is theirs. ARP's have it as the sender's.
func claims(a netip.Addr) []unix.SockFilter {
	if !a.Is6() {
		const sender = ethernet + 14
		return equal(sender, a.AsSlice())
	}
	last := len(advertisements) - 2 // lets it pass
	f := append([]unix.SockFilter{}, advertisements[:last]...)
	f[1].Jf, f[3].Jf = 2+8+1, 8+1 // to the end of what follows
	return append(f, equal(atTarget, a.AsSlice())...)
}

// equal lets a frame pass that has these words there.
func equal(at uint32, want []byte) (f []unix.SockFilter) {
	words := len(want) / 4
	for i := range words {
		w := want[4*i:]
		f = append(f,
			unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at + uint32(4*i)},
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(w[0])<<24 | uint32(w[1])<<16 | uint32(w[2])<<8 | uint32(w[3]), Jf: uint8(2*(words-i-1) + 1)})
	}
	return append(f, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0xffff}, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0})
}
