package gossip

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"
)

// socketHosts starts hosts on loopback addresses, with real sockets on ports that
// the kernel chooses.
func socketHosts(t *testing.T, ips ...string) []*host {
	t.Helper()
	var hosts []*host
	for i, ip := range ips {
		hosts = append(hosts, start(t, nil, i, func(c *Config) {
			c.Bind, c.Join = netip.AddrPortFrom(netip.MustParseAddr(ip), 0), nil
			if i > 0 {
				c.Join = []string{hosts[0].Addr().String()}
			}
		}))
	}
	within(t, 10*time.Second, "all hosts see each other", func() bool { return allSee(hosts, len(hosts)-1) })
	return hosts
}

func TestRealSockets(t *testing.T) {
	before := runtime.NumGoroutine()
	hosts := socketHosts(t, "127.0.71.1", "127.0.71.2", "127.0.71.3")
	hosts[1].Broadcast(hosts[1].state.put("k", "v"))
	t.Logf("broadcast after %v", within(t, 3*time.Second, "all have k", allHave(hosts, "k", "v")))
	hosts[0].state.put("silent", "v")
	t.Logf("mended after %v", within(t, 5*time.Second, "all have silent", allHave(hosts, "silent", "v")))
	hosts[2].Handle("echo", func(_ context.Context, _ string, b []byte) ([]byte, error) { return b, nil })
	// The sockets of all hosts send from one address, at which none of them is: it has to have shown the key first.
	if _, err := hosts[0].Call(context.Background(), hosts[2].id, "echo", []byte("x")); err != nil {
		t.Error(err)
	}
	body := bytes.Repeat([]byte("x"), MaxBody)
	began := time.Now()
	got, err := hosts[0].Call(context.Background(), hosts[2].id, "echo", body)
	if err != nil || !bytes.Equal(got, body) {
		t.Errorf("echo of %d bytes: %d, %v", len(body), len(got), err)
	}
	t.Logf("16 MiB there and back in %v", time.Since(began))
	for _, h := range hosts {
		h.stop()
	}
	if n, trace := leaked(before); n > 0 {
		t.Errorf("%d goroutines have not ended:\n%s", n, trace)
	}
}

// leaked says how many goroutines there are more than before, once memberlist's
// have had time to see its end.
func leaked(before int) (n int, trace string) {
	for range 50 {
		if n = runtime.NumGoroutine() - before; n <= 0 {
			return 0, ""
		}
		time.Sleep(50 * time.Millisecond)
	}
	buf := make([]byte, 1<<20)
	return n, string(buf[:runtime.Stack(buf, true)])
}

// A host behind NAT listens at one address and is reached at another.
func TestAdvertiseDiffersFromBind(t *testing.T) {
	first := start(t, nil, 0, func(c *Config) {
		c.Bind, c.Join = netip.MustParseAddrPort("127.0.72.1:0"), nil
	})
	second := start(t, nil, 1, func(c *Config) {
		c.Bind, c.Join = netip.MustParseAddrPort("0.0.0.0:0"), []string{first.Addr().String()}
		c.Advertise = netip.MustParseAddrPort("127.0.72.2:0")
	})
	within(t, 10*time.Second, "they see each other", func() bool { return allSee([]*host{first, second}, 1) })
	for _, m := range first.Members() {
		if m.ID == second.id && m.Addr.Addr() != netip.MustParseAddr("127.0.72.2") {
			t.Errorf("second host is seen at %v", m.Addr)
		}
	}
	second.Handle("ping", func(context.Context, string, []byte) ([]byte, error) { return []byte("pong"), nil })
	if got, err := first.Call(context.Background(), second.id, "ping", nil); err != nil || string(got) != "pong" {
		t.Errorf("call: %q, %v", got, err)
	}
}

// Keys rotate under traffic: install everywhere, use everywhere, remove.
func TestKeysRotate(t *testing.T) {
	hosts := socketHosts(t, "127.0.73.1", "127.0.73.2", "127.0.73.3")
	third, second := GenerateKey(), GenerateKey()
	for _, step := range []func(*host) error{
		func(h *host) error { return h.InstallKey(second) },
		func(h *host) error { return h.InstallKey(third) },
		func(h *host) error { return h.UseKey(second) },
		func(h *host) error { return h.RemoveKey(testKey) },
		func(h *host) error { return h.RemoveKey(testKey) }, // again: no error
		func(h *host) error { return h.RemoveKey(third) },
	} {
		for _, h := range hosts {
			if err := step(h); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	if keys := hosts[0].ListKeys(); len(keys) != 1 || !bytes.Equal(keys[0], second) {
		t.Errorf("keys %x", keys)
	}
	hosts[0].Broadcast(hosts[0].state.put("k", "v"))
	within(t, 5*time.Second, "all have k", allHave(hosts, "k", "v"))
	for _, h := range hosts {
		if h.Stats()[RefusedKey] != 0 {
			t.Errorf("host %s refused a key: %v", h.id, h.Stats())
		}
	}
	for want, err := range map[string]error{
		"install it first": hosts[0].UseKey(third), "in use": hosts[0].RemoveKey(second), "key size": hosts[0].InstallKey([]byte("x")),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestNoPlaceToListen: the error says what to do.
func TestNoPlaceToListen(t *testing.T) {
	at := netip.MustParseAddrPort("127.0.71.9:17947")
	taken, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for bind, want := range map[netip.AddrPort]string{
		at: "GRAPEVINE_PORT", netip.MustParseAddrPort("192.0.2.77:17947"): "GRAPEVINE_BIND",
	} {
		_, err := New(Config{Node: "0123456789abcdef", Bind: bind, Keys: [][]byte{GenerateKey()}, Log: quiet()}, newToy())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("listen on %s: %v, want one with %s", bind, err, want)
		}
	}
}
