package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// drawBody returns a valid body of any kind.
func drawBody(t *rapid.T) Body {
	addr := func(label string) netip.Addr {
		if rapid.Bool().Draw(t, label+" is IPv6") {
			return netip.AddrFrom16([16]byte{0: 0xfd, 15: rapid.Byte().Draw(t, label)})
		}
		return netip.AddrFrom4([4]byte{10, 1, 0, rapid.Byte().Draw(t, label)})
	}
	text := rapid.StringMatching(`[a-zA-Z0-9äö/_.-]{1,40}`)
	texts := rapid.MapOfN(text, rapid.String(), 0, 3)
	host := id(rapid.IntRange(0, 9).Draw(t, "host"))
	name := text.Draw(t, "name")
	switch rapid.SampledFrom([]Kind{KindNode, KindNetwork, KindSubnet, KindEndpoint, KindUse, KindClaim, KindPolicy, KindService, KindAddresses, KindRealm, KindEgress, KindEgressHolder, KindListen, KindTrial, KindLabelEgress, KindBare, KindSignedPolicy, KindThrough, KindUnfit, KindNetworkLimits}).Draw(t, "kind") {
	case KindNode:
		gossip := netip.AddrPortFrom(addr("gossip"), rapid.Uint16().Draw(t, "port"))
		return Node{ID: host, Name: name, VTEP: addr("vtep"), Gossip: gossip, VXLANPort: 4789, MTU: 1500, Agent: "v1", Datapath: "kernel"}
	case KindNetwork:
		return Network{
			Name: name, VNID: rapid.Uint32Range(0, maxVNID).Draw(t, "vnid"), Options: texts.Draw(t, "options"),
			Labels: texts.Draw(t, "labels"), Internal: rapid.Bool().Draw(t, "internal"), Removed: rapid.Bool().Draw(t, "removed"),
		}
	case KindSubnet:
		p := netip.PrefixFrom(addr("prefix"), 24).Masked()
		s := Subnet{Prefix: p, Network: name, HostBits: rapid.Uint8Range(0, 8).Draw(t, "bits"), Home: host}
		if rapid.Bool().Draw(t, "all") {
			s.Gateway, s.Range, s.Aux = p.Addr().Next(), netip.PrefixFrom(p.Addr(), 26), map[string]netip.Addr{"x": p.Addr()}
		}
		return s
	case KindEndpoint:
		return Endpoint{
			ID: name, Network: name, Addrs: []netip.Addr{addr("a"), addr("b")}, MAC: "02:00:0a:01:00:05", Host: host,
			Container: "c", Name: name, Aliases: rapid.SliceOfN(text, 0, 3).Draw(t, "aliases"),
			Labels: texts.Draw(t, "labels"), Labelled: rapid.Bool().Draw(t, "labelled"), Besides: rapid.IntRange(0, 1).Draw(t, "besides"),
		}
	case KindUse:
		return Use{Network: name, Host: host}
	case KindAddresses:
		return Addresses{Host: host, List: []netip.Addr{addr("first"), addr("second")}}
	case KindRealm:
		r := Realm{Network: name, VNID: rapid.Uint32Range(0, maxVNID).Draw(t, "vnid"), Made: "x", Global: rapid.Bool().Draw(t, "global"), Author: "host1", Base: []Edit{{Counter: 5, Node: host}}}
		if !r.Global {
			r.With = "0123"
		}
		return r
	case KindPolicy:
		return Policy{Scope: ScopeNetwork, Network: "blue", Name: strings.ReplaceAll(name, "/", "-"), Text: "kind: " + name, Author: "host1", Base: []Edit{{Counter: 5, Node: host}}}
	case KindSignedPolicy:
		return signed(operator(1), strings.ReplaceAll(name, "/", "-"), rapid.Uint64Range(1, MaxSerial).Draw(t, "serial"), rapid.SampledFrom([]string{"", "kind: " + name}).Draw(t, "text"))
	case KindTrial:
		return Trial{Scope: ScopeNetwork, Network: "blue", Name: strings.ReplaceAll(name, "/", "-"), Text: "kind: " + name, Author: "host1"}
	case KindEgress:
		return Egress{Name: strings.ReplaceAll(name, "/", "-"), Networks: []string{name}, Addrs: []netip.Addr{addr("egress")}, Gateways: []string{name}, Quorum: rapid.Bool().Draw(t, "quorum"), Author: "host1"}
	case KindEgressHolder:
		return EgressHolder{Egress: name, Host: host, MAC: "02:00:0a:01:00:05"}
	case KindLabelEgress:
		return LabelEgress{Name: strings.ReplaceAll(name, "/", "-"), Networks: []string{name}, Addrs: []netip.Addr{addr("egress")}, Author: "host1", Labels: []string{"role=" + name}}
	case KindUnfit:
		return Unfit{Host: host, Egresses: []UnfitCase{{name, "eth1"}, {Egress: name}}}
	case KindNetworkLimits:
		return NetworkLimits{Network: name, VNID: rapid.Uint32Range(0, maxVNID).Draw(t, "vnid"), Made: "x", Options: map[string]string{OptEgress: "20mbit", OptLoss: NoLimit}, Author: "host1"}
	case KindThrough:
		return Through{Host: host, Takes: []uint64{rapid.Uint64().Draw(t, "takes")}}
	case KindBare:
		return Bare{
			Host: host, MAC: net.HardwareAddr{2, 0, 0, 0, 0, rapid.Byte().Draw(t, "MAC")}, Stamp: rapid.Uint64().Draw(t, "stamp"),
			Says: []BareSays{{netip.PrefixFrom(addr("prefix"), 24).Masked(), rapid.Uint32Range(1, maxVNID).Draw(t, "vnid")}}, Takes: []BareTakes{{host, rapid.Uint64().Draw(t, "heard")}},
		}
	case KindListen:
		return Listen{Endpoint: name, Host: host, Groups: []netip.Addr{netip.MustParseAddr("224.0.0.251"), netip.MustParseAddr("ff02::fb")}}
	case KindService:
		return Service{Network: "blue", Name: strings.ReplaceAll(name, "/", "-"), Select: name, Addrs: []netip.Addr{addr("vip")}, Ports: []ServicePort{{Proto: "udp", Port: 53, Target: 5353}}, Affinity: rapid.Bool().Draw(t, "affinity"), Author: "host1"}
	}
	return Claim{Block: netip.PrefixFrom(addr("block"), rapid.IntRange(0, 32).Draw(t, "bits")).Masked(), Owner: host}
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var recs []Record
		for range rapid.IntRange(0, 5).Draw(t, "records") {
			counter := rapid.Uint64Range(1, 1<<40).Draw(t, "counter")
			r := Record{Version: Version{counter, id(7)}, Prev: rapid.Uint64Range(0, counter-1).Draw(t, "prev"), Body: drawBody(t)}
			r.Key = r.Body.Key()
			if err := r.validate(); err != nil {
				t.Fatalf("the test draws a bad record: %v", err)
			}
			if rapid.Bool().Draw(t, "delete") && r.Key.Kind != KindClaim {
				r.Body, r.Deleted = nil, 1234567
			}
			recs = append(recs, r)
		}
		m := Message{Records: recs, Sync: rapid.Uint64().Draw(t, "sync"), Part: rapid.Uint32().Draw(t, "part")}
		if rapid.Bool().Draw(t, "last") {
			m.Complete = &Digest{Early: rapid.Uint64().Draw(t, "early"), Marks: map[NodeID]uint64{id(3): 1, id(1): rapid.Uint64Min(1).Draw(t, "mark")}}
		}
		wire := m.Encode()
		got, err := DecodeMessage(wire)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.EqualFunc(got.Records, recs, Record.Equal) || got.Sync != m.Sync || got.Part != m.Part {
			t.Fatalf("got %+v, want %+v", got, m)
		}
		for i := range recs {
			if g, w := fmt.Sprintf("%+v", *kept(&got.Records[i])), fmt.Sprintf("%+v", recs[i]); g != w && !strings.Contains(w, "map[]") {
				t.Fatalf("got %s, want %s", g, w)
			}
		}
		if (got.Complete == nil) != (m.Complete == nil) || !bytes.Equal(got.Encode(), wire) {
			t.Fatalf("encoded again: %x, first %x", got.Encode(), wire)
		}
	})
}

// newer is what a later agent might write: an Endpoint with one more field.
type newer struct {
	Endpoint
	Extra string `cbor:"99,keyasint"`
}

func TestWhatANewerAgentWritesGoesOnWhole(t *testing.T) {
	e := Endpoint{ID: "e", Network: "blue", Host: id(1)}
	body := must(encoding.Marshal(newer{e, "more"}))
	unknown := must(encoding.Marshal(wireRecord{Kind: 77, Counter: 6, Node: id(1), Prev: 5, ID: "x", Body: []byte{0x01}}))
	known := must(encoding.Marshal(wireRecord{Kind: KindEndpoint, Counter: 5, Node: id(1), Body: body}))
	wire := wireMessage{Records: []part{known, unknown}}.encode()
	recs, err := Decode(wire)
	if err != nil {
		t.Fatal(err)
	}
	s := New(id(2))
	merge(t, s, recs)
	if got, ok := Get[Endpoint](s.Snapshot(), "e"); !ok || got.Network != "blue" {
		t.Errorf("endpoint %+v, %v", got, ok)
	}
	if on := Encode(slices.Collect(s.Missing(Digest{}))); !bytes.Equal(on, wire) {
		t.Errorf("passed on %x, want %x", on, wire)
	}
	if s.Digest().Marks[id(1)] != 6 {
		t.Errorf("digest %v", s.Digest())
	}
}

func TestDecodeRefuses(t *testing.T) {
	good := Encode([]Record{put(t, New(id(1)), Network{Name: "good"})})
	rec := func(w wireRecord) []byte { return must(encoding.Marshal(w)) }
	msg := func(r []byte) []byte {
		return wireMessage{Records: []part{r, encodedRecord(t, good)}}.encode()
	}
	long := strings.Repeat("x", maxName+1)
	network := func(n Network) []byte {
		return msg(rec(wireRecord{Kind: KindNetwork, Counter: 1, Node: id(1), Body: must(encoding.Marshal(n))}))
	}
	tests := map[string]struct {
		wire   []byte
		reason error
		left   int // good records that come through all the same
	}{
		"nothing":         {nil, ErrMalformed, 0},
		"newer version":   {append([]byte{wireVersion + 1}, good[1:]...), ErrVersion, 0},
		"version 0":       {append([]byte{0}, good[1:]...), ErrMalformed, 0},
		"no CBOR":         {[]byte{wireVersion, 0xff}, ErrMalformed, 0},
		"cut off":         {good[:len(good)-1], ErrMalformed, 0},
		"trailing bytes":  {append(slices.Clone(good), 0), ErrMalformed, 0},
		"too long":        {append(slices.Clone(good), make([]byte, maxMessage)...), ErrMalformed, 0},
		"indefinite":      {[]byte{wireVersion, 0xbf, 0xff}, ErrMalformed, 0},
		"duplicate field": {[]byte{wireVersion, 0xa2, 2, 1, 2, 2}, ErrMalformed, 0},
		"tag":             {[]byte{wireVersion, 0xc1, 0xa0}, ErrMalformed, 0},
		"huge array":      {[]byte{wireVersion, 0xa1, 1, 0x9b, 0, 0, 0, 1, 0, 0, 0, 0}, ErrMalformed, 0},
		"deep":            {append([]byte{wireVersion, 0xa1, 1}, bytes.Repeat([]byte{0x81}, 1000)...), ErrMalformed, 0},
		"bad digest":      {wireMessage{Last: true, Complete: []byte{1, 2, 3}}.encode(), ErrMalformed, 0},
		"record no map":   {msg([]byte{0x01}), ErrMalformed, 1},
		"VNID":            {network(Network{Name: "x", VNID: 1 << 24}), ErrMalformed, 1},
		"long name":       {network(Network{Name: long}), ErrMalformed, 1},
		"control":         {network(Network{Name: "a\nb"}), ErrMalformed, 1},
		"MTU":             {network(Network{Name: "x", MTU: -1}), ErrMalformed, 1},
		"big body":        {network(Network{Name: "x", Labels: bigLabels()}), ErrMalformed, 1},
		"body of a type":  {msg(rec(wireRecord{Kind: KindNode, Counter: 1, Node: id(1), Body: []byte{0x61, 'a'}})), ErrMalformed, 1},
		"two keys":        {msg(rec(wireRecord{Kind: KindUse, ID: "z", Counter: 1, Node: id(1), Body: must(encoding.Marshal(Use{"n", id(1)}))})), ErrMalformed, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			recs, err := Decode(tt.wire)
			if len(Refusals(err)) != 1 || !errors.Is(err, tt.reason) {
				t.Errorf("error %v, want one %v", err, tt.reason)
			}
			if len(recs) != tt.left {
				t.Errorf("%d records came through, want %d", len(recs), tt.left)
			}
		})
	}
}

func TestValidateRefuses(t *testing.T) {
	p := prefix("10.1.0.0/24")
	sub := Subnet{Prefix: p, Network: "n"}
	with := func(change func(*Subnet)) Subnet {
		s := sub
		change(&s)
		return s
	}
	ep := Endpoint{ID: "e", Network: "n", Host: id(1)}
	epWith := func(change func(*Endpoint)) Endpoint {
		e := ep
		change(&e)
		return e
	}
	policy := Policy{
		Scope: ScopeNetwork, Network: strings.Repeat("n", 100), Name: strings.Repeat("x", 180), Text: strings.Repeat("x", MaxPolicyText),
		Author: strings.Repeat("h", maxName),
		Base:   slices.Repeat([]Edit{{Counter: 1 << 60, Node: id(1)}}, MaxBase),
	}
	put(t, New(id(1)), policy) // it is no larger than a body may be
	newerScope := Policy{Scope: "tier", Name: "x", Text: "what only newer agents read"}
	for _, good := range []Body{sub, ep, policy, newerScope, epWith(func(e *Endpoint) { e.LinkLocal = []netip.Addr{netip.MustParseAddr("169.254.1.1")} }), Node{ID: id(1)}} {
		if err := Validate(good); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
	for name, bad := range map[string]Body{
		"link-local":      epWith(func(e *Endpoint) { e.LinkLocal = []netip.Addr{netip.MustParseAddr("10.0.0.1")} }),
		"link-local zone": epWith(func(e *Endpoint) { e.LinkLocal = []netip.Addr{netip.MustParseAddr("fe80::1%eth0")} }),
		"node ID":         Node{ID: "me"},
		"VTEP multicast":  Node{ID: id(1), VTEP: netip.MustParseAddr("224.0.0.1")},
		"VTEP any":        Node{ID: id(1), VTEP: netip.IPv4Unspecified()},
		"VTEP zone":       Node{ID: id(1), VTEP: netip.MustParseAddr("fe80::1%eth0")},
		"prefix masked":   with(func(s *Subnet) { s.Prefix = netip.MustParsePrefix("10.1.0.1/24") }),
		"prefix mapped":   with(func(s *Subnet) { s.Prefix = netip.MustParsePrefix("::ffff:10.1.0.0/120") }),
		"prefix none":     with(func(s *Subnet) { s.Prefix = netip.Prefix{} }),
		"gateway":         with(func(s *Subnet) { s.Gateway = netip.MustParseAddr("10.2.0.1") }),
		"range outside":   with(func(s *Subnet) { s.Range = prefix("10.2.0.0/25") }),
		"range wider":     with(func(s *Subnet) { s.Range = prefix("10.1.0.0/16") }),
		"host bits":       with(func(s *Subnet) { s.HostBits = 9 }),
		"aux":             with(func(s *Subnet) { s.Aux = map[string]netip.Addr{"x": netip.MustParseAddr("::1")} }),
		"home":            with(func(s *Subnet) { s.Home = "x" }),
		"no network":      with(func(s *Subnet) { s.Network = "" }),
		"MAC group":       epWith(func(e *Endpoint) { e.MAC = "01:00:5e:00:00:01" }),
		"MAC form":        epWith(func(e *Endpoint) { e.MAC = "0200.0a01.0005" }),
		"MAC long":        epWith(func(e *Endpoint) { e.MAC = "02:00:00:00:fe:80:00:00" }),
		"address none":    epWith(func(e *Endpoint) { e.Addrs = []netip.Addr{{}} }),
		"many addresses":  epWith(func(e *Endpoint) { e.Addrs = make([]netip.Addr, maxAddrs+1) }),
		"besides all":     epWith(func(e *Endpoint) { e.Addrs, e.Besides = []netip.Addr{netip.MustParseAddr("10.1.0.2")}, 1 }),
		"besides less":    epWith(func(e *Endpoint) { e.Besides = -1 }),
		"alias":           epWith(func(e *Endpoint) { e.Aliases = []string{""} }),
		"host":            epWith(func(e *Endpoint) { e.Host = "0000000000000001 " }),
		"labels":          Network{Name: "n", Labels: map[string]string{"a": strings.Repeat("x", maxText+1)}},
		"options of junk": Network{Name: "n", Options: map[string]string{"a\xff": ""}},
		"claim":           Claim{Block: p, Owner: ""},
		"claim block":     Claim{Block: netip.MustParsePrefix("10.1.0.1/24"), Owner: id(1)},
		"use":             Use{Network: "n"},
		"policy of none":  Policy{Scope: ScopeNetwork, Name: "db", Text: "x"},
		"policy of all":   Policy{Scope: ScopeCluster, Network: "n", Name: "db", Text: "x"},
		"policy empty":    Policy{Scope: ScopeCluster, Name: "db"},
		"policy nameless": Policy{Scope: ScopeCluster, Text: "x"},
		"policy slash":    Policy{Scope: ScopeNetwork, Network: "a/b", Name: "db", Text: "x"},
		"policy large":    Policy{Scope: ScopeCluster, Name: "db", Text: strings.Repeat("x", MaxPolicyText+1)},
		"policy junk":     Policy{Scope: ScopeCluster, Name: "db", Text: "\xff"},
		"policy key":      Policy{Scope: ScopeNetwork, Network: strings.Repeat("n", 200), Name: strings.Repeat("n", 200), Text: "x"},
		"policy base":     Policy{Scope: ScopeCluster, Name: "db", Text: "x", Base: []Edit{{Counter: 1, Node: "me"}}},
	} {
		if Validate(bad) == nil {
			t.Errorf("%s: %+v is valid", name, bad)
		}
	}
}

func bigLabels() map[string]string {
	m := map[string]string{}
	for i := range 9 {
		m[strconv.Itoa(i)] = strings.Repeat("x", maxText)
	}
	return m
}

// Labels that do not fit are left out, and the rest makes a record.
func TestFitLabels(t *testing.T) {
	many := map[string]string{"long": strings.Repeat("x", maxText+1), "junk": "\xff", "a": "1", "b": ""}
	kept, left := FitLabels(many)
	if !reflect.DeepEqual(kept, map[string]string{"a": "1", "b": ""}) || !slices.Equal(left, []string{"junk", "long"}) {
		t.Errorf("kept are %v, left %v", kept, left)
	}
	if kept, left := FitLabels(nil); kept != nil || left != nil {
		t.Errorf("of none: %v, %v", kept, left)
	}
	numbers := map[string]string{}
	for i := range 2 * maxEntries {
		numbers[strconv.Itoa(i)] = "v"
	}
	for _, labels := range []map[string]string{bigLabels(), numbers} {
		kept, left := FitLabels(labels)
		if len(kept) == 0 || len(kept)+len(left) != len(labels) {
			t.Errorf("of %d kept are %d, left %d", len(labels), len(kept), len(left))
		}
		raw := Encode([]Record{{Key: Network{Name: "x"}.Key(), Version: Version{Node: id(1), Counter: 1}, Body: Network{Name: "x", Labels: kept}}})
		if _, err := Decode(raw); err != nil {
			t.Error(err)
		}
	}
}

// encodedRecord returns the only record of a message in its wire form.
func encodedRecord(t testing.TB, msg []byte) []byte {
	t.Helper()
	w, err := openMessage(msg)
	if err != nil || len(w.Records) != 1 {
		t.Fatalf("%d records, %v", len(w.Records), err)
	}
	return w.Records[0]
}

func TestDigestForm(t *testing.T) {
	d := Digest{Early: 7, Marks: map[NodeID]uint64{id(2): 300, id(1): 1}}
	wire := EncodeDigest(d)
	back, err := DecodeDigest(wire)
	if err != nil || back.Early != 7 || len(back.Marks) != 2 || back.Marks[id(2)] != 300 {
		t.Errorf("%+v, %v", back, err)
	}
	entry := func(n byte, counter ...byte) []byte { return append([]byte{0, 0, 0, 0, 0, 0, 0, n}, counter...) }
	head := append([]byte{wireVersion}, make([]byte, 8)...)
	for name, bad := range map[string][]byte{
		"nothing":    nil,
		"no version": append([]byte{0}, wire[1:]...),
		"newer":      append([]byte{wireVersion + 1}, wire[1:]...),
		"cut off":    wire[:len(wire)-1],
		"counter 0":  slices.Concat(head, entry(1, 0)),
		"long form":  slices.Concat(head, entry(1, 0x81, 0)),
		"order":      slices.Concat(head, entry(2, 1), entry(1, 1)),
		"twice":      slices.Concat(head, entry(1, 1), entry(1, 1)),
		"overflow":   slices.Concat(head, entry(1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f)),
	} {
		if d, err := DecodeDigest(bad); len(Refusals(err)) != 1 {
			t.Errorf("%s: %v, %v", name, d, err)
		}
	}
}

// A record has room for the aliases that it takes, whatever their lengths, and agents that know
// nothing of More take it.
func TestAliasesFit(t *testing.T) {
	long := strings.Repeat("x", maxName)
	addrs := slices.Repeat([]netip.Addr{netip.MustParseAddr("fe80::1111:2222:3333:4444")}, maxAddrs)
	e := Endpoint{
		ID: long, Network: long, Addrs: addrs, MAC: "02:00:0a:01:00:05", Host: "00000000000000aa", Container: long, Name: long, LinkLocal: addrs, Outdated: true, Labelled: true,
		Labels: map[string]string{},
	}
	for i := range 63 {
		e.Labels[fmt.Sprint(i)+strings.Repeat("k", 7)] = strings.Repeat("v", 48)
	}
	if e.Labels["more"] = strings.Repeat("v", 127); !LabelsFit(e.Labels) {
		t.Error("labels do not fit")
	}
	if e.Labels["more"] += "v"; LabelsFit(e.Labels) {
		t.Error("too many labels fit")
	}
	for _, length := range []int{1, 23, 24, 120, 250} {
		var all []string
		for i := range 20000 {
			all = append(all, strings.Repeat(string(rune('a'+i%26)), length))
		}
		with, left := e.WithAliases(append([]string{"", "not\nprintable", long + "x"}, all...))
		if err := Validate(with); err != nil {
			t.Error(err)
		}
		raw := must(encoding.Marshal(with))
		if len(raw) > maxBody || len(raw) < maxBody-5*1024 && length > 1 || len(with.Aliases) > maxEntries {
			t.Errorf("length %d: a body of %d bytes, %d aliases and %d more", length, len(raw), len(with.Aliases), len(with.More))
		}
		if !slices.Equal(append(with.AllAliases(), left[3:]...), all) {
			t.Errorf("length %d: %d aliases and %d left", length, len(with.AllAliases()), len(left))
		}
	}
}

// TestDigestOfManyHosts: hosts that have gone stay in digests, and there may be many after years.
func TestDigestOfManyHosts(t *testing.T) {
	d := Digest{Marks: map[NodeID]uint64{}}
	for i := range 100_000 {
		d.Marks[NodeID(fmt.Sprintf("%016x", i+1))] = uint64(i + 1)
	}
	b := EncodeDigest(d)
	got, err := DecodeDigest(b)
	if err != nil || !maps.Equal(got.Marks, d.Marks) {
		t.Errorf("%d of %d hosts, %v", len(got.Marks), len(d.Marks), err)
	}
	t.Logf("%d hosts take %d kB", len(d.Marks), len(b)>>10)
}
