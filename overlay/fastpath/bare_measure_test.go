package fastpath

import (
	"flag"
	"net"
	"slices"
	"testing"
	"time"
)

var bareTurns = flag.Int("bare-turns", 0, "how many times packets go without headers and with them, to be measured")

// TestBareAgainstDirect measures a stream of TCP, and a round trip of a datagram, between two hosts, without headers and direct with them, in
// turns: a ratio is the median of those of each turn.
//
//	go test ./overlay/fastpath -run TestBareAgainstDirect -bare-turns 9 -v
func TestBareAgainstDirect(t *testing.T) {
	if *bareTurns == 0 {
		t.Skip("-bare-turns says how often")
	}
	a, b := bareHosts(t)
	var stream, trip []float64
	l := listenTCP(t, b)
	defer l.Close()
	echo := b.listenUDP(98)
	defer echo.Close()
	go func() {
		buf := make([]byte, 100)
		for {
			n, from, err := echo.ReadFromUDP(buf)
			if err != nil {
				return
			}
			_, _ = echo.WriteToUDP(buf[:n], from)
		}
	}()
	set := func(yes bool) {
		for _, h := range []*host{a, b} {
			list := h.bareOf(map[*host]*host{a: b, b: a}[h])
			list.Hosts[0].Takes = yes
			h.Do(func() { must(t, Headerless{h.path}.Set(list)) })
		}
	}
	for turn := range *bareTurns {
		var bits, took [2]float64
		for i := range 2 {
			bare := i == turn%2
			set(bare)
			at := 0
			if bare {
				at = 1
			}
			bits[at], took[at] = streamed(t, a, l), tripped(t, a)
		}
		t.Logf("stream: direct %.2f, without headers %.2f Gbit/s; round trip: %.4f, %.4f ms", bits[0], bits[1], took[0], took[1])
		stream, trip = append(stream, bits[1]/bits[0]), append(trip, took[1]/took[0])
	}
	slices.Sort(stream)
	slices.Sort(trip)
	t.Logf("without headers to direct: stream %.2f (%.2f to %.2f), round trip %.2f (%.2f to %.2f)", stream[len(stream)/2], stream[0], stream[len(stream)-1], trip[len(trip)/2], trip[0], trip[len(trip)-1])
}

func listenTCP(t *testing.T, h *host) (l net.Listener) {
	h.container.Do(func() {
		var err error
		l, err = net.Listen("tcp", "10.128.1.7:97")
		must(t, err)
	})
	return l
}

// streamed is the throughput of a stream, in Gbit/s.
func streamed(t *testing.T, h *host, l net.Listener) float64 {
	const last = 2 * time.Second
	got := make(chan int64, 1)
	go func() {
		var n int64
		if c, err := l.Accept(); err == nil {
			defer c.Close()
			for buf := make([]byte, 1<<18); err == nil; {
				var m int
				m, err = c.Read(buf)
				n += int64(m)
			}
		}
		got <- n
	}()
	var c net.Conn
	h.container.Do(func() {
		var err error
		c, err = net.Dial("tcp", "10.128.1.7:97")
		must(t, err)
	})
	begin, buf := time.Now(), make([]byte, 1<<18)
	for time.Since(begin) < last {
		_, err := c.Write(buf)
		must(t, err)
	}
	must(t, c.Close())
	return float64(8*<-got) / time.Since(begin).Seconds() / 1e9
}

// tripped is the median round trip of a datagram, in ms.
func tripped(t *testing.T, h *host) float64 {
	var c net.Conn
	h.container.Do(func() {
		var err error
		c, err = net.Dial("udp", "10.128.1.7:98")
		must(t, err)
	})
	defer c.Close()
	must(t, c.SetDeadline(time.Now().Add(30*time.Second)))
	var all []float64
	buf := make([]byte, 64)
	for range 20000 {
		begin := time.Now()
		_, err := c.Write(buf)
		must(t, err)
		_, err = c.Read(buf)
		must(t, err)
		all = append(all, float64(time.Since(begin).Nanoseconds())/1e6)
	}
	slices.Sort(all)
	return all[len(all)/2]
}
