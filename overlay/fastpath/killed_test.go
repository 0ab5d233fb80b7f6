package fastpath

import (
	"bytes"
	"encoding/binary"
	"errors"
	"log/slog"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/link/linktest"
	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
	"github.com/grapevine-net/grapevine/tests/turns"
)

// TestKilledBetweenWrites: while a container sends to an address, the address changes
// hands, and the agent is killed before its first write to a map, before the second, and
// so on. Until the flows change nobody gets a packet who would not have before; from then
// on nobody does who would not now; and the next agent makes it whole.
func TestKilledBetweenWrites(t *testing.T) {
	here, there := twoHosts(t)
	traffic := newTraffic(t)
	traffic.receive("b", here.newContainer("b", "10.128.0.8"), "gcb")
	traffic.receive("c", here.newContainer("c", "10.128.0.8"), "gcc")
	traffic.receive("d", there.newContainer("d", "10.128.0.8"), "gcd")
	holder := func(endpoint string, vnid uint32) pipeline.Port {
		return pipeline.Port{MAC: macs[endpoint], Addrs: addrs("10.128.0.8"), VNID: vnid, Endpoint: endpoint, Plain: true}
	}
	there.in.Ports = append(there.in.Ports, holder("d", 5))
	there.apply()
	base, sender, moved := here.in, here.in.Ports[0], here.in.Ports[0]
	moved.VNID = 6
	state := func(vnid uint32, ports ...pipeline.Port) pipeline.Input {
		in := base
		in.Ports = ports
		if vnid != 0 {
			in.Routes = append(slices.Clone(in.Routes), pipeline.Route{Prefix: prefixes("10.128.0.8/32")[0], VNID: vnid, VTEP: addrs("10.9.0.2")[0]})
		}
		return in
	}
	traffic.send(here.container, "10.128.0.8:9")
	for _, c := range []struct {
		what    string
		around  uint32 // the VNID of a range of another host that has it in as well, before; 0: there is none
		in      pipeline.Input
		reaches string // who has the address then, if the sender may reach it
	}{
		{"it is in another network", 0, state(0, sender, holder("b", 6)), ""},
		{"the sender is in another network", 0, state(0, moved, holder("b", 5)), ""},
		{"it is gone", 0, state(0, sender), ""},
		{"it is gone, and was in another host's range", 5, state(5, sender), "d"},
		{"another network has its address", 0, state(0, sender, holder("c", 6)), ""},
		{"another container has its address", 0, state(0, sender, holder("c", 5)), "c"},
		{"it is on another host", 0, state(5, sender), "d"},
		{"another network on another host has its address", 0, state(6, sender), ""},
	} {
		here.changed(traffic, change{c.what, state(c.around, sender, holder("b", 5)), c.in, "b", c.reaches})
	}
	traffic.judge()
}

// TestKilledFromTheGateway is the same of what the host sends to the address.
func TestKilledFromTheGateway(t *testing.T) {
	h := newGated(t)
	traffic := newTraffic(t)
	traffic.receive("b", h.newContainer("b", "10.128.0.8"), "gcb")
	traffic.receive("c", h.newContainer("c", "10.128.0.8"), "gcc")
	run(t, h.NS, "ip neigh add 10.128.0.8 lladdr "+pipeline.RouterMAC.String()+" dev gv0 nud permanent")
	state := func(holders ...pipeline.Port) pipeline.Input {
		in := h.in
		in.Ports = append(slices.Clip(in.Ports), holders...)
		return in
	}
	holder := func(endpoint string, vnid uint32) pipeline.Port {
		return pipeline.Port{MAC: macs[endpoint], Addrs: addrs("10.128.0.8"), VNID: vnid, Endpoint: endpoint, Plain: true}
	}
	nobodys, shut := state(holder("b", 5)), state(holder("b", 5))
	nobodys.Subnets, shut.GatewayPort = []pipeline.Subnet{{Prefix: nobodys.Subnets[0].Prefix, VNID: 5}}, 0
	from := state(holder("b", 5))
	traffic.send(h.NS, "10.128.0.8:9")
	for _, c := range []change{
		{"it is gone", from, state(), "b", ""},
		{"another container has its address", from, state(holder("c", 5)), "b", "c"},
		{"another network has its address", from, state(holder("c", 6)), "b", "c"},
		{"the host sends from what is no gateway's address", from, nobodys, "b", ""},
		{"there is no gateway", from, shut, "b", ""},
	} {
		h.changed(traffic, c)
	}
	traffic.judge()
}

// TestKilledToTheGateway is the same of what a container sends to the outside: "gate" sees it arrive at gv0.
func TestKilledToTheGateway(t *testing.T) {
	h := newGated(t)
	traffic := newTraffic(t)
	traffic.receive("gate", h.NS, "gv0")
	from := h.in
	with := func(edit func(*pipeline.Input)) pipeline.Input {
		in := from
		in.Ports, in.Subnets = slices.Clone(in.Ports), slices.Clone(in.Subnets)
		edit(&in)
		return in
	}
	traffic.send(h.container, "198.51.100.1:9")
	for what, edit := range map[string]func(*pipeline.Input){
		"its network is internal": func(in *pipeline.Input) { in.Ports[0].Internal = true },
		"it is plain no more":     func(in *pipeline.Input) { in.Ports[0].Plain = false },
		"it is gone":              func(in *pipeline.Input) { in.Ports = nil },
		"the outside is within the cluster": func(in *pipeline.Input) {
			in.Subnets = append(in.Subnets, pipeline.Subnet{Prefix: prefixes("198.51.100.0/24")[0], VNID: 5})
		},
		"the port is that of VXLAN": func(in *pipeline.Input) { in.VXLANPort = 9 },
		"there is no gateway":       func(in *pipeline.Input) { in.GatewayPort = 0 },
	} {
		h.changed(traffic, change{what, from, with(edit), "gate", ""})
	}
	traffic.judge()
}

// change is what an agent is to go over from and to, and who is reached before and after.
type change struct {
	what          string
	from, to      pipeline.Input
	before, after string
}

// changed makes a change as often as it has writes, with the agent killed before each of them, and once whole. A run of all tests
// has a third of the writes.
func (h *host) changed(traffic *traffic, c change) {
	from, step := turns.Every(3)
	for n := from; ; n += step {
		h.in = c.from
		h.apply()
		traffic.await(c.before)
		h.in = c.to
		survived := h.killed(traffic.attempt(c, n), traffic)
		traffic.attempt(c, n).narrowed = math.MaxUint64 // from the one to the other, and back
		must(h.t, h.path.Close())
		h.start()
		h.apply()
		if c.after != "" {
			traffic.await(c.after)
		}
		traffic.only(c.after)
		if survived {
			if n < 2 {
				h.t.Errorf("%s: only %d writes: the test shows little", c.what, n)
			}
			return
		}
	}
}

// killed is an agent that goes over to h.in and is killed before its write number a.write,
// counted from 0; false: it had not so many.
func (h *host) killed(a *attempt, traffic *traffic) (survived bool) {
	dead, left := errors.New("killed"), a.write
	h.path.log = slog.New(slog.DiscardHandler)
	h.path.tables.before = func() error {
		traffic.some()
		if left--; left < 0 {
			return dead
		}
		return nil
	}
	h.Do(func() {
		if h.path.Narrow(h.t.Context(), h.in) != nil {
			return
		}
		if _, trouble := h.path.On(); trouble != nil {
			return
		}
		a.narrowed = traffic.some() // here the flows change
		stays := left
		_ = h.path.Widen(h.t.Context(), h.in)
		a.widened = stays > 0
	})
	traffic.some()
	return left >= 0
}

// attempt is what was going on from a packet on.
type attempt struct {
	what     string
	write    int    // before which the agent was killed
	first    uint64 // packet
	narrowed uint64 // the first packet after Narrow; 0: it did not get so far
	widened  bool   // and Widen wrote something
	before   string // who is reached at first
	reaches  string // who may be reached in the end
}

// traffic is numbered packets, and who got which.
type traffic struct {
	t        *testing.T
	sent     atomic.Uint64 // the number of the packet sent last
	stop     chan struct{}
	tasks    sync.WaitGroup
	attempts []*attempt

	mu  sync.Mutex
	got map[string][]uint64
}

func newTraffic(t *testing.T) *traffic {
	f := &traffic{t: t, stop: make(chan struct{}), got: map[string][]uint64{}}
	t.Cleanup(f.end)
	return f
}

func (f *traffic) end() {
	select {
	case <-f.stop:
	default:
		close(f.stop)
	}
	f.tasks.Wait()
}

var mark = []byte("grapevine packet")

// send sends from ns until the end.
func (f *traffic) send(ns *linktest.NS, to string) {
	var conn net.Conn
	ns.Do(func() {
		var err error
		conn, err = net.Dial("udp", to)
		must(f.t, err)
	})
	f.tasks.Go(func() {
		defer conn.Close()
		for tick := time.NewTicker(100 * time.Microsecond); ; {
			select {
			case <-f.stop:
				tick.Stop()
				return
			case <-tick.C:
				_, _ = conn.Write(binary.BigEndian.AppendUint64(bytes.Clone(mark), f.sent.Load()+1)) // "refused" is an answer
				f.sent.Add(1)
			}
		}
	})
}

// receive notes what comes to the interface, whoever it is for.
func (f *traffic) receive(who string, ns *linktest.NS, ifname string) {
	var s *linktest.Socket
	ns.Do(func() { s = linktest.Open(f.t, ifname) })
	f.tasks.Go(func() {
		for {
			frame := s.Receive(20 * time.Millisecond)
			if _, number, ok := bytes.Cut(frame, mark); ok && len(number) >= 8 && frame[23] == 17 {
				f.mu.Lock()
				f.got[who] = append(f.got[who], binary.BigEndian.Uint64(number))
				f.mu.Unlock()
			}
			select {
			case <-f.stop:
				if frame == nil {
					return
				}
			default:
			}
		}
	})
}

// some waits for a few packets, and returns the number of the first that was sent after
// the call.
func (f *traffic) some() uint64 {
	first := f.sent.Load() + 2 // the one after the last is perhaps on its way
	for f.sent.Load() < first+3 {
		time.Sleep(time.Millisecond)
	}
	return first
}

// await waits for who to get a packet that is sent from now on.
func (f *traffic) await(who string) {
	f.t.Helper()
	first := f.some()
	ovstest.Eventually(f.t, 10*time.Second, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if got := f.got[who]; len(got) == 0 || got[len(got)-1] < first {
			return errors.New(who + " gets nothing")
		}
		return nil
	})
}

// only says who gets packets now that should not.
func (f *traffic) only(allowed string) {
	f.t.Helper()
	first := f.some()
	f.some()
	f.mu.Lock()
	defer f.mu.Unlock()
	for who, got := range f.got {
		if who != allowed && len(got) > 0 && got[len(got)-1] >= first {
			f.t.Errorf("%s gets packets", who)
		}
	}
}

// attempt begins another part of the traffic.
func (f *traffic) attempt(c change, write int) *attempt {
	a := &attempt{what: c.what, write: write, before: c.before, reaches: c.after, first: f.some()}
	f.attempts = append(f.attempts, a)
	return a
}

// judge ends the traffic, and says who got what he should not.
func (f *traffic) judge() {
	f.end()
	for who, numbers := range f.got {
		f.t.Logf("%s got %d of %d packets", who, len(numbers), f.sent.Load())
		for _, number := range numbers {
			i, exact := slices.BinarySearchFunc(f.attempts, number, func(a *attempt, n uint64) int { return int(int64(a.first) - int64(n)) })
			if !exact {
				i--
			}
			if i < 0 {
				continue // before the first
			}
			if a := f.attempts[i]; !a.may(who, number) {
				f.t.Errorf("%s, the agent killed before write %d: %s got packet %d; the flows changed before %d", a.what, a.write, who, number, a.narrowed)
			}
		}
	}
}

// may says whether who may get the packet.
func (a *attempt) may(who string, number uint64) bool {
	switch {
	case a.narrowed == 0:
		return who == a.before
	case number < a.narrowed:
		return who == a.before || who == a.reaches
	default:
		return a.widened && who == a.reaches
	}
}
