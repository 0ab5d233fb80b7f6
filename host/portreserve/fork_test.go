package portreserve

import (
	"net/netip"
	"os/exec"
	"sync"
	"testing"
)

// TestReleasedWhileForking: a port that was let go of can be had at once, though this process is
// starting others meanwhile, which have copies of all its files until they are what they shall be.
func TestReleasedWhileForking(t *testing.T) {
	stop, all := make(chan struct{}), sync.WaitGroup{}
	for range 4 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = exec.Command("true").Run()
				}
			}
		})
	}
	defer all.Wait()
	defer close(stop)
	for _, network := range []string{"tcp", "udp"} {
		var s Sockets
		at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), 18008)
		refused := 0
		for range 3000 {
			if err := s.Hold(network, at); err != nil {
				refused++
			}
			s.Release(network, at)
		}
		if refused > 0 {
			t.Errorf("%s: refused %d times of 3000", network, refused)
		}
	}
}
