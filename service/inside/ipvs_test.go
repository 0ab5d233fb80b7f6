package inside

import (
	"flag"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	againstIPVS = flag.Bool("ipvs", false, "TestIPVS: compare with IPVS, which the kernel has to have (tests/uml TestServices)")
	ipvsTurns   = flag.Int("ipvs-turns", 15, "turns of TestIPVS, of half a second for each way")
)

// TestIPVS compares connections a second by a service's address with those by one of IPVS with the same replicas, in the same
// container, set as Swarm sets it, and with those to a replica's own: each makes a connection, says a word and hears one. Swarm itself has one
// network namespace more on the way.
func TestIPVS(t *testing.T) {
	if !*againstIPVS {
		t.Skip("by hand, or by tests/uml TestServices: -ipvs")
	}
	w := newTown(t)
	w.put(web)
	w.attached()
	w.client.Do(func() {
		const set = `set -e
			modprobe ip_vs || true; modprobe ip_vs_rr || true
			for one in conntrack=1 expire_nodest_conn=1 expire_quiescent_template=1 conn_reuse_mode=0; do sysctl -qw net.ipv4.vs.$one; done
			ipvsadm -A -t 10.1.0.8:80 -s rr
			ipvsadm -a -t 10.1.0.8:80 -r 10.1.0.11:8080 -m
			ipvsadm -a -t 10.1.0.8:80 -r 10.1.0.12:8080 -m`
		if out, err := exec.Command("sh", "-c", set).CombinedOutput(); err != nil {
			t.Fatalf("set up IPVS: %v: %s", err, out)
		}
	})
	ways := []struct{ name, addr string }{{"a replica's own", "10.1.0.11:8080"}, {"the service", "10.1.0.9:80"}, {"IPVS", "10.1.0.8:80"}}
	for _, way := range ways[1:] { // each leads to both
		if said := w.answers("tcp", way.addr); len(said) != 2 {
			t.Fatalf("%s leads to %v", way.name, said)
		}
	}
	rates := map[string][]float64{}
	for turn := range *ipvsTurns {
		for i := range ways {
			way := ways[(i+turn)%len(ways)]
			rates[way.name] = append(rates[way.name], w.connections(way.addr, 500*time.Millisecond))
		}
	}
	for _, way := range ways {
		t.Logf("connections a second, %s: %.0f", way.name, middle(rates[way.name]))
	}
	for _, pair := range [][2]string{{"the service", "IPVS"}, {"the service", "a replica's own"}, {"IPVS", "a replica's own"}} {
		var of []float64
		for i, rate := range rates[pair[0]] {
			of = append(of, rate/rates[pair[1]][i])
		}
		slices.Sort(of)
		t.Logf("%s / %s: %.2f (%.2f to %.2f)", pair[0], pair[1], middle(of), of[len(of)/4], of[len(of)*3/4])
	}
}

// connections is how many a second one caller makes.
func (w *town) connections(addr string, during time.Duration) (rate float64) {
	w.client.Do(func() {
		begin, n := time.Now(), 0
		for time.Since(begin) < during {
			c, err := net.DialTimeout("tcp", addr, 5*time.Second)
			if err != nil {
				w.t.Errorf("%s: %v", addr, err)
				return
			}
			if said, err := ask(c); err != nil || !strings.HasSuffix(said, " saw 10.1.0.2\n") {
				w.t.Errorf("%s: %q, %v", addr, said, err)
			}
			_ = c.(*net.TCPConn).SetLinger(0) // else it runs out of ports
			c.Close()
			n++
		}
		rate = float64(n) / time.Since(begin).Seconds()
	})
	return rate
}

func middle(list []float64) float64 {
	v := slices.Sorted(slices.Values(list))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
