package filter

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// TestBound: what leaves by another host is not sent to the outside by this one, unless it is an answer: neither as it is
// nor with the host's address. Hosts of the cluster and other networks are reached as ever.
func TestBound(t *testing.T) {
	w := newWorld(t, func() (*Filter, error) { return Open(slog.New(slog.DiscardHandler)) })
	if _, is := w.filter.with.(*tables); !is {
		t.Fatal("this kernel has no nf_tables")
	}
	var seen *linktest.Socket
	w.at["away"].Do(func() { seen = linktest.Open(t, "away") })
	defer seen.Close()
	// leaves says whether a datagram of web reaches the outside; that of plain does in any case.
	leaves := func() (yes bool) {
		t.Helper()
		for i, from := range []string{"web", "plain"} {
			w.at[from].Do(func() {
				c, err := net.Dial("udp4", net.JoinHostPort(w.addr["away"], fmt.Sprint(9+i)))
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				_, _ = c.Write([]byte("x"))
			})
		}
		for {
			f := seen.Receive(5 * time.Second)
			switch {
			case f == nil:
				t.Fatal("not even the other network's datagram leaves")
			case len(f) < 38 || f[12] != 8 || f[13] != 0 || f[23] != 17:
			case f[37] == 9:
				yes = true
			case f[37] == 10:
				return yes
			}
		}
	}
	set := func(cfg Config) {
		t.Helper()
		w.host.Do(func() {
			if err := w.filter.Set(cfg); err != nil {
				t.Fatal(err)
			}
		})
	}
	set(config)
	if !leaves() {
		t.Fatal("without an egress it does not leave: nothing is tested")
	}
	cfg := config
	cfg.Elsewhere = []netip.Prefix{netip.MustParsePrefix("10.128.0.2/32")}
	set(cfg)
	if leaves() {
		t.Error("it leaves by this host")
	}
	if !reaches(w.at["away"], "10.9.0.1:8080", 0) {
		t.Error("who comes in by a published port gets no answer")
	}
	if !reaches(w.at["web"], "10.9.0.1:8081", 0) {
		t.Error("it does not reach what Docker publishes on its own host")
	}
	cfg.VTEPs = append(cfg.VTEPs, netip.MustParseAddr(w.addr["away"]))
	set(cfg)
	if !leaves() {
		t.Error("it does not reach a host of the cluster")
	}
}
