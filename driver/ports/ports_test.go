package ports

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var (
	c4 = netip.MustParseAddr("10.128.0.2")
	c6 = netip.MustParseAddr("fd00::2")
)

// host holds ports as a kernel does: what overlaps is refused.
type host struct{ held []Binding }

func (h *host) Hold(b Binding) error {
	for _, o := range h.held {
		if o.Overlaps(b) {
			return &TakenError{b, func() string { return "somebody" }}
		}
	}
	h.held = append(h.held, b)
	return nil
}

func (h *host) Release(b Binding) {
	h.held = slices.DeleteFunc(h.held, func(o Binding) bool { return o == b })
}

func options(t testing.TB, text string) map[string]any {
	t.Helper()
	var list any
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	return map[string]any{OptPortMap: list}
}

func texts(list []Binding) string {
	var out []string
	for _, b := range list {
		out = append(out, b.String())
	}
	return strings.Join(out, " ")
}

// A request that leaves a choice takes no port that another one names, in any order.
func TestNamedPortsFirst(t *testing.T) {
	reqs := []Request{{TCP, 80, netip.Addr{}, 0, 0, 0}, {TCP, 81, netip.Addr{}, 8080, 8082, 0}, {TCP, 82, netip.Addr{}, 8080, 8080, 0}, {TCP, 83, netip.Addr{}, 8081, 8081, 0}}
	got, err := Assign(reqs, []netip.Addr{c4}, nil, Choice{First: 8080, Last: 8089}, &host{})
	if want := "0.0.0.0:8083->80/tcp 0.0.0.0:8082->81/tcp 0.0.0.0:8080->82/tcp 0.0.0.0:8081->83/tcp"; texts(got) != want || err != nil {
		t.Errorf("got %s, %v", texts(got), err)
	}
}

// What the container had on another network it gets again, of the requests that may have it, if it
// is still free.
func TestBefore(t *testing.T) {
	before := []Binding{{TCP, netip.MustParseAddrPort("0.0.0.0:40001"), netip.MustParseAddrPort("10.128.9.2:80"), 1}, {UDP, netip.MustParseAddrPort("0.0.0.0:40002"), netip.MustParseAddrPort("10.128.9.2:53"), 0}}
	reqs := []Request{{TCP, 80, netip.Addr{}, 0, 0, 0}, {TCP, 81, netip.Addr{}, 0, 0, 0}, {TCP, 53, netip.Addr{}, 0, 0, 0}, {UDP, 53, netip.Addr{}, 9000, 9001, 0}}
	h := &host{}
	got, err := Assign(reqs, []netip.Addr{c4}, nil, Choice{First: 32768, Last: 60999, Before: before}, h)
	if want := "0.0.0.0:40001->80/tcp 0.0.0.0:40002->81/tcp 0.0.0.0:40003->53/tcp 0.0.0.0:9000->53/udp"; texts(got) != want || err != nil {
		t.Errorf("got %s, %v", texts(got), err)
	}
	got, err = Assign(reqs[:1], []netip.Addr{c4}, nil, Choice{First: 32768, Last: 60999, Before: before}, h)
	if want := "0.0.0.0:32768->80/tcp"; texts(got) != want || err != nil {
		t.Errorf("a port that is another's by now: got %s, %v", texts(got), err)
	}
}

// What the forms of -p become. The portmaps are Engine 20.10's.
func TestForms(t *testing.T) {
	for _, tt := range []struct {
		flag, portmap string
		to            []netip.Addr
		want          string
	}{
		{"none", `[]`, []netip.Addr{c4}, ""},
		{"8080:80", `[{"Proto":6,"IP":"","Port":80,"HostIP":"","HostPort":8080,"HostPortEnd":8080}]`, []netip.Addr{c4}, "0.0.0.0:8080->80/tcp"},
		{"8080:80", `[{"Proto":6,"IP":"","Port":80,"HostIP":"","HostPort":8080,"HostPortEnd":8080}]`, []netip.Addr{c4, c6}, "0.0.0.0:8080->80/tcp [::]:8080->80/tcp"},
		{"8080:80/udp", `[{"Proto":17,"IP":"","Port":80,"HostIP":"","HostPort":8080,"HostPortEnd":8080}]`, []netip.Addr{c4}, "0.0.0.0:8080->80/udp"},
		{"8080:80/sctp", `[{"Proto":132,"IP":"","Port":80,"HostIP":"","HostPort":8080,"HostPortEnd":8080}]`, []netip.Addr{c4}, "0.0.0.0:8080->80/sctp"},
		{"127.0.0.1:8080:80", `[{"Proto":6,"IP":"","Port":80,"HostIP":"127.0.0.1","HostPort":8080,"HostPortEnd":8080}]`, []netip.Addr{c4, c6}, "127.0.0.1:8080->80/tcp"},
		{"[::1]:8080:80", `[{"Proto":6,"IP":"","Port":80,"HostIP":"::1","HostPort":8080,"HostPortEnd":8080}]`, []netip.Addr{c4, c6}, "[::1]:8080->80/tcp"},
		{"8000-8001:80-81", `[{"Proto":6,"IP":"","Port":80,"HostIP":"","HostPort":8000,"HostPortEnd":8000},{"Proto":6,"IP":"","Port":81,"HostIP":"","HostPort":8001,"HostPortEnd":8001}]`, []netip.Addr{c4}, "0.0.0.0:8000-8001->80-81/tcp"},
		{"8000-8001:80-81 8003:83 8001:81/udp", `[{"Proto":6,"Port":81,"HostPort":8001,"HostPortEnd":8001},{"Proto":6,"Port":80,"HostPort":8000,"HostPortEnd":8000},{"Proto":6,"Port":83,"HostPort":8003,"HostPortEnd":8003},{"Proto":17,"Port":81,"HostPort":8001,"HostPortEnd":8001}]`, []netip.Addr{c4}, "0.0.0.0:8000-8001->80-81/tcp 0.0.0.0:8003->83/tcp 0.0.0.0:8001->81/udp"},
		{"8000-8001:80", `[{"Proto":6,"IP":"","Port":80,"HostIP":"","HostPort":8000,"HostPortEnd":8001}]`, []netip.Addr{c4}, "0.0.0.0:8000->80/tcp"},
		{"80", `[{"Proto":6,"IP":"","Port":80,"HostIP":"","HostPort":0,"HostPortEnd":0}]`, []netip.Addr{c4}, "0.0.0.0:32775->80/tcp"},
		{"0.0.0.0::80", `[{"Proto":6,"IP":"","Port":80,"HostIP":"0.0.0.0","HostPort":0,"HostPortEnd":0}]`, []netip.Addr{c4, c6}, "0.0.0.0:32775->80/tcp"},
	} {
		reqs, err := Parse(options(t, tt.portmap))
		if err != nil {
			t.Errorf("-p %s: %v", tt.flag, err)
			continue
		}
		got, err := Assign(reqs, tt.to, nil, Choice{First: 32768, Last: 60999, Start: 7}, &host{})
		if texts(got) != tt.want || err != nil {
			t.Errorf("-p %s to %v: %v, %v, want %s", tt.flag, tt.to, texts(got), err, tt.want)
		}
	}
}

// At the host's IPv6 addresses a container that has IPv4 only is published as well, where the host
// has any, as Docker's own proxy does it; SCTP is not.
func TestCross(t *testing.T) {
	v6 := netip.MustParseAddr("::1")
	for _, tt := range []struct {
		req  Request
		to   []netip.Addr
		want string
	}{
		{Request{TCP, 80, netip.Addr{}, 8080, 8080, 1}, []netip.Addr{c4}, "0.0.0.0:8080-8081->80-81/tcp [::]:8080-8081->80-81/tcp"},
		{Request{TCP, 80, netip.Addr{}, 8080, 8080, 0}, []netip.Addr{c4, c6}, "0.0.0.0:8080->80/tcp [::]:8080->80/tcp"},
		{Request{TCP, 80, netip.Addr{}, 8080, 8080, 0}, []netip.Addr{c6}, "[::]:8080->80/tcp"},
		{Request{UDP, 80, netip.Addr{}, 30000, 30000, 9999}, []netip.Addr{c4}, "0.0.0.0:30000-39999->80-10079/udp"}, // each would cost a socket
		{Request{UDP, 80, v6, 8080, 8080, 0}, []netip.Addr{c4}, "[::1]:8080->80/udp"},
		{Request{TCP, 80, netip.MustParseAddr("127.0.0.1"), 8080, 8080, 0}, []netip.Addr{c4}, "127.0.0.1:8080->80/tcp"},
		{Request{SCTP, 80, netip.Addr{}, 8080, 8080, 0}, []netip.Addr{c4}, "0.0.0.0:8080->80/sctp"},
	} {
		h := &host{}
		got, err := Assign([]Request{tt.req}, tt.to, nil, Choice{Cross: true}, h)
		if texts(got) != tt.want || err != nil || len(h.held) != len(got) {
			t.Errorf("%s to %v: %s, %v; held %v", tt.req, tt.to, texts(got), err, h.held)
		}
		for _, b := range got {
			if b.Crosses() != (b.Host.Addr().Is6() && len(tt.to) == 1 && tt.to[0] == c4) {
				t.Errorf("%s: crosses: %v", b, b.Crosses())
			}
		}
	}
}

// All ports of all protocols, in Docker's words, are a handful of bindings, at once; to ask again
// changes nothing.
func TestAllPorts(t *testing.T) {
	var text strings.Builder
	for _, proto := range []Proto{UDP, TCP} {
		for p := 65535; p > 0; p-- {
			fmt.Fprintf(&text, `{"Proto":%d,"IP":"","Port":%d,"HostIP":"","HostPort":%d,"HostPortEnd":%d},`, proto, p, p, p)
		}
	}
	reqs, err := Parse(options(t, "["+strings.TrimSuffix(text.String(), ",")+"]"))
	if err != nil {
		t.Fatal(err)
	}
	const want = "0.0.0.0:1-65535->1-65535/tcp [::]:1-65535->1-65535/tcp 0.0.0.0:1-65535->1-65535/udp [::]:1-65535->1-65535/udp"
	var have []Binding
	for range 2 {
		got, err := Assign(reqs, []netip.Addr{c4, c6}, have, Choice{}, &host{})
		if texts(got) != want || err != nil {
			t.Fatalf("%v, %v", texts(got), err)
		}
		have = got
	}
}

// -P of an image that exposes many ports: each gets one of its own, at once.
func TestManyOpenPorts(t *testing.T) {
	var reqs []Request
	for p := range uint16(10000) {
		reqs = append(reqs, Request{UDP, 10000 + p, netip.Addr{}, 0, 0, 0})
	}
	h := &counting{}
	got, err := Assign(reqs, []netip.Addr{c4}, nil, Choice{First: 32768, Last: 60999, Start: 20000}, h)
	if err != nil || len(Runs(got)) > 2 {
		t.Fatalf("%d bindings, %v", len(Runs(got)), err)
	}
	if h.calls > 11000 {
		t.Errorf("%d tries for 10000 ports", h.calls)
	}
	again, err := Assign(reqs, []netip.Addr{c4}, Runs(got), Choice{First: 32768, Last: 60999}, h)
	if err != nil || !slices.Equal(again, got) {
		t.Errorf("asked again: %v", err)
	}
}

type counting struct {
	taken [65536]bool
	calls int
}

func (c *counting) Hold(b Binding) error {
	c.calls++
	if c.taken[b.Host.Port()] {
		return &TakenError{b, func() string { return "" }}
	}
	c.taken[b.Host.Port()] = true
	return nil
}

func (c *counting) Release(Binding) {}

func TestBadRequests(t *testing.T) {
	for text, want := range map[string]string{
		`"80"`:                                 "read the ports to publish",
		`[{"Port":"80"}]`:                      "read the ports to publish",
		`[{"Proto":1,"Port":80}]`:              "protocol 1 of port 80 cannot be published",
		`[{"Proto":6,"Port":0,"HostPort":80}]`: "port 0/tcp",
		`[{"Proto":6,"Port":80,"HostPort":90,"HostPortEnd":80}]`:     "90-80 is no range",
		`[{"Proto":6,"Port":80,"HostPortEnd":80}]`:                   "0-80 is no range",
		`[{"Proto":6,"Port":80,"HostPort":70000}]`:                   "read the ports to publish",
		`[{"Proto":6,"Port":80,"HostPort":80,"HostIP":"localhost"}]`: "is no address of a host",
		`[{"Proto":6,"Port":80,"HostPort":80,"HostIP":"fe80::1%a"}]`: "is no address of a host",
	} {
		if got, err := Parse(options(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	if got, err := Parse(map[string]any{OptPortMap: make([]map[string]any, maxRequests+1)}); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("too many: %d, %v", len(got), err)
	}
	if got, err := Parse(map[string]any{}); got != nil || err != nil {
		t.Errorf("none: %v, %v", got, err)
	}
}

func TestErrors(t *testing.T) {
	h := &host{held: []Binding{{TCP, netip.MustParseAddrPort("127.0.0.1:8081"), netip.MustParseAddrPort("10.128.0.9:80"), 0}}}
	for _, tt := range []struct {
		req  Request
		want string
	}{
		{Request{TCP, 80, netip.Addr{}, 8081, 8081, 0}, "bind for 0.0.0.0:8081/tcp failed: port is already in use by somebody; stop that, or publish another port of the host (-p OTHER:80)"},
		{Request{TCP, 80, netip.MustParseAddr("127.0.0.1"), 8081, 8081, 0}, "bind for 127.0.0.1:8081/tcp failed"},
		{Request{TCP, 80, netip.IPv6Loopback(), 8081, 8081, 0}, "80/tcp cannot be published at ::1: the container has no address of that family (it has 10.128.0.2)"},
	} {
		got, err := Assign([]Request{{UDP, 53, netip.Addr{}, 53, 53, 0}, tt.req}, []netip.Addr{c4}, nil, Choice{}, h)
		if err == nil || !strings.Contains(err.Error(), tt.want) || len(got) != 0 {
			t.Errorf("%s: %v, %v", tt.req, got, err)
		}
		if len(h.held) != 1 {
			t.Fatalf("%s: held after the error: %v", tt.req, h.held)
		}
	}
	full := &host{held: []Binding{
		{TCP, netip.MustParseAddrPort("0.0.0.0:8081"), netip.AddrPort{}, 0}, {TCP, netip.MustParseAddrPort("[::]:8082"), netip.AddrPort{}, 0},
	}}
	_, err := Assign([]Request{{TCP, 80, netip.Addr{}, 8081, 8082, 0}}, []netip.Addr{c4, c6}, nil, Choice{}, full)
	if err == nil || !strings.Contains(err.Error(), "a port of 8081-8082 for 80/tcp: none of 2 ports is free; the last one: bind for [::]:8082/tcp") {
		t.Errorf("a range that is full: %v", err)
	}
	if len(full.held) != 2 {
		t.Errorf("held: %v", full.held)
	}
	broken := errors.New("no such address")
	_, err = Assign([]Request{{TCP, 80, netip.Addr{}, 8081, 8082, 0}}, []netip.Addr{c4}, nil, Choice{}, refuse{broken})
	if !errors.Is(err, broken) {
		t.Errorf("an error that another port does not help: %v", err)
	}
}

type refuse struct{ err error }

func (r refuse) Hold(Binding) error { return r.err }
func (refuse) Release(Binding)      {}

func someRequests() *rapid.Generator[[]Request] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Request {
		r := Request{
			Proto: rapid.SampledFrom([]Proto{TCP, UDP, SCTP}).Draw(t, "proto"),
			Port:  rapid.Uint16Range(1, 3).Draw(t, "port"),
			First: rapid.Uint16Range(0, 6).Draw(t, "first"),
		}
		if r.First != 0 {
			r.Last = r.First + rapid.Uint16Range(0, 3).Draw(t, "more")
		}
		r.Host = rapid.SampledFrom([]netip.Addr{{}, netip.IPv4Unspecified(), netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.1")}).Draw(t, "host")
		return r
	}), 0, 5)
}

// Whatever containers come, go and ask again: what is held is what is bound, no two
// bindings overlap, each answers its request, and asking again changes nothing.
func TestAssignHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, of := &host{}, map[netip.Addr][]Binding{}
		open := Choice{First: 5, Last: 9}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			c := netip.AddrFrom4([4]byte{10, 0, 0, rapid.Byte().Draw(t, "container") % 4})
			if rapid.Bool().Draw(t, "stop") {
				releaseAll(h, of[c])
				delete(of, c)
				continue
			}
			reqs := someRequests().Draw(t, "requests")
			open.Start = rapid.Uint16().Draw(t, "start")
			before := len(h.held)
			got, err := Assign(reqs, []netip.Addr{c}, of[c], open, h)
			if err != nil {
				if !taken(err) || len(h.held) != before {
					t.Fatalf("%v; held %d, then %d", err, before, len(h.held))
				}
				continue
			}
			for _, b := range of[c] {
				if !slices.Contains(got, b) {
					h.Release(b)
				}
			}
			answers(t, reqs, got, open)
			again, err := Assign(rapid.Permutation(reqs).Draw(t, "again"), []netip.Addr{c}, got, open, h)
			if err != nil || !slices.Equal(sorted(again), sorted(got)) {
				t.Fatalf("asked again for %v: %v, then %v (%v)", reqs, got, again, err)
			}
			of[c] = got
			consistent(t, h, of)
		}
	})
}

func sorted(list []Binding) []Binding {
	return slices.SortedFunc(slices.Values(list), Binding.Compare)
}

func answers(t *rapid.T, reqs []Request, got []Binding, open Choice) {
	if len(got) != len(reqs) {
		t.Fatalf("%d requests, %d bindings", len(reqs), len(got))
	}
	for i, r := range reqs {
		b, first, last := got[i], r.First, r.Last
		if first == 0 {
			first, last = open.First, open.Last
			if b.Host.Port() < first || b.Host.Port() > last {
				continue // kept from another request that named it
			}
		}
		if b.Proto != r.Proto || b.To.Port() != r.Port || b.Host.Port() < first || b.Host.Port() > last ||
			r.Host.IsValid() && b.Host.Addr() != r.Host {
			t.Fatalf("%s got %s", r, b)
		}
	}
}

func consistent(t *rapid.T, h *host, of map[netip.Addr][]Binding) {
	var all []Binding
	for _, list := range of {
		all = append(all, list...)
	}
	if len(all) != len(h.held) {
		t.Fatalf("held %v, bound %v", h.held, all)
	}
	for i, a := range all {
		for _, b := range all[:i] {
			if a.Overlaps(b) || b.Overlaps(a) {
				t.Fatalf("%s and %s overlap", a, b)
			}
		}
	}
}

func TestCompareOrders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) Binding {
			return Binding{
				rapid.SampledFrom([]Proto{TCP, UDP}).Draw(t, name),
				netip.AddrPortFrom(rapid.SampledFrom([]netip.Addr{c4, c6}).Draw(t, name), rapid.Uint16Range(1, 2).Draw(t, name)),
				netip.AddrPortFrom(c4, rapid.Uint16Range(1, 2).Draw(t, name)),
				rapid.Uint16Range(0, 1).Draw(t, name),
			}
		}
		a, b := draw("a"), draw("b")
		if (a.Compare(b) == 0) != (a == b) || a.Compare(b) != -b.Compare(a) {
			t.Fatalf("%v and %v: %d, %d", a, b, a.Compare(b), b.Compare(a))
		}
	})
}
