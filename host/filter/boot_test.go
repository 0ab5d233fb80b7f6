package filter

import (
	"log/slog"
	"net"
	"net/netip"
	"testing"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// From a boot to the agent's start nothing leaves for containers another way; the agent's rules end that, and no Boot does
// anything beside them.
func TestBoot(t *testing.T) {
	host, wire := linktest.New(t), linktest.New(t)
	linktest.Wire(t, "eth0", host, wire, []string{"10.9.0.1/24", "fd00:9::1/64"}, []string{"10.9.0.2/24", "fd00:9::2/64", "10.128.1.2/32", "fd42::2/128"})
	serve(t, wire)
	host.Do(func() {
		run(t, "ip", "route", "add", "default", "via", "10.9.0.2")
		run(t, "ip", "-6", "route", "add", "default", "via", "fd00:9::2")
		run(t, "ip", "link", "add", "gv0", "type", "bridge")
	})
	passes := func(when string, want bool) {
		t.Helper()
		for _, addr := range []string{"10.128.1.2", "fd42::2"} {
			to := net.JoinHostPort(addr, "80")
			if want {
				eventually(t, when+": to "+addr, func() bool { return reaches(host, to, 0) })
			} else if reaches(host, to, 0) {
				t.Errorf("%s: %s is reached in the clear", when, addr)
			}
		}
		eventually(t, when+": to others", func() bool { return reaches(host, "10.9.0.2:80", 0) })
	}
	boot := func(want bool) {
		t.Helper()
		host.Do(func() {
			done, err := Boot("gv0", []netip.Prefix{netip.MustParsePrefix("10.128.1.0/24"), netip.MustParsePrefix("fd42::/64")})
			if err != nil || done != want {
				t.Errorf("Boot says %t, %v, want %t", done, err, want)
			}
		})
	}
	passes("without", true)
	boot(true)
	boot(true)
	passes("after a boot", false)
	host.Do(func() {
		f, err := Open(slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := f.Set(config); err != nil {
			t.Fatal(err)
		}
	})
	passes("with an agent that encrypts nothing any more", true)
	boot(false)
	host.Do(func() {
		if _, err := Purge(); err != nil {
			t.Fatal(err)
		}
	})
	boot(true)
	passes("after a boot again", false)
	host.Do(func() {
		if _, err := Purge(); err != nil {
			t.Fatal(err)
		}
	})
	passes("after a clean-up", true)
}
