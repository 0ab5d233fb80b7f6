package taps

import (
	"bytes"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/link/linktest"
	"github.com/grapevine-net/grapevine/observe/frames"
)

// patience bounds what takes milliseconds.
const patience = 30 * time.Second

var web, phone, ids, off = strings.Repeat("a", 64), strings.Repeat("b", 64), strings.Repeat("c", 64), strings.Repeat("d", 64)

// town is a host with a container, a client's sandbox, and a container that may get copies; off does not run.
type town struct {
	Taps
	host, web, phone, ids *linktest.NS
}

func newTown(t *testing.T) *town {
	w := &town{host: linktest.New(t), web: linktest.New(t), phone: linktest.New(t), ids: linktest.New(t)}
	for i, at := range []struct {
		endpoint string
		ns       *linktest.NS
	}{{web, w.web}, {phone, w.phone}} {
		subnet := netip.AddrFrom4([4]byte{10, 1, byte(i), 0}).String()
		port := link.PortName(at.endpoint)
		w.host.Do(func() {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = port
			if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(at.ns.FD())}); err != nil {
				t.Error(err)
				return
			}
			linktest.Up(t, port, strings.TrimSuffix(subnet, "0")+"1/24")
		})
		at.ns.Do(func() { linktest.Up(t, "eth0", strings.TrimSuffix(subnet, "0")+"2/24") })
		at.ns.Do(func() { linktest.WaitUp(t, "eth0") })
	}
	w.Taps = Taps{
		Sandbox:  func(endpoint string) string { return map[string]string{web: w.web.Key(), ids: w.ids.Key()}[endpoint] },
		Client:   func(endpoint string) string { return map[string]string{phone: w.phone.Key()}[endpoint] },
		Underlay: "lo", Encryption: func() string { return "" },
	}
	return w
}

var probe = frames.Probe{Src: netip.MustParseAddr("10.1.0.2"), Dst: netip.MustParseAddr("10.1.0.1"), Proto: unix.IPPROTO_UDP, From: 4000, To: 5000}

// sees waits for a packet from one address to another one at a tap.
func sees(t *testing.T, tap interface {
	Close() error
}, read func() ([]byte, error), p frames.Probe) {
	t.Helper()
	found := make(chan error, 1)
	go func() {
		for {
			data, err := read()
			if err != nil {
				found <- err
				return
			}
			if bytes.Contains(data, append(p.Src.AsSlice(), p.Dst.AsSlice()...)) {
				found <- nil
				return
			}
		}
	}()
	select {
	case err := <-found:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("the packet is not seen")
	}
	_ = tap.Close()
}

// TestCapture: what a container's end sends is seen there, and a client's end is opened likewise; one that does not run is named so.
func TestCapture(t *testing.T) {
	w := newTown(t)
	w.host.Do(func() {
		tap, place, err := w.Capture(web, nil)
		if err != nil || place.Name != "eth0" || len(place.MAC) != 6 {
			t.Errorf("of a container: %+v, %v", place, err)
			return
		}
		if err := w.Send(web, probe); err != nil {
			t.Error(err)
		}
		sees(t, tap, func() ([]byte, error) { p, err := tap.Read(); return p.Data, err }, probe)
		traced, name, err := w.Trace(phone, nil)
		if err != nil || name != "eth0" {
			t.Errorf("of a client: %s, %v", name, err)
			return
		}
		_ = traced.Close()
	})
	if _, _, err := w.Capture(off, nil); !errors.Is(err, errStopped) {
		t.Errorf("of a container that does not run: %v", err)
	}
	if err := w.Send(phone, probe); !errors.Is(err, errStopped) || !strings.Contains(err.Error(), "client") {
		t.Errorf("a packet of a client: %v", err)
	}
}

// TestWire: what leaves the host is seen, unless it is encrypted.
func TestWire(t *testing.T) {
	w := newTown(t)
	tap, name, err := w.Wire(nil)
	if err != nil || name != "lo" {
		t.Fatalf("%s, %v", name, err)
	}
	here := frames.Probe{Src: netip.MustParseAddr("127.0.0.1"), Dst: netip.MustParseAddr("127.0.0.9"), Proto: unix.IPPROTO_UDP, From: 4000, To: 5000}
	w.Sandbox = func(string) string { return "/proc/self/ns/net" }
	if err := w.Send("", here); err != nil {
		t.Fatal(err)
	}
	sees(t, tap, func() ([]byte, error) { p, err := tap.Read(); return p.Data, err }, here)
	w.Encryption = func() string { return "all" }
	if _, _, err := w.Wire(nil); err == nil || !strings.Contains(err.Error(), "encrypted") {
		t.Errorf("of one that is encrypted: %v", err)
	}
	w.Encryption, w.Underlay = func() string { return "" }, "none"
	if _, _, err := w.Wire(nil); !errors.Is(err, link.ErrNotFound) {
		t.Errorf("without the interface: %v", err)
	}
}

// TestMirror: copies of what a container sends come to the one that is to get them; none to itself, to a client, or of one that is off.
func TestMirror(t *testing.T) {
	w := newTown(t)
	of := func(id string) cluster.Endpoint { return cluster.Endpoint{ID: id} }
	w.host.Do(func() {
		c, err := w.Mirror([]cluster.Endpoint{of(web)}, of(ids))
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		w.ids.Do(func() {
			if _, err := netlink.LinkByName(c.Name()); err != nil {
				t.Errorf("the device for copies: %v", err)
			}
		})
		for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			if err := w.Send(web, probe); err != nil {
				t.Error(err)
				return
			}
			if copied, _ := c.Counts(); copied > 0 {
				break
			}
			if time.Now().After(end) {
				t.Error("nothing is copied")
				break
			}
		}
	})
	for _, c := range []struct{ from, to, want string }{
		{web, web, "one sandbox"}, {web, phone, "a client can get none"}, {off, ids, "it does not run"}, {phone, ids, "of a client nothing"},
	} {
		w.host.Do(func() {
			if _, err := w.Mirror([]cluster.Endpoint{of(c.from)}, of(c.to)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("it is to say %q, and says %v", c.want, err)
			}
		})
	}
}
