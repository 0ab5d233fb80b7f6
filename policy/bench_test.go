package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// The workloads are those of Antrea's benchmark of its controller
// (pkg/controller/networkpolicy/networkpolicy_controller_perf_test.go), which gives 5.8 to 6.4 s for
// the first. Endpoints are on 1,000 hosts at random.
var workloads = []struct {
	name  string
	world func() World
}{
	{"SmallNamespaces", func() World { return namespaced(25_000, 2, 2) }},
	{"LargeNamespaces", func() World { return namespaced(100, 100, 10) }},
	{"OneNamespace", func() World {
		w := namespaced(1, 0, 0)
		w.Policies = nil
		for i := range 10_000 {
			add(&w, "n0", map[string]string{"app": "one"})
			w.Policies = append(w.Policies, simple("n0", fmt.Sprint("p", i), nil, nil))
		}
		return w
	}},
	{"NetpolPerPod", func() World {
		w := namespaced(1, 0, 0)
		w.Policies = nil
		for i := range 10_000 {
			add(&w, "n0", map[string]string{"pod": fmt.Sprint(i)})
			w.Policies = append(w.Policies, simple("n0", fmt.Sprint("p", i), is("pod", fmt.Sprint(i)), is("pod", fmt.Sprint(i/2))))
		}
		return w
	}},
	{"ClusterScoped", func() World {
		var w World
		for n := range 1000 {
			name := fmt.Sprint("n", n)
			w.Networks = append(w.Networks, Network{name, map[string]string{"company": fmt.Sprint(n % 100)}})
			for range 100 {
				add(&w, name, map[string]string{"app": "one"})
			}
		}
		for i := range 10_000 {
			company := Set{Networks: is("company", fmt.Sprint(i%100))}
			w.Policies = append(w.Policies, Policy{
				Key: Key{Kind: ClusterNetworkPolicy, Name: fmt.Sprint("p", i)}, Tier: Admin, Priority: i / 100, Subject: company,
				Ingress: []Rule{{Action: Accept, Peers: []Set{company}, AnyPort: true}},
				Egress:  []Rule{{Action: Drop, Peers: []Set{{Networks: is("company", fmt.Sprint((i+1)%100))}}, Ports: []Port{{Proto: TCP, From: uint16(i/100) + 1, To: uint16(i/100) + 1}}}},
			})
		}
		return w
	}},
}

func is(key, value string) Selector { return Selector{{Key: key, Op: In, Values: []string{value}}} }

func simple(network, name string, subject, from Selector) Policy {
	return Policy{
		Key: Key{Kind: NetworkPolicy, Network: network, Name: name}, Subject: Set{Network: network, Endpoints: subject}, IsolatesIngress: true,
		Ingress: []Rule{{Action: Accept, Peers: []Set{{Network: network, Endpoints: from}}, AnyPort: true}},
	}
}

// namespaced are networks with a policy that denies all, and apps that each reach themselves.
func namespaced(networks, apps, each int) (w World) {
	for n := range networks {
		name := fmt.Sprint("n", n)
		w.Networks = append(w.Networks, Network{Name: name})
		w.Policies = append(w.Policies, Policy{Key: Key{Kind: NetworkPolicy, Network: name, Name: "deny"}, Subject: Set{Network: name}, IsolatesIngress: true})
		for a := range apps {
			app := is("app", fmt.Sprint("app-", a))
			w.Policies = append(w.Policies, simple(name, fmt.Sprint("app-", a), app, app))
			for range each {
				add(&w, name, map[string]string{"app": fmt.Sprint("app-", a)})
			}
		}
	}
	return w
}

func add(w *World, network string, labels map[string]string) {
	i := len(w.Endpoints)
	w.Endpoints = append(w.Endpoints, Endpoint{
		ID: fmt.Sprint("e", i), Network: network, Host: fmt.Sprint("h", rand.IntN(1000)), Labels: labels, Known: true,
		Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})},
	})
}

// processor is the time that this process has had of a processor: others have theirs.
func processor() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkCompile: all of a workload at once, for one host of 1,000, and as if all containers were
// on one.
func BenchmarkCompile(b *testing.B) {
	for _, load := range workloads {
		for _, all := range []bool{false, true} {
			b.Run(load.name+map[bool]string{false: "/host", true: "/all"}[all], func(b *testing.B) {
				w := load.world()
				for i := range w.Endpoints {
					w.Endpoints[i].Local = all || w.Endpoints[i].Host == "h0"
				}
				b.ReportAllocs()
				begin := processor()
				rules := 0
				for b.Loop() {
					rules = len(w.Compile().Rules)
				}
				b.ReportMetric(float64((processor()-begin).Milliseconds())/float64(b.N), "cpu-ms/op")
				b.ReportMetric(float64(rules), "rules")
			})
		}
	}
}

// raced is whether the race detector looks on.
var raced bool

// TestCompileFits: 100,000 containers and 75,000 policies of one host take no more memory than is promised, garbage and all.
func TestCompileFits(t *testing.T) {
	if raced {
		t.Skip("the race detector has memory of its own")
	}
	w := workloads[0].world()
	for i := range w.Endpoints {
		w.Endpoints[i].Local = true
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	rules := len(w.Compile().Rules)
	runtime.ReadMemStats(&after)
	if took := (after.TotalAlloc - before.TotalAlloc) / 1e6; len(w.Endpoints) != 100_000 || len(w.Policies) != 75_000 || rules != 50_000 || took > 200 {
		t.Errorf("%d containers and %d policies are %d rules, and took %d MB, want at most 200", len(w.Endpoints), len(w.Policies), rules, took)
	}
}

// BenchmarkChange: a container comes or goes, here or elsewhere.
func BenchmarkChange(b *testing.B) {
	for _, load := range workloads {
		b.Run(load.name, func(b *testing.B) {
			w := load.world()
			c := NewCompiler()
			for _, n := range w.Networks {
				c.PutNetwork(n)
			}
			for _, e := range w.Endpoints {
				e.Local = e.Host == "h0"
				c.PutEndpoint(e)
			}
			for _, p := range w.Policies {
				c.PutPolicy(p)
			}
			c.Compile()
			runtime.GC()
			var memory runtime.MemStats
			runtime.ReadMemStats(&memory)
			worst, begin, i := time.Duration(0), processor(), 0
			for b.Loop() {
				e := w.Endpoints[i%len(w.Endpoints)]
				if i++; i%2 == 0 {
					e.Local = e.Host == "h0"
				} else {
					e.Local = true
					e.Labels = map[string]string{"app": "app-1", "new": fmt.Sprint(i)}
				}
				one := processor()
				c.PutEndpoint(e)
				c.Compile()
				worst = max(worst, processor()-one)
			}
			b.ReportMetric(float64((processor()-begin).Microseconds())/1000/float64(b.N), "cpu-ms/op")
			b.ReportMetric(float64(worst.Microseconds())/1000, "worst-cpu-ms")
			b.ReportMetric(float64(memory.HeapAlloc>>20), "MB-with-world")
		})
	}
}

// BenchmarkFirst: the first container of networks that had none here comes, and goes. So it brings the policies about them.
func BenchmarkFirst(b *testing.B) {
	for _, load := range workloads {
		b.Run(load.name, func(b *testing.B) {
			w := load.world()
			c := NewCompiler()
			here := map[string]bool{}
			for i := range w.Endpoints {
				e := &w.Endpoints[i]
				e.Local = e.Host == "h0"
				here[e.Network] = here[e.Network] || e.Local
			}
			c.Sync(w)
			c.Compile()
			begin, n := processor(), 0
			for b.Loop() {
				e := w.Endpoints[n/2*7919%len(w.Endpoints)]
				for at := n / 2; here[e.Network] && at < n/2+len(w.Endpoints); at++ {
					e = w.Endpoints[at*7919%len(w.Endpoints)]
				}
				e.Local = n%2 == 0
				n++
				c.PutEndpoint(e)
				c.Compile()
			}
			b.ReportMetric(float64((processor()-begin).Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}
}

// TestChangeIsSmall: who comes or goes, and is one of many that rules do not tell apart, has no rule made again.
func TestChangeIsSmall(t *testing.T) {
	w := workloads[4].world()
	w.Policies = w.Policies[:2000]
	for i := range w.Endpoints {
		w.Endpoints[i].Local = i%300 == 0
	}
	c := NewCompiler()
	c.Sync(w)
	rules := len(c.Compile().Rules)
	n := 0
	allocations := testing.AllocsPerRun(20, func() {
		e := w.Endpoints[0]
		e.Addrs = []netip.Addr{netip.AddrFrom4([4]byte{10, 200, 0, byte(n)})}
		n++
		c.PutEndpoint(e)
		c.Compile()
	})
	if rules < 500 || allocations > 100 {
		t.Errorf("%d rules, and %v allocations for a change of one container's address", rules, allocations)
	}
}

// BenchmarkSync: a compiler is shown the whole world again, of which one container has changed.
func BenchmarkSync(b *testing.B) {
	w := workloads[0].world()
	for i := range w.Endpoints {
		w.Endpoints[i].Local = w.Endpoints[i].Host == "h0"
	}
	c := NewCompiler()
	c.Sync(w)
	begin := processor()
	for b.Loop() {
		w.Endpoints[0].Local = !w.Endpoints[0].Local
		c.Sync(w)
		c.Compile()
	}
	b.ReportMetric(float64((processor()-begin).Microseconds())/1000/float64(b.N), "cpu-ms/op")
}
