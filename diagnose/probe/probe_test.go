package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestSearchFindsTheLargest(t *testing.T) {
	for _, path := range []int{0, 67, 68, 69, 100, 576, 1400, 1404, 1449, 1450, 9000} {
		for _, limit := range []int{1450, 1500, 8950} {
			want := min(path, limit)
			if path < smallest {
				want = 0
			}
			rounds := 0
			got, err := search(limit, func(sizes []int) (arrived []int, err error) {
				rounds++
				if len(sizes) > perRound {
					t.Fatalf("%d sizes at once", len(sizes))
				}
				return slices.DeleteFunc(slices.Clone(sizes), func(s int) bool { return s > path }), nil
			})
			if err != nil || got != want || rounds > 5 {
				t.Errorf("path of %d, limit %d: found %d in %d rounds, %v", path, limit, got, rounds, err)
			}
		}
	}
	broken := errors.New("broken")
	if _, err := search(1500, func([]int) ([]int, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	if _, err := search(20, nil); err == nil {
		t.Error("no error for an MTU of 20")
	}
}

func TestProbesAreRecognised(t *testing.T) {
	b := encode(0xfedcba9876543210, Tunnel, 1450, 1450)
	if len(b) != 1450 {
		t.Errorf("%d bytes", len(b))
	}
	if id, kind, size, ok := decode(b); !ok || id != 0xfedcba9876543210 || kind != Tunnel || size != 1450 {
		t.Errorf("%x %d %d %v", id, kind, size, ok)
	}
	if !whole(b) || whole(b[:1449]) {
		t.Error("a frame that was cut counts, or one that was not does not")
	}
	for _, b := range [][]byte{nil, {1}, b[:header-1], bytes.Repeat([]byte{7}, 100)} {
		if _, _, _, ok := decode(b); ok {
			t.Errorf("%x is a probe", b)
		}
	}
}

// alone is a host with nobody to call, and no gateway port.
func alone(t *testing.T) *Prober {
	p := New(Config{Self: "0123456789abcdef", Device: "gvabsent", Find: func(string) (Host, bool) {
		return Host{VTEP: netip.MustParseAddr("127.0.0.1"), Gossip: netip.MustParseAddrPort("127.0.0.1:9")}, true
	}})
	t.Cleanup(p.Close)
	return p
}

func TestOnlyProbesOfASessionAreNoted(t *testing.T) {
	p := alone(t)
	methods := p.Methods()
	ask := func(method, body string) string {
		answer, err := methods[method](context.Background(), "fedcba9876543210", []byte(body))
		return fmt.Sprint(string(answer), err)
	}
	if got := ask(methodOpen, `{"session":7}`); !strings.Contains(got, `"now"`) || !strings.Contains(got, "gvabsent") {
		t.Errorf("open: %s", got)
	}
	if p.Datagram([]byte("memberlist's")) {
		t.Error("what is no probe was taken")
	}
	for _, id := range []uint64{7, 8} {
		if !p.Datagram(encode(id, Gossip, 1400, 1372)) {
			t.Error("a probe was left to memberlist")
		}
	}
	p.Datagram(encode(7, Tunnel, 1300, 1300)) // of the other way
	if got := ask(methodHeard, `{"session":7}`); !strings.Contains(got, `{"gossip":[1400],"tunnel":null}`) {
		t.Errorf("heard: %s", got)
	}
	for method, body := range map[string]string{
		methodHeard: `{"session":8}`, methodOpen: `{"session":7}`,
		methodSend: `{"session":7,"kind":1,"sizes":[70000]}`,
	} {
		if got := ask(method, body); !strings.HasSuffix(got, "<nil>") {
			continue
		}
		t.Errorf("%s %s: no error", method, body)
	}
	if got := ask(methodSend, `{"session":7,"kind":1,"sizes":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}`); !strings.Contains(got, "at most 15") {
		t.Errorf("many sizes: %s", got)
	}
	ask(methodClose, `{"session":7}`)
	if got := ask(methodHeard, `{"session":7}`); !strings.Contains(got, "has ended") {
		t.Errorf("after its end: %s", got)
	}
}

func TestSessionsAreBoundedAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Device: "gvabsent"})
		defer p.Close()
		for id := range uint64(maxSessions) {
			if _, err := p.open(id, "peer"); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := p.open(maxSessions, "peer"); err == nil {
			t.Error("one session too many")
		}
		time.Sleep(lifetime + time.Second)
		if _, err := p.open(maxSessions, "peer"); err != nil {
			t.Errorf("after the others' lifetime: %v", err)
		}
	})
}
