package wireguard

import (
	"net"
	"os"
	"testing"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// TestSandboxLost: a process whose socket is lost, with its directory, keeps no port from the next one, and is not left
// when the sandbox is removed.
func TestSandboxLost(t *testing.T) {
	port := uint16(7949)
	linktest.New(t).Do(func() {
		box := Sandbox{Run: t.TempDir()}
		free := func() error {
			c, err := net.ListenPacket("udp4", ":7949")
			if err == nil {
				_ = c.Close()
			}
			return err
		}
		for range 2 {
			r, err := box.Ensure(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Set(Change{Private: &Key{5: 77, 31: 64}, Port: &port}); err != nil {
				t.Fatalf("the port is not there for the next process: %v", err)
			}
			if free() == nil {
				t.Fatal("nobody listens for clients")
			}
			r.Close()
			if err := os.Remove(box.socket()); err != nil {
				t.Fatal(err)
			}
		}
		if gone, err := box.Remove(); err != nil || len(gone) == 0 {
			t.Errorf("removed: %v, %v", gone, err)
		}
		if err := free(); err != nil {
			t.Errorf("after the sandbox was removed: %v", err)
		}
	})
}
