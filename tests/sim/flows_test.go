package sim

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/overlay"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// Of what the flows of one host are counted: of clusters with so many hosts and networks, each of
// which has a /22 that so many hosts at most share, and with so many endpoints on each other
// host. It has a few of its own.
var (
	flowHosts     = []int{10, 100, 1000}
	flowNetworks  = []int{1, 16, 256}
	flowEndpoints = []int{1, 10, 100}
)

const (
	flowShares = 16
	flowOwn    = 10
)

// TestFlows counts the flows of one host. They must not grow with the endpoints of others. Of
// a thousand hosts it does so if -hosts has as many.
func TestFlows(t *testing.T) {
	largest := slices.Max(numbers(t, *sizes))
	var table strings.Builder
	var columns [][2]string
	var values [][]float64
	for _, hosts := range flowHosts {
		if hosts > 100 && hosts > largest {
			continue
		}
		var bars []float64
		for _, networks := range flowNetworks {
			var counts []int
			for _, endpoints := range flowEndpoints {
				counts = append(counts, countFlows(t, hosts, networks, endpoints))
			}
			if slices.Min(counts) != slices.Max(counts) {
				t.Errorf("%d hosts, %d networks: %d flows with %d endpoints on each other host", hosts, networks, counts, flowEndpoints)
			}
			fmt.Fprintf(&table, "| %d | %d |", hosts, networks)
			for _, n := range counts {
				fmt.Fprintf(&table, " %d |", n)
			}
			fmt.Fprintln(&table)
			bars = append(bars, float64(counts[0]))
		}
		columns, values = append(columns, [2]string{fmt.Sprintf("%d hosts", hosts), ""}), append(values, bars)
	}
	header, line := "\n| hosts | networks |", "|---|---|"
	for _, n := range flowEndpoints {
		header, line = header+fmt.Sprintf(" flows, %d endpoints on each other host |", n), line+"---|"
	}
	text := header + "\n" + line + "\n" + table.String()
	t.Log("\n" + text)
	if *out == "" || largest < slices.Max(flowHosts) {
		return
	}
	p := plot{10, 1e5, "%.0f", 0, []mark{{"1 network", "#4477aa"}, {"16 networks", "#228833"}, {"256 networks", "#aa3377"}}}
	chart := p.draw(columns, func(b *strings.Builder, i, x int) { p.bars(b, x, values[i]...) })
	if err := keepFlows(*out, text, chart); err != nil {
		t.Fatal(err)
	}
}

// countFlows compiles the flows of the first host.
func countFlows(t *testing.T, hosts, networks, endpoints int) int {
	t.Helper()
	states := make([]*cluster.State, hosts)
	for i := range states {
		sum := sha256.Sum256(fmt.Appendf(nil, "host %d", i))
		states[i] = cluster.New(cluster.NodeID(hex.EncodeToString(sum[:8])))
	}
	put := func(s *cluster.State, b cluster.Body) {
		if _, _, err := s.Put(b); err != nil {
			t.Fatal(err)
		}
	}
	first := states[0]
	put(first, cluster.Claim{Block: netip.MustParsePrefix("0.0.0.0/0"), Owner: first.Self()})
	shares := min(hosts, flowShares)
	for n := range networks {
		a := [4]byte{10, byte(128 + n>>6), byte(n << 2), 0}
		prefix := netip.PrefixFrom(netip.AddrFrom4(a), 22)
		put(first, cluster.Network{Name: fmt.Sprintf("net%d", n), VNID: uint32(n + 1)})
		put(first, cluster.Subnet{Prefix: prefix, Network: fmt.Sprintf("net%d", n), Gateway: prefix.Addr().Next()})
		for share := range shares {
			block := netip.AddrFrom4([4]byte{10, a[1], a[2] + byte(share>>2), byte(share << 6)})
			put(first, cluster.Claim{Block: netip.PrefixFrom(block, 26), Owner: states[(n*shares+share)%hosts].Self()})
		}
	}
	ports := overlay.Ports{Tunnel: 1, Gateway: 2, GatewayMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, Endpoints: map[string]uint32{}}
	for i, s := range states {
		put(s, cluster.Node{ID: s.Self(), Name: fmt.Sprintf("host%d", i), VTEP: addr(i).Addr(), Gossip: addr(i), VXLANPort: 4789, MTU: 1500, Datapath: "kernel"})
		there := endpoints
		if i == 0 {
			there = flowOwn
		}
		for e := range there {
			n := (i + e) % networks
			body := cluster.Endpoint{
				ID: fmt.Sprintf("%064x", i*1000+e), Network: fmt.Sprintf("net%d", n), Host: s.Self(), Name: "app",
				MAC:   fmt.Sprintf("02:00:00:%02x:%02x:%02x", i>>8, i&255, e),
				Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, byte(128 + n>>6), byte(n<<2) + byte(i%shares>>2), byte(i%shares<<6 + 2 + e%62)})},
			}
			put(s, body)
			if i == 0 {
				ports.Endpoints[body.ID] = uint32(10 + e)
			}
		}
		if i == 0 {
			continue
		}
		if _, err := first.Merge(slices.Collect(s.Snapshot().Records())); err != nil {
			t.Fatal(err)
		}
	}
	in, problems := overlay.Plan(first.Snapshot(), first.Self(), pipeline.Metadata, ports)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	flows, err := pipeline.Compile(in)
	if err != nil {
		t.Fatal(err)
	}
	return len(flows)
}

// keepFlows writes what TestFlows found beside the page at path.
func keepFlows(path, table, chart string) error {
	if err := os.MkdirAll(kept(path), 0o755); err != nil {
		return err
	}
	text := fmt.Sprintf("## Flows of one host\n\nWith %d endpoints of its own. Each network has a /22, of which up to %d hosts have a share, so that a large cluster's flows are those of\nits hosts (a tunnel's source and destination each) and of its ranges. What is on other hosts costs none.\n\n![flows of one host](%s-flows.svg)\n%s", flowOwn, flowShares, filepath.Base(kept(path)), table)
	if err := os.WriteFile(kept(path)+"-flows.svg", []byte(chart), 0o644); err != nil {
		return err
	}
	return os.WriteFile(flowsFile(path), []byte(text), 0o644)
}

func flowsFile(path string) string { return filepath.Join(kept(path), "flows.md") }
