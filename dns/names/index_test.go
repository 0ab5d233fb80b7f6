package names

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/grapevine-net/grapevine/cluster"
)

const (
	hostA = cluster.NodeID("aaaaaaaaaaaaaaaa")
	hostB = cluster.NodeID("bbbbbbbbbbbbbbbb")
)

var (
	networkNames = []string{"blue", "Green", "shop_default", "c.d"}
	someNames    = []string{"db", "DB", "app", "a.b", "a", "api.example.com"}
)

// world is two hosts that write at random and hear each other late and in part.
type world struct {
	states map[cluster.NodeID]*cluster.State
	kept   []cluster.Record // what the other host may still hear
	clock  int64
}

func newWorld() *world {
	return &world{states: map[cluster.NodeID]*cluster.State{hostA: cluster.New(hostA), hostB: cluster.New(hostB)}}
}

// step makes one random change, or has host A hear something.
func (w *world) step(t *rapid.T) {
	host := rapid.SampledFrom([]cluster.NodeID{hostA, hostB}).Draw(t, "host")
	s := w.states[host]
	switch rapid.IntRange(0, 7).Draw(t, "do") {
	case 0, 1, 2:
		w.put(t, s, drawEndpoint(t, host))
	case 3:
		name := rapid.SampledFrom(networkNames).Draw(t, "network")
		w.put(t, s, cluster.Network{Name: name, VNID: 1, Internal: rapid.Bool().Draw(t, "internal")})
	case 4:
		i := rapid.IntRange(0, 3).Draw(t, "subnet")
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 0}), 16)
		w.put(t, s, cluster.Subnet{Prefix: p, Network: networkNames[rapid.IntRange(0, 3).Draw(t, "of")], Gateway: p.Addr().Next()})
	case 5:
		id := endpointID(host, rapid.IntRange(0, 7).Draw(t, "endpoint"))
		w.clock++
		if r, ok := s.Delete(cluster.Key{Kind: cluster.KindEndpoint, ID: id}, time.Unix(w.clock, 0)); ok {
			w.kept = append(w.kept, r)
		}
	case 6: // one message, whichever
		if len(w.kept) > 0 {
			r := rapid.SampledFrom(w.kept).Draw(t, "message")
			_, _ = w.states[hostA].Merge([]cluster.Record{r})
		}
	case 7: // the whole of what is missing
		other := w.states[hostB]
		recs := slices.Collect(other.Missing(w.states[hostA].Digest()))
		_, _ = w.states[hostA].Merge(recs)
		_ = w.states[hostA].Complete(other.Digest())
	}
}

func (w *world) put(t *rapid.T, s *cluster.State, b cluster.Body) {
	r, written, err := s.Put(b)
	if err != nil {
		t.Fatalf("put %+v: %v", b, err)
	}
	if written {
		w.kept = append(w.kept, r)
	}
}

func endpointID(host cluster.NodeID, i int) string {
	return fmt.Sprintf("%s%048x", host, i)
}

func drawEndpoint(t *rapid.T, host cluster.NodeID) cluster.Endpoint {
	i := rapid.IntRange(0, 7).Draw(t, "endpoint")
	// Addresses of the two hosts overlap in time: an address moves.
	last := byte(rapid.IntRange(2, 12).Draw(t, "addr"))
	e := cluster.Endpoint{
		ID: endpointID(host, i), Host: host, MAC: "02:00:00:00:00:01",
		Network: rapid.SampledFrom(networkNames).Draw(t, "network"),
		Name:    rapid.SampledFrom(append(someNames, "")).Draw(t, "name"),
		Aliases: rapid.SliceOfN(rapid.SampledFrom(someNames), 0, 3).Draw(t, "aliases"),
		Addrs:   []netip.Addr{netip.AddrFrom4([4]byte{10, byte(i % 4), 0, last})},
	}
	if rapid.Bool().Draw(t, "dual") {
		e.Addrs = append(e.Addrs, netip.MustParseAddr(fmt.Sprintf("fd00::%x", last)))
	}
	if c := rapid.IntRange(0, 3).Draw(t, "container"); c > 0 {
		e.Container = strings.Repeat(strconv.Itoa(c), 64)
	}
	return e
}

// sees is the rule of who sees what, said plainly: the networks of the asker.
func sees(s *cluster.Snapshot, asker cluster.Endpoint) map[string]bool {
	seen := map[string]bool{asker.Network: true}
	for e := range cluster.All[cluster.Endpoint](s) {
		if asker.Container != "" && e.Container == asker.Container && e.Host == asker.Host {
			seen[e.Network] = true
		}
	}
	return seen
}

func namesOf(e cluster.Endpoint) []string {
	all := append([]string{e.Name}, e.Aliases...)
	if e.Container != "" {
		all = append(all, e.Container[:12])
	}
	for i := range all {
		all[i] = strings.ToLower(all[i])
	}
	return slices.DeleteFunc(all, func(n string) bool { return n == "" })
}

// want is what Lookup has to find, in as few words as can be.
func want(s *cluster.Snapshot, asker cluster.Endpoint, name string, hosts Hosts) (addrs []netip.Addr, found bool) {
	seen := sees(s, asker)
	order := []string{asker.Network}
	for _, n := range slices.Sorted(maps.Keys(seen)) {
		if n != asker.Network {
			order = append(order, n)
		}
	}
	try := func(name, network string) bool {
		for _, n := range order {
			if network != "" && strings.ToLower(n) != network {
				continue
			}
			best := cluster.Doubtful
			for e := range cluster.All[cluster.Endpoint](s) {
				standing := hosts(e.Host)
				if e.Network != n || standing > best || !slices.Contains(namesOf(e), name) {
					continue
				}
				if standing < best {
					best, addrs = standing, nil
				}
				addrs, found = append(addrs, e.Addrs...), true
			}
			if found {
				return true
			}
		}
		return false
	}
	if try(name, "") {
		return addrs, true
	}
	parts := strings.Split(name, ".")
	for i := len(parts) - 1; i > 0; i-- {
		if try(strings.Join(parts[:i], "."), strings.Join(parts[i:], ".")) {
			break
		}
	}
	return addrs, found
}

func sortedSet(a []netip.Addr) []netip.Addr {
	a = slices.Clone(a)
	slices.SortFunc(a, netip.Addr.Compare)
	return slices.Compact(a)
}

// An asker finds exactly the names of its own networks, whatever the order in which
// the index heard of them.
func TestVisibility(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, x := newWorld(), New()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.step(t)
			if rapid.Bool().Draw(t, "advance") {
				x.Advance(w.states[hostA].Snapshot())
			}
		}
		snap := w.states[hostA].Snapshot()
		x.Advance(snap)
		standings := map[cluster.NodeID]cluster.Standing{}
		for _, id := range []cluster.NodeID{hostA, hostB} {
			standings[id] = rapid.SampledFrom([]cluster.Standing{cluster.Answers, cluster.Doubtful, cluster.Gone}).Draw(t, "standing")
		}
		checkView(t, x, snap, func(h cluster.NodeID) cluster.Standing { return standings[h] })
		checkSame(t, x, snap)
	})
}

func checkView(t *rapid.T, x *Index, snap *cluster.Snapshot, hosts Hosts) {
	var questions []string
	for _, n := range someNames {
		questions = append(questions, strings.ToLower(n))
		for _, network := range networkNames {
			questions = append(questions, strings.ToLower(n+"."+network))
		}
	}
	questions = append(questions, strings.Repeat("1", 12), "nobody", "nobody.blue", "")
	for asker := range cluster.All[cluster.Endpoint](snap) {
		v, ok := x.View(Asker{Endpoints: []string{asker.ID}})
		if !ok {
			t.Fatalf("endpoint %s is not known", asker.ID)
		}
		for _, q := range questions {
			got, found := v.Lookup(q, rapid.IntRange(0, 5).Draw(t, "turn"), hosts)
			wantAddrs, wantFound := want(snap, asker, q, hosts)
			if found != wantFound || !slices.Equal(sortedSet(got), sortedSet(wantAddrs)) {
				t.Fatalf("%s on %v asks for %q: got %v %v, want %v %v", asker.ID[:20], sees(snap, asker), q, got, found, wantAddrs, wantFound)
			}
		}
		seen := sees(snap, asker)
		for other := range cluster.All[cluster.Endpoint](snap) {
			for _, a := range other.Addrs {
				checkReverse(t, v, snap, seen, a, hosts)
			}
		}
	}
}

// checkReverse: a name that is told of an address is that of an endpoint that is seen.
func checkReverse(t *rapid.T, v View, snap *cluster.Snapshot, seen map[string]bool, a netip.Addr, hosts Hosts) {
	name, ours := v.Reverse(a, hosts)
	var may []string
	inside := false
	for e := range cluster.All[cluster.Endpoint](snap) {
		if seen[e.Network] && hosts(e.Host) != cluster.Gone && slices.Contains(e.Addrs, a) {
			label := e.Name
			if label == "" && e.Container != "" {
				label = e.Container[:12]
			}
			if label != "" {
				label += "." + e.Network
			}
			may = append(may, label)
		}
	}
	for s := range cluster.All[cluster.Subnet](snap) {
		inside = inside || seen[s.Network] && s.Prefix.Contains(a)
	}
	if ours != (inside || len(may) > 0) || len(may) > 0 && !slices.Contains(may, name) || len(may) == 0 && name != "" {
		t.Fatalf("reverse of %s: got %q %v, may be %v, inside %v", a, name, ours, may, inside)
	}
}

// checkSame: an index that followed is the same as one that begins now.
func checkSame(t *rapid.T, x *Index, snap *cluster.Snapshot) {
	fresh := New()
	fresh.Advance(snap)
	if len(x.networks) != len(fresh.networks) || len(x.endpoints) != len(fresh.endpoints) ||
		len(x.addrs) != len(fresh.addrs) || len(x.sandboxes) != len(fresh.sandboxes) ||
		len(x.gateways) != len(fresh.gateways) || len(x.subnets) != len(fresh.subnets) {
		t.Fatalf("an index that followed has other things than a new one:\n%+v\n%+v", x, fresh)
	}
	hosts, spread := map[[2]string]cluster.NodeID{}, false
	for e := range cluster.All[cluster.Endpoint](snap) {
		for _, name := range newEndpoint(e, cluster.Version{}, fresh.network(e.Network)).names {
			of := [2]string{e.Network, name}
			spread = spread || hosts[of] != "" && hosts[of] != e.Host
			hosts[of] = e.Host
		}
	}
	if x.Spread() != spread {
		t.Fatalf("names of several hosts: %v, want %v", x.Spread(), spread)
	}
	for addr := range fresh.addrs {
		a, _ := x.View(Asker{Addr: addr})
		b, _ := fresh.View(Asker{Addr: addr})
		if !slices.Equal(a.Networks(), b.Networks()) || a.External() != b.External() {
			t.Fatalf("asker %s sees %v, of a new index %v", addr, a.Networks(), b.Networks())
		}
	}
	for name, n := range fresh.networks {
		m := x.networks[name]
		if m == nil || len(m.names) != len(n.names) || m.internal != n.internal {
			t.Fatalf("network %s: %+v, of a new index %+v", name, m, n)
		}
	}
}
