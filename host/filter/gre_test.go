package filter

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestGRE: what is dropped of VXLAN by its port is dropped of GRE, which has none: real packets, whole and in fragments,
// through both kinds of rules. While no host has GRE, all of it is other people's.
func TestGRE(t *testing.T) {
	for name, open := range map[string]func() (*Filter, error){"nftables": openFilter, "iptables": openLegacyFilter} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, open)
			heard := hearGRE(w)
			set := func(cfg Config) {
				w.host.Do(func() {
					if err := w.filter.Set(cfg); err != nil {
						t.Fatal(err)
					}
				})
			}
			cfg := config
			cfg.GRE, cfg.VXLAN, cfg.VXLANs, cfg.Ports = true, 0, nil, []uint16{7947}
			set(cfg)
			// NAT knows no ports here, and so has one sender at a time to one machine.
			heard.check([]packet{
				{"plain", "vtep", "", false},
				{"web", "vtep", "", false},
				{"web", "away", "", false}, // it would be this host's there
				{"plain", "away", "", true},
				{"plain", "behind", "", false},
				{"web", "behind", "", false},
				{"vm", "behind", "", false}, // masqueraded
				{"vm", "vtep", "", false},
				{"plain", "host", "", false},
				{"web", "host", "", false},
				{"locked", "host", "", false},
				{"vtep", "host", "", true},
				{"vtep", "second", "", false}, // another address of this host
				{"away", "second", "", true},
				{"host", "vtep", "", true},
			})
			w.at["vm"].Do(func() { // as another host
				run(t, "ip", "addr", "replace", "10.9.0.3/32", "dev", "lo")
				run(t, "ip", "addr", "replace", "fd00:9::3/128", "dev", "lo", "nodad")
			})
			heard.check([]packet{{"vm", "host", "vtep", false}})
			set(config)
			heard.check([]packet{{"web", "behind", "", true}, {"locked", "host", "", true}})
		})
	}
}

// packet is who may send GRE to whom, as who.
type packet struct {
	from, to, as string
	want         bool
}

// ears hear all that comes in GRE, anywhere.
type ears struct {
	*world
	mu    sync.Mutex
	heard map[string]bool
}

// addrOf is an address of a machine of the world, or of one of the host's two.
func (w *world) addrOf(name, family string) string {
	switch name {
	case "host":
		return map[string]string{"": "10.9.0.1", "/6": "fd00:9::1"}[family]
	case "second":
		return map[string]string{"": "10.9.0.77", "/6": "fd00:9::77"}[family]
	}
	return w.addr[name+family]
}

func hearGRE(w *world) *ears {
	e := &ears{world: w, heard: map[string]bool{}}
	names := []string{"host"}
	for name := range w.at {
		names = append(names, name)
	}
	for _, name := range names {
		ns := w.at[name]
		if name == "host" {
			ns = w.host
		}
		for _, network := range []string{"ip4:47", "ip6:47"} {
			var p net.PacketConn
			var err error
			ns.Do(func() { p, err = net.ListenPacket(network, "") })
			if err != nil {
				w.t.Fatal(err)
			}
			w.t.Cleanup(func() { p.Close() })
			go func() {
				b := make([]byte, 1<<16)
				for {
					n, _, err := p.ReadFrom(b)
					if err != nil {
						return
					}
					marker, _, _ := strings.Cut(string(b[:n]), ";")
					e.mu.Lock()
					e.heard[marker] = true
					e.mu.Unlock()
				}
			}()
		}
	}
	return e
}

func (e *ears) has(marker string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.heard[marker]
}

// check sends all of the packets at once, by both families, whole and in fragments.
func (e *ears) check(packets []packet) {
	e.t.Helper()
	e.mu.Lock()
	clear(e.heard)
	e.mu.Unlock()
	var wait sync.WaitGroup
	for _, p := range packets {
		for _, family := range []string{"", "/6"} {
			for _, size := range []int{100, 4000} {
				wait.Go(func() { e.try(p, family, size) })
			}
		}
	}
	wait.Wait()
}

func (e *ears) try(p packet, family string, size int) {
	ns, network := e.at[p.from], "ip4:47"
	if p.from == "host" {
		ns = e.host
	}
	if family != "" {
		network = "ip6:47"
	}
	d := net.Dialer{}
	if p.as != "" {
		d.LocalAddr = &net.IPAddr{IP: net.ParseIP(e.addrOf(p.as, family))}
	}
	marker := fmt.Sprintf("%s to %s%s as %s, %d bytes", p.from, p.to, family, p.as, size)
	for range 3 { // the machine may be busy
		var c net.Conn
		var err error
		ns.Do(func() { c, err = d.Dial(network, e.addrOf(p.to, family)) })
		if err == nil {
			_, err = c.Write([]byte(marker + ";" + strings.Repeat("x", size)))
			c.Close()
		}
		if err != nil {
			e.t.Errorf("%s: %v", marker, err)
			return
		}
		for end := time.Now().Add(400 * time.Millisecond); time.Now().Before(end) && !e.has(marker); time.Sleep(5 * time.Millisecond) {
		}
		if e.has(marker) || !p.want {
			break
		}
	}
	if got := e.has(marker); got != p.want {
		e.t.Errorf("GRE from %s: arrived %v, want %v", marker, got, p.want)
	}
}
