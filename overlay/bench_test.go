package overlay

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// crowd is a cluster of 1,000 hosts, 256 networks and perHost endpoints on each host, with
// a /22 for each network, of which sixteen hosts have a share. It returns the snapshot of
// one of them with its ports, and a way to change it.
func crowd(t testing.TB, perHost int) (s *cluster.State, ports Ports) {
	t.Helper()
	hosts := make([]*cluster.State, 1000)
	for i := range hosts {
		sum := sha256.Sum256(fmt.Appendf(nil, "host %d", i))
		hosts[i] = cluster.New(cluster.NodeID(hex.EncodeToString(sum[:8])))
	}
	put := func(s *cluster.State, b cluster.Body) {
		if _, _, err := s.Put(b); err != nil {
			t.Fatal(err)
		}
	}
	s, ports = hosts[0], Ports{Tunnel: 1, Gateway: 2, GatewayMAC: macOf('z'), Endpoints: map[string]uint32{}}
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
			if _, _, err := s.Merge(recs); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s, ports
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
	few.Delete(cluster.Endpoint{ID: fmt.Sprintf("%064x", 0)}.Key(), now)
	ports.Endpoints = nil
	if a, b := len(compiled(t, few, ports)), len(compiled(t, many, ports)); a != b {
		t.Errorf("%d flows with 1,000 endpoints, %d with 10,000", a, b)
	}
}

// TestCompiledAgain: flows that are not compiled again are those of the input.
func TestCompiledAgain(t *testing.T) {
	s, ports := crowd(t, 1)
	in, _ := Plan(s.Snapshot(), s.Self(), pipeline.Metadata, ports)
	other := in
	other.Routes = other.Routes[1:]
	r := &reconciler{}
	for i, in := range []pipeline.Input{in, in, other, in} {
		got, err := r.compile(in)
		want, _ := pipeline.Compile(in)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("input %d: %d flows of %d, %v", i, len(got), len(want), err)
		}
	}
}

// BenchmarkFlows is the way from a snapshot of 1,000 hosts with 100 endpoints each to
// what is to be changed in the switch.
func BenchmarkFlows(b *testing.B) {
	s, ports := crowd(b, 100)
	before := compiled(b, s, ports)
	b.Logf("%d records, %d flows", s.Snapshot().Len(), len(before))
	snap := s.Snapshot()
	in, _ := Plan(snap, s.Self(), pipeline.Metadata, ports)
	for name, step := range map[string]func(r *reconciler){
		"plan":    func(*reconciler) { Plan(snap, s.Self(), pipeline.Metadata, ports) },
		"compile": func(*reconciler) { _, _ = pipeline.Compile(in) },
		"diff":    func(*reconciler) { pipeline.Diff(before, before) },
		"all":     func(*reconciler) { pipeline.Diff(before, compiled(b, s, ports)) },
		"remote endpoint changed": func(r *reconciler) {
			in, _ := Plan(snap, s.Self(), pipeline.Metadata, ports)
			want, _ := r.compile(in)
			pipeline.Diff(before, want)
		},
	} {
		b.Run(name, func(b *testing.B) {
			r := &reconciler{input: in, want: before}
			begin := processor()
			for b.Loop() {
				step(r)
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
