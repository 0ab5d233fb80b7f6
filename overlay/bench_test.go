package overlay

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// crowd is a cluster of 1,000 hosts, 256 networks and perHost endpoints on each host, with
// a /22 for each network, of which sixteen hosts have a share. The first one knows all;
// the ports are its own.
func crowd(t testing.TB, perHost int) (hosts []*cluster.State, ports Ports) {
	t.Helper()
	hosts = make([]*cluster.State, 1000)
	for i := range hosts {
		sum := sha256.Sum256(fmt.Appendf(nil, "host %d", i))
		hosts[i] = cluster.New(cluster.NodeID(hex.EncodeToString(sum[:8])))
	}
	put := func(s *cluster.State, b cluster.Body) {
		if _, _, err := s.Put(b); err != nil {
			t.Fatal(err)
		}
	}
	s := hosts[0]
	ports = Ports{Tunnel: 1, Gateway: 2, GatewayMAC: macOf('z'), Endpoints: map[string]uint32{}}
	put(s, cluster.Claim{Block: netip.MustParsePrefix("0.0.0.0/0"), Owner: s.Self()})
	for n := range 256 {
		name, base := fmt.Sprintf("network%d", n), [4]byte{10, byte(128 + n>>6), byte(n << 2), 0}
		put(s, cluster.Network{Name: name, VNID: uint32(n + 1)})
		put(s, cluster.Subnet{Prefix: netip.PrefixFrom(netip.AddrFrom4(base), 22), Network: name, Gateway: netip.AddrFrom4([4]byte{10, base[1], base[2], 1})})
		for share := range 16 {
			block := netip.AddrFrom4([4]byte{10, base[1], base[2] + byte(share>>2), byte(share << 6)})
			put(s, cluster.Claim{Block: netip.PrefixFrom(block, 26), Owner: hosts[(n*16+share)%len(hosts)].Self()})
		}
	}
	for i, h := range hosts {
		put(h, cluster.Node{ID: h.Self(), Name: fmt.Sprintf("host%d", i), VTEP: netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(i)}), VXLANPort: 4789, MTU: 1500})
		for e := range perHost {
			id := fmt.Sprintf("%064x", i*perHost+e)
			put(h, cluster.Endpoint{
				ID: id, Network: fmt.Sprintf("network%d", e%256), Host: h.Self(), MAC: fmt.Sprintf("02:00:00:%02x:%02x:%02x", i>>8, i&255, e), Name: "app",
				Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, byte(200 + i>>8), byte(i), byte(e)})},
			})
			if i == 0 {
				ports.Endpoints[id] = uint32(10 + e)
			}
		}
		if i > 0 {
			var recs []cluster.Record
			for r := range h.Snapshot().Records() {
				recs = append(recs, r)
			}
			if _, err := s.Merge(recs); err != nil {
				t.Fatal(err)
			}
		}
	}
	return hosts, ports
}

func compiled(t testing.TB, s *cluster.State, ports Ports) []pipeline.Flow {
	t.Helper()
	in, _ := Plan(s.Snapshot(), s.Self(), pipeline.Metadata, ports)
	flows, err := pipeline.Compile(in)
	if err != nil {
		t.Fatal(err)
	}
	return flows
}

// TestFlowsDoNotGrowWithRemoteEndpoints: what is on other hosts costs no flow here.
func TestFlowsDoNotGrowWithRemoteEndpoints(t *testing.T) {
	few, ports := crowd(t, 1)
	many, _ := crowd(t, 10)
	few[0].Delete(cluster.Endpoint{ID: fmt.Sprintf("%064x", 0)}.Key(), now)
	ports.Endpoints = nil
	if a, b := len(compiled(t, few[0], ports)), len(compiled(t, many[0], ports)); a != b {
		t.Errorf("%d flows with 1,000 endpoints, %d with 10,000", a, b)
	}
}

// BenchmarkFlows is the way from a snapshot of 1,000 hosts with 100 endpoints each to
// what is to be changed in the switch: of the whole, and after one record has changed.
func BenchmarkFlows(b *testing.B) {
	hosts, ports := crowd(b, 100)
	s := hosts[0]
	before := compiled(b, s, ports)
	b.Logf("%d records, %d flows", s.Snapshot().Len(), len(before))
	snap := s.Snapshot()
	in, _ := Plan(snap, s.Self(), pipeline.Metadata, ports)
	run := func(name string, step func(i int)) {
		b.Run(name, func(b *testing.B) {
			begin, i := processor(), 0
			for b.Loop() {
				step(i)
				i++
			}
			b.ReportMetric(float64((processor()-begin).Microseconds())/1e3/float64(b.N), "ms-of-a-processor/op")
		})
	}
	run("plan", func(int) { Plan(snap, s.Self(), pipeline.Metadata, ports) })
	run("compile", func(int) { _, _ = pipeline.Compile(in) })
	run("diff", func(int) { pipeline.Diff(before, before) })
	run("all", func(int) { pipeline.Diff(before, compiled(b, s, ports)) })
	endpoint, _ := cluster.Get[cluster.Endpoint](snap, fmt.Sprintf("%064x", 0))
	remote, _ := cluster.Get[cluster.Endpoint](snap, fmt.Sprintf("%064x", 100))
	node, _ := cluster.Get[cluster.Node](snap, string(remote.Host))
	for _, one := range []struct {
		name   string
		change func(i int) cluster.Body
		flows  bool
	}{
		{"remote endpoint changed", func(i int) cluster.Body { remote.Name = fmt.Sprint("app", i); return remote }, false},
		{"endpoint changed", func(i int) cluster.Body { endpoint.MAC = macOf(byte(i % 100)).String(); return endpoint }, true},
		{"host changed", func(i int) cluster.Body {
			node.VTEP = netip.AddrFrom4([4]byte{192, 168, 99, byte(i % 2)})
			return node
		}, true},
		{"range changed", func(i int) cluster.Body {
			return cluster.Claim{Block: netip.MustParsePrefix("10.128.0.64/26"), Owner: hosts[2+i%2].Self()}
		}, true},
	} {
		var p plans
		var compiler pipeline.Compiler
		pass := func() pipeline.Changes {
			topology := p.topology
			in, _ := p.plan(s.Snapshot(), s.Self(), pipeline.Metadata, ports)
			_, changes, err := compiler.Compile(in)
			if err != nil {
				b.Fatal(err)
			}
			if p.topology != topology {
				gatewayOf(s.Snapshot(), in, nil, nil, 1500)
			}
			return changes
		}
		pass()
		run(one.name, func(i int) {
			body, by := one.change(i), s
			if body.Key() == remote.Key() || body.Key() == node.Key() {
				by = hosts[1]
			}
			rec, _, err := by.Put(body)
			if err == nil && by != s {
				_, err = s.Merge([]cluster.Record{rec})
			}
			if err != nil {
				b.Fatal(err)
			}
			if changes := pass(); changes.Empty() == one.flows {
				b.Fatalf("%s: %d flows changed", one.name, len(changes.Lines()))
			}
		})
	}
}

// BenchmarkListens is a plan after a container of another host has joined or left a group, among 10,000 endpoints, on a network
// of 1,000 with one of this host, and on one without.
func BenchmarkListens(b *testing.B) {
	hosts, ports := crowd(b, 10)
	s := hosts[0]
	write := func(by *cluster.State, body cluster.Body) {
		rec, _, err := by.Put(body)
		if err == nil && by != s {
			_, err = s.Merge([]cluster.Record{rec})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	for i, h := range hosts {
		for e := range cluster.Written[cluster.Endpoint](h.Snapshot(), h.Self()) {
			e.Addrs = append(e.Addrs, netip.MustParseAddr(fmt.Sprintf("fd00::%x:%s", i, e.ID[60:])))
			write(h, e)
			if e.Network != "network2" {
				write(h, cluster.Listen{Endpoint: e.ID, Host: h.Self(), Groups: []netip.Addr{netip.MustParseAddr("224.0.0.251")}})
			}
		}
	}
	s.Delete(cluster.Endpoint{ID: fmt.Sprintf("%064x", 1)}.Key(), now)
	delete(ports.Endpoints, fmt.Sprintf("%064x", 1))
	for _, network := range []string{"network0", "network1"} {
		n, _ := cluster.Get[cluster.Network](s.Snapshot(), network)
		n.Options = map[string]string{cluster.MulticastOption: "on"}
		write(s, n)
	}
	for name, e := range map[string]int{"a network of this host": 10, "another network": 11} {
		b.Run(name, func(b *testing.B) {
			var p plans
			in, _ := p.plan(s.Snapshot(), s.Self(), pipeline.Metadata, ports)
			if len(in.Groups) == 0 || len(in.Neighbours) == 0 {
				b.Fatal("nobody is told of")
			}
			begin, i := processor(), 0
			for b.Loop() {
				b.StopTimer()
				write(hosts[1], cluster.Listen{Endpoint: fmt.Sprintf("%064x", e), Host: hosts[1].Self(), Groups: []netip.Addr{netip.AddrFrom4([4]byte{239, 1, 1, byte(i)})}})
				i++
				b.StartTimer()
				p.plan(s.Snapshot(), s.Self(), pipeline.Metadata, ports)
			}
			b.ReportMetric(float64((processor()-begin).Microseconds())/1e3/float64(b.N), "ms-of-a-processor/op")
		})
	}
}

// processor is the time that this process has had of processors: other than the clock, it
// does not tell how busy the machine was.
func processor() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used) // never fails
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
