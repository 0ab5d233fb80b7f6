package sim

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-net/grapevine/gossip/memnet"
)

var (
	sizes  = flag.String("hosts", "12", "sizes of clusters, separated by commas")
	losses = flag.String("loss", "5", "shares of packets that are lost, in percent")
	seed   = flag.Uint64("seed", 1, "of everything that is left to chance")
	apart  = flag.Duration("partition", 3*time.Minute, "how long the partition lasts")
	rest   = flag.Duration("rest", usualRest, "how long nothing happens, while bytes are counted")
	nets   = flag.Int("networks", 0, "networks that are made one after the other; half of them are deleted again. 0: 10, or 2 of large clusters")
	churn  = flag.Duration("churn", 0, "how long the churn lasts. 0: 20 s, or 5 s of large clusters")
	pace   = flag.Duration("pace", 0, "time between the starts of two hosts. 0: all start within two seconds, as when a data centre's power is back, or 100 ms of large clusters")
	joins  = flag.Int("joins", usualJoins, "hosts that join, one after the other, while nothing else goes on; after each it, or another one, leaves or dies; as many, four at most, under churn")
	alloc  = flag.Bool("ring", true, "the hosts share addresses and VNIDs, which is the most work of all that is simulated")
	out    = flag.String("out", "", "write the report there (a Markdown file; plots and the results that it has beside it)")
	dir    = flag.String("dir", "", "where the hosts' state files are; memory is fastest (/dev/shm)")
)

// large clusters take processors by the square of their hosts: the same day is shorter for
// them, where no flag says otherwise.
const large = 400

func orLarge[T comparable](given T, n int, small, big T) T {
	var none T
	switch {
	case given != none:
		return given
	case n >= large:
		return big
	}
	return small
}

// TestSimulation takes clusters through their days and prints what it took. It fails
// where a promise is broken: a number with two owners or with none, hosts that do not
// agree in the end.
func TestSimulation(t *testing.T) {
	for _, n := range numbers(t, *sizes) {
		for _, loss := range numbers(t, *losses) {
			t.Run(fmt.Sprintf("%d hosts, %d%% loss", n, loss), func(t *testing.T) {
				began := processor()
				var res result
				synctest.Test(t, func(t *testing.T) {
					t.Cleanup(func() { time.Sleep(time.Minute) }) // memberlist's timers run out
					res = simulate(t, n, loss)
				})
				res.took = processor() - began
				t.Log("\n" + res.summary().String())
				if *out != "" && !t.Failed() {
					if err := res.summary().keep(*out); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	if *out != "" {
		if caughtUp != "" && truth != "" && *big >= 1000 {
			if err := keepRealTime(*out); err != nil {
				t.Fatal(err)
			}
		}
		r, err := readReport(*out)
		if err == nil {
			err = r.write(*out)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func numbers(t *testing.T, list string) (out []int) {
	for s := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, n)
	}
	return out
}

// result is what one cluster showed.
type result struct {
	hosts, loss int
	settings    string
	times       map[string]*times
	rest, churn float64 // bytes per second and host
	changes     float64 // endpoint changes per second in the cluster while it churned
	took        time.Duration
}

// real is a time of day that goes on inside of a bubble of testing/synctest.
func real() time.Duration {
	var now syscall.Timeval
	_ = syscall.Gettimeofday(&now) // never fails
	return time.Duration(now.Nano())
}

// usualRest has each host exchange the membership with another one, each 15 s to 90 s.
const usualRest = 3 * time.Minute

const usualJoins = 6

// patience is how long everything may take before it counts as never.
const patience = 2 * time.Minute

func simulate(t *testing.T, n, loss int) result {
	where := *dir
	if where == "" {
		where = t.TempDir()
	} else {
		var err error
		if where, err = os.MkdirTemp(where, "grapevine-sim-"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(where) })
	}
	w := newWorld(t, where)
	say := w.say
	w.bare = !*alloc
	t.Cleanup(func() {
		var stopped sync.WaitGroup
		for _, h := range w.hosts { // at once: nobody is to be told of the deaths of all the others
			stopped.Go(h.stop)
		}
		stopped.Wait()
	})
	link := memnet.Link{Loss: float64(loss) / 100, Duplicate: 0.005, Reorder: 0.01, Delay: 500 * time.Microsecond, Jitter: time.Millisecond}
	w.net.SetAll(link)
	s := newStopwatch(w)
	l := &workload{w: w, s: s, rnd: rand.New(rand.NewPCG(*seed, uint64(n)))}
	networks, churning, pause := orLarge(*nets, n, 10, 2), orLarge(*churn, n, 20*time.Second, 5*time.Second), orLarge(*pace, n, 0, 100*time.Millisecond)
	res := result{hosts: n, loss: loss, times: s.times}
	res.settings = fmt.Sprintf("-networks %d -churn %v -pace %v -partition %v -ring=%v -seed %d", networks, churning, pause, *apart, *alloc, *seed)
	if *rest != usualRest {
		res.settings += fmt.Sprintf(" -rest %v", *rest)
	}
	if *joins != usualJoins {
		res.settings += fmt.Sprintf(" -joins %d", *joins)
	}
	began := processor()
	// stage says what there is by now, and keeps it: large clusters take hours, and may be ended.
	stage := func(what string) {
		res.took = processor() - began
		say("%s\n%v", what, res.summary())
		if *out != "" {
			w.must(res.summary().keepUnfinished(*out))
		}
	}
	note := func(kind string, each []time.Duration, took time.Duration) {
		say("%s: %v", kind, took)
		if took < 0 {
			s.late++
			t.Errorf("%s: not everywhere after %v", kind, patience)
			return
		}
		if s.times[kind] == nil {
			s.times[kind] = &times{}
		}
		s.times[kind].each = append(s.times[kind].each, each...)
		s.times[kind].all = append(s.times[kind].all, took)
	}

	l.network(w.add(), 16) // large enough for all containers that come
	for range n - 1 {
		w.add()
		time.Sleep(cmp.Or(pause, min(20*time.Millisecond, 2*time.Second/time.Duration(n))))
		if len(w.hosts)%100 == 0 {
			say("%d hosts started", len(w.hosts))
		}
	}
	say("%d hosts: all agree after %v", n, w.unanimous(10*patience))
	s.forget()
	time.Sleep(30 * time.Second) // everyone has stocked up
	say("at rest")
	res.rest = w.traffic(func() { time.Sleep(*rest) })

	say("one event at a time")
	for range 30 {
		l.up(l.host())
		s.run(200 * time.Millisecond)
	}
	for range 20 {
		l.down()
		s.run(200 * time.Millisecond)
	}
	stage("networks") // each is a claim of each host's, at each host
	for range networks {
		l.network(l.host(), 22)
		s.run(500 * time.Millisecond)
	}
	for range networks / 2 {
		l.networkGone()
		s.run(500 * time.Millisecond)
	}
	s.settle(patience)

	stage("churn")
	before := l.ups
	calm := s.times
	s.times = map[string]*times{}
	w.meanwhile = l.churn()
	res.churn = w.traffic(func() { s.run(churning) })
	res.changes = 2 * float64(l.ups-before) / churning.Seconds()
	for range networks {
		l.network(l.host(), 22)
		s.run(500 * time.Millisecond)
		l.networkGone()
		s.run(500 * time.Millisecond)
	}
	w.meanwhile = nil
	s.settle(patience)
	for kind, v := range s.times {
		calm[kind+", under churn"] = v
	}
	s.times = calm
	// What was replaced before it was heard of leaves gaps in what hosts know of each other.
	note("churn over: all agree", nil, w.within(patience, w.agreed))

	// come has a host come, and it or another one go again.
	come := func(leaves bool, when string) {
		h := w.add()
		each, joined := w.known(patience, h, func(other *host) bool { return other.sees(h) && other.lists(h) })
		note("host joined"+when, each, joined)
		if w.meanwhile == nil {
			// It knows all of them too, and has got its share of the addresses.
			agreed := w.unanimous(patience)
			if agreed >= 0 {
				agreed += joined
			}
			note("host joined: all agree", nil, agreed)
		}
		rest := time.Now().Add(3 * time.Second)
		w.within(patience, func() bool { return time.Now().After(rest) })
		if leaves {
			// Not the new one: it still passes on all the others that it has met, and its
			// farewell would wait behind them.
			h := l.leaver()
			left := make(chan struct{})
			go func() {
				defer close(left)
				w.must(h.leave(t.Context()))
			}()
			each, all := w.known(patience, h, func(other *host) bool { return !other.sees(h) && !other.lists(h) })
			note("host left"+when, each, all)
			<-left
			if vnid, err := h.alloc.VNID(t.Context()); err == nil && !w.bare {
				t.Errorf("host %s has left, and hands out VNID %d", h.id, vnid)
			}
			h.stop()
			return
		}
		l.going = h
		died := make(chan struct{})
		go func() { // what it still waits for may take it a while
			defer close(died)
			h.stop()
		}()
		synctest.Wait()
		each, silent := w.known(patience, h, func(other *host) bool { return other.doubts(h) })
		note("host died: it is doubted"+when, each, silent)
		each, dead := w.known(patience, h, func(other *host) bool { return !other.sees(h) })
		<-died
		if dead < 0 || silent < 0 {
			note("host died: it is dead"+when, each, min(dead, silent))
			return
		}
		for i := range each {
			each[i] += silent
		}
		note("host died: it is dead"+when, each, silent+dead)
		first := slices.Min(each) // the first must be sure of it; what comes after is news like any other
		for i := range each {
			each[i] -= first
		}
		note("host died: it is dead, once one is sure"+when, each, silent+dead-first)
	}
	stage("hosts come, leave and die")
	s.still = true
	for i := range *joins {
		come(i%2 == 0, "")
	}
	stage("the same under churn")
	w.meanwhile = l.churn()
	for i := range min(*joins, 4) {
		come(i%2 == 0, ", under churn")
	}
	w.meanwhile = nil
	note("hosts and churn over: all agree", nil, w.unanimous(patience))

	if n > 1 && *apart > 0 {
		stage(fmt.Sprintf("a partition of %v", *apart))
		var half []netip.Addr
		for _, h := range w.alive()[:n/2] {
			half = append(half, h.addr.Addr())
		}
		w.net.Partition(half)
		for end := time.Now().Add(*apart); time.Now().Before(end); {
			l.up(l.host())
			l.down()
			time.Sleep(5 * time.Second)
		}
		if w.meet() || w.agreed() {
			t.Error("the partition parted nobody")
		}
		w.net.Heal()
		note("after the partition", nil, w.unanimous(patience))
	}
	w.owners()
	if s.late > 0 {
		t.Errorf("%d events were not known everywhere within %v", s.late, patience)
	}
	return res
}

// traffic is how many bytes per second a host sends while f runs.
func (w *world) traffic(f func()) float64 {
	before, begin := w.net.Traffic(), time.Now()
	f()
	after := w.net.Traffic()
	bytes := after.PacketBytes + after.StreamBytes - before.PacketBytes - before.StreamBytes
	return float64(bytes) / time.Since(begin).Seconds() / float64(len(w.alive()))
}
