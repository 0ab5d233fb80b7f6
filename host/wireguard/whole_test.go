package wireguard

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// TestWhole: TCP in VXLAN between two hosts comes as it was sent, both ways, of IPv4 and IPv6; and goes through the process in
// pieces of many packets, where the kernel has such devices.
func TestWhole(t *testing.T) {
	a, b := newEnd(t, 1), newEnd(t, 2)
	linktest.Wire(t, "eth0", a.NS, b.NS, []string{"192.0.2.1/24"}, []string{"192.0.2.2/24"})
	kind, _ := a.ensure(b)
	b.ensure(a)
	if !a.says(b) || !b.says(a) {
		t.Fatal("the two ends do not hear each other")
	}
	var features map[string]bool
	a.Do(func() {
		var err error
		if features, err = link.Features(link.WireGuard); err != nil {
			t.Fatal(err)
		}
		if got, want := a.device.Whole(kind), kind == Userspace && newer(t, 6, 17); got != want || want && !features[wholeFeature] {
			t.Fatalf("of the %s: whole is %t, want %t", kind, got, want)
		}
	})
	for i, e := range []*end{a, b} {
		e.run("ip", "link", "add", "vx", "mtu", "1330", "type", "vxlan", "id", "7", "dstport", "4789", "local", fmt.Sprintf("fd67:1::%d", i+1), "remote", fmt.Sprintf("fd67:1::%d", 2-i))
		e.Do(func() { linktest.Up(t, "vx", fmt.Sprintf("10.9.0.%d/24", i+1), fmt.Sprintf("fd09::%d/64", i+1)) })
	}
	packets0, size0 := b.came()
	for _, to := range []string{"10.9.0.2", "fd09::2"} {
		a.streams(b, to)
	}
	packets, size := b.came()
	packets, size = packets-packets0, size-size0
	t.Logf("%d packets of %d bytes have come of the %s", packets, size, kind)
	if size < 2*streamed {
		t.Errorf("%d bytes have come by %s, of %d", size, link.WireGuard, 2*streamed)
	}
	if kind == Userspace && features[wholeFeature] && size/packets < 2*1400 {
		t.Errorf("%d packets brought %d bytes: they have come one by one", packets, size)
	}
}

// streamed is how much is sent each way.
const streamed = 8 << 20

// streams sends random bytes over TCP, and has the other end send them back.
func (e *end) streams(to *end, addr string) {
	e.t.Helper()
	at := net.JoinHostPort(addr, "9")
	var l net.Listener
	var err error
	to.Do(func() { l, err = net.Listen("tcp", at) })
	if err != nil {
		e.t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		got, err := io.ReadAll(c)
		if err == nil {
			_, _ = c.Write(got)
		}
	}()
	var c net.Conn
	e.Do(func() { c, err = net.DialTimeout("tcp", at, 20*time.Second) })
	if err != nil {
		e.t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	said := make([]byte, streamed)
	r := rand.New(rand.NewPCG(1, 2))
	for i := 0; i < len(said); i += 8 {
		binary.NativeEndian.PutUint64(said[i:], r.Uint64())
	}
	if _, err := c.Write(said); err != nil {
		e.t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		e.t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, said) {
		e.t.Errorf("%s: %d bytes come back of %d, or others: %v", addr, len(got), len(said), err)
	}
}

// came is how many packets and bytes have come out of the device.
func (e *end) came() (packets, size uint64) {
	e.t.Helper()
	e.Do(func() {
		l, err := netlink.LinkByName(link.WireGuard)
		if err != nil {
			e.t.Fatal(err)
		}
		packets, size = l.Attrs().Statistics.RxPackets, l.Attrs().Statistics.RxBytes
	})
	return packets, size
}

// newer says that the kernel is of that version or a later one.
func newer(t *testing.T, major, minor int) bool {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		t.Fatal(err)
	}
	var have [2]int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(uts.Release[:]), "%d.%d", &have[0], &have[1]); err != nil {
		t.Fatal(err)
	}
	return have[0] > major || have[0] == major && have[1] >= minor
}
