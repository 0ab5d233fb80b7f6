package reject

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// TestLanes: what a sender floods with fills no queue but its own, by IPv4 and IPv6, and nothing is read but what is to be
// rejected.
func TestLanes(t *testing.T) {
	linktest.New(t).Do(func() { lanesOf(t) })
}

func lanesOf(t *testing.T) {
	for _, args := range [][]string{
		{"link", "add", "gv0", "type", "veth", "peer", "name", "switch"}, {"link", "set", "gv0", "up"}, {"link", "set", "switch", "up"},
	} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	socks, err := open("gv0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, s := range socks {
			_ = s.Close()
		}
	}()
	dev, err := link.Get("switch")
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	send := func(frame []byte) {
		t.Helper()
		if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: dev.Index}); err != nil {
			t.Fatal(err)
		}
	}
	others := [][2]netip.Addr{
		{netip.MustParseAddr("10.128.0.8"), four[1]}, {netip.MustParseAddr("10.128.0.9"), four[1]}, {netip.MustParseAddr("fd00:1::8"), six[1]},
	}
	for range 5000 {
		send(frameOf(four, 17, datagram(100)))
		send(frameOf(six, 17, datagram(100)))
	}
	for _, between := range others {
		send(frameOf(between, tcp, segment(syn, 1, 0, "")))
	}
	stranger := frameOf([2]netip.Addr{netip.MustParseAddr("10.128.0.10"), four[1]}, 17, datagram(1))
	stranger[5]++ // to another MAC address
	send(stranger)
	came := map[netip.Addr]int{}
	for _, s := range socks {
		_ = s.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		for frame := make([]byte, snap); ; {
			n, err := s.Read(frame)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			p, _ := read(slices.Clone(frame[:n]))
			came[p.src]++
		}
	}
	for _, between := range others {
		if came[between[0]] != 1 {
			t.Errorf("of %s, beside a flood, %d packets are read, want 1", between[0], came[between[0]])
		}
	}
	if flood := came[four[0]] + came[six[0]]; flood == 0 || flood > 1000 || len(came) != len(others)+2 {
		t.Errorf("read: %v", came)
	}
}
