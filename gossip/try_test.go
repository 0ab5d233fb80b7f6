package gossip

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/gossip/memnet"
)

// TestTry: which of packets and streams passes between two hosts is told on both, while both
// are alive for each other by the other one.
func TestTry(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Network) {
		hosts := cluster(t, net, 3)
		a, b := hosts[0], hosts[1]
		type want struct{ call, dial, packet bool }
		check := func(when string, from, to *host, w want) {
			t.Helper()
			begun := time.Now()
			before := to.Tried(from.id)
			got := from.Try(context.Background(), to.id, false)
			took := time.Since(begun)
			time.Sleep(time.Millisecond) // it is noted behind the answer
			noted := to.Tried(from.id)
			if noted.After(before) != w.call {
				t.Errorf("%s: %s tries %s, which notes it: %t", when, from.id, to.id, noted.After(before))
			}
			quick := from.Try(context.Background(), to.id, true)
			if pass := (want{quick.Call == nil, quick.Dial == nil, quick.Packet == nil}); w.packet && pass != (want{true, true, true}) || !w.packet && pass != w {
				t.Errorf("%s: %s tries %s by packets: %+v, want %+v of both", when, from.id, to.id, quick, w)
			}
			time.Sleep(time.Millisecond)
			if w.packet && to.Tried(from.id) != noted {
				t.Errorf("%s: %s opens streams to %s, though packets pass", when, from.id, to.id)
			}
			if (want{got.Call == nil, got.Dial == nil, got.Packet == nil}) != w {
				t.Errorf("%s: %s tries %s: %+v, want %+v", when, from.id, to.id, got, w)
			}
			if took > tryPatience+500*time.Millisecond {
				t.Errorf("%s: it took %v", when, took)
			}
		}
		both := func(when string, ab, ba want) {
			t.Helper()
			time.Sleep(15 * time.Second)
			if !allSee(hosts, 2) {
				t.Fatalf("%s: they are not alive for each other", when)
			}
			check(when, a, b, ab)
			check(when, b, a, ba)
			check(when, a, hosts[2], want{true, true, true})
		}
		both("whole", want{true, true, true}, want{true, true, true})
		net.SetLink(a.ip, b.ip, memnet.Link{NoStreams: true})
		both("no streams from a to b", want{false, false, true}, want{false, true, true})
		net.SetLink(b.ip, a.ip, memnet.Link{NoStreams: true})
		both("no streams", want{false, false, true}, want{false, false, true})
		net.SetLink(b.ip, a.ip, memnet.Link{})
		net.SetLink(a.ip, b.ip, memnet.Link{NoPackets: true})
		both("no packets from a to b", want{true, true, false}, want{true, true, false})
		net.SetLink(a.ip, b.ip, memnet.Link{})
		both("whole again", want{true, true, true}, want{true, true, true})

		b.stop()
		within(t, time.Minute, "b is dead", func() bool { return len(a.Alive()) == 1 })
		if got := a.Try(context.Background(), b.id, false); !errors.Is(got.Call, ErrUnreachable) || !errors.Is(got.Packet, ErrUnreachable) {
			t.Errorf("a dead host: %+v", got)
		}
	})
}
