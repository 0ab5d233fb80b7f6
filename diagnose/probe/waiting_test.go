package probe

import (
	"encoding/binary"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestWaiting: frames wait in the kernel until they are asked for, and say when they came.
func TestWaiting(t *testing.T) {
	if os.Getuid() != 0 && os.Getenv("CI") == "" {
		t.Skip("needs root, for a namespace with a device")
	}
	runtime.LockOSThread() // ends with the goroutine, and the namespace with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "one"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "two"}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one", "two"} {
		l, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetUp(l); err != nil {
			t.Fatal(err)
		}
	}
	from, err := wait("one")
	if err != nil {
		t.Fatal(err)
	}
	defer from.close()
	to, err := wait("two")
	if err != nil {
		t.Fatal(err)
	}
	defer to.close()
	var sent []time.Time
	for i := range byte(2) {
		sent = append(sent, time.Now())
		if err := from.send(to.mac, []byte{i, 'h', 'i'}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second / 2)
	}
	n, asked := 0, time.Now()
	const slew = 10 * time.Millisecond // of the clock that people set
	to.all(func(b []byte, came time.Time) {
		if n >= len(sent) || len(b) < 3 || b[0] != byte(n) || came.Before(sent[n].Add(-slew)) || !came.Before(asked) {
			t.Errorf("frame %d is %q, and came %v after the first was sent; they were sent at %v, and asked for at %v", n, b, came.Sub(sent[0]), sent, asked)
		}
		n++
	})
	if n != len(sent) {
		t.Errorf("%d frames of %d came", n, len(sent))
	}
	to.all(func(b []byte, _ time.Time) { t.Errorf("%q came twice", b) })
}

// TestCame: a frame came when the kernel says, unless that cannot be since somebody has set its clock; then it came since the last look.
func TestCame(t *testing.T) {
	now := time.Now()
	said := func(at time.Time) []byte {
		b := make([]byte, unix.CmsgSpace(16))
		binary.NativeEndian.PutUint64(b, uint64(unix.CmsgLen(16)))
		binary.NativeEndian.PutUint32(b[8:], unix.SOL_SOCKET)
		binary.NativeEndian.PutUint32(b[12:], unix.SO_TIMESTAMPNS)
		binary.NativeEndian.PutUint64(b[16:], uint64(at.Unix()))
		binary.NativeEndian.PutUint64(b[24:], uint64(at.Nanosecond()))
		return b
	}
	for name, c := range map[string]struct {
		oob  []byte
		want time.Duration
	}{
		"half a second ago":    {said(now.Add(-time.Second / 2)), -time.Second / 2},
		"now":                  {said(now), 0},
		"the clock is earlier": {said(now.Add(time.Hour)), 0},
		"the clock is later":   {said(now.Add(-time.Hour)), -time.Second},
		"the kernel says none": {nil, 0},
	} {
		if got := came(c.oob, now.Add(-time.Second), now).Sub(now); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
