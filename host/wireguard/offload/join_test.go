package offload

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

// written is what the kernel gets for a group.
func written(g group, batch [][]byte) (h header, p []byte) {
	b := bytes.Repeat([]byte{0xaa}, g.headersLen())
	g.super(b, batch[g.of[len(g.of)-1]][g.first.tcp+tcpFlags])
	for _, i := range g.of {
		b = append(b, batch[i][g.first.data:]...)
	}
	if err := h.decode(b); err != nil {
		panic(err)
	}
	return h, b[headerLen:]
}

// unpadded is a packet that super made, without the headers that it has put in.
func unpadded(p []byte) []byte {
	p = slices.Concat(p[:ip6Len], p[ip6Len+padLen:])
	p[ip6Next] = protocolUDP
	be.PutUint16(p[ip6Payload:], be.Uint16(p[ip6Payload:])-padLen)
	return p
}

// joinable is a shape whose packets are to be joined.
func joinable(r *rand.Rand) shape {
	s := anyShape(r)
	s.outer = 6
	s.flags &^= cwr
	s.payload = min(s.payload, 60000)
	return s
}

// TestJoin: what was cut is joined to what it was, and is cut to what it was.
func TestJoin(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	var j join
	for range 2000 {
		s := joinable(r)
		payload := s.random(r)
		batch := s.wire(payload)
		groups := j.plan(len(batch), func(i int) []byte { return batch[i] })
		if len(groups) != 1 || len(groups[0].of) != len(batch) {
			t.Fatalf("%+v: %d packets become %d", s, len(batch), len(groups))
		}
		h, p := written(groups[0], batch)
		wantHeader, want := s.whole(payload)
		wantHeader.headers, wantHeader.csumStart = wantHeader.csumStart+20+uint16(s.options)+padLen, wantHeader.csumStart+padLen
		wantHeader.outer, wantHeader.inner = wantHeader.outer+padLen, wantHeader.inner+padLen
		if got := unpadded(p); h != wantHeader || !bytes.Equal(got, want) {
			t.Fatalf("%+v: %+v\n%x\nwant %+v\n%x", s, h, got, wantHeader, want)
		}
		for i, one := range cutAll(t, h, p) {
			if !bytes.Equal(unpadded(one), batch[i]) {
				t.Fatalf("%+v: packet %d is cut otherwise than it was", s, i)
			}
		}
	}
}

// TestNotJoined: each packet that differs in anything that a super-packet says once stays alone, and so does one whose
// checksums are wrong, and is still given to the kernel as it came.
func TestNotJoined(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for _, inner := range []int{4, 6} {
		s := shape{outer: 6, checked: true, inner: inner, options: 12, flags: ack, size: 500, payload: 1500, seq: 1<<32 - 600, id: 0xffff, port: 4000, vni: 77}
		batch := s.wire(s.random(r))
		p := batch[1]
		tcp := innerAt + len(s.ip(inner, 6, 0, 0))
		again := func(p []byte) { // its checksums are right after a change
			if inner == 4 {
				check4(p[innerAt:])
			}
			naiveCheck(p[innerAt:], tcp-innerAt, 16, 6)
			naiveCheck(p, ip6Len, 6, 17)
		}
		var j join
		for at := range p {
			batch[1] = slices.Clone(p)
			batch[1][at] ^= 0x10
			// A length that is wrong says more than that; what the payload is does not matter.
			wrong := slices.Clone(batch[1])
			if again(wrong); at < tcp+32 && len(j.plan(3, func(i int) []byte { return [][]byte{batch[0], wrong, batch[2]}[i] })) == 1 && !free(s, at, tcp) {
				t.Errorf("IPv%d: joined, with another byte at %d", inner, at)
			}
			if groups := j.plan(3, func(i int) []byte { return batch[i] }); len(groups) == 1 {
				t.Errorf("IPv%d: joined, with a checksum that is wrong by the byte at %d", inner, at)
			}
		}
		// Nothing comes before what was sent before it in the same connection.
		for _, flags := range []byte{ack | psh, ack | fin, ack | cwr, ack | syn, ack | rst, ack | urg} {
			batch[1] = slices.Clone(p)
			batch[1][tcp+tcpFlags] = flags
			again(batch[1])
			inOrder(t, &j, batch)
		}
	}
}

// free says that a byte may be another one: checksums, which are computed again, and headers' reserved bits are not.
func free(s shape, at, tcp int) bool {
	checks := []int{ip6Len + udpCheck, tcp + tcpCheck}
	if s.inner == 4 {
		checks = append(checks, innerAt+ip4Check)
	}
	return slices.ContainsFunc(checks, func(c int) bool { return at == c || at == c+1 })
}

// inOrder checks that each packet is in one group, and that what carries data of one connection comes in its order.
func inOrder(t testing.TB, j *join, batch [][]byte) {
	t.Helper()
	var said []int
	for _, g := range j.plan(len(batch), func(i int) []byte { return batch[i] }) {
		if len(g.of) > 1 && !slices.IsSorted(g.of) {
			t.Fatalf("a group is %v", g.of)
		}
		said = append(said, g.of...)
	}
	sorted := slices.Sorted(slices.Values(said))
	for i, at := range sorted {
		if i != at || len(sorted) != len(batch) {
			t.Fatalf("%d packets are given as %v", len(batch), said)
		}
	}
	for i, a := range said {
		for _, b := range said[i+1:] {
			one, is1 := parse(batch[a])
			two, is2 := parse(batch[b])
			if is1 && is2 && one.same(two) && b < a {
				t.Fatalf("packet %d of a connection comes before %d: %v", a, b, said)
			}
		}
	}
}

// TestMixed: of many connections, and what is none, each packet is given once, and each connection's in their order; what
// is joined is cut again to what it was.
func TestMixed(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	var j join
	joined := 0
	for range 500 {
		var batch [][]byte
		for c := range 1 + r.IntN(6) {
			s := joinable(r)
			s.port, s.flags = uint16(1000+c), s.flags|[]byte{0, 0, 0, cwr, syn}[r.IntN(5)]
			s.payload = min(s.payload, 8*s.size)
			all := s.wire(s.random(r))
			if r.IntN(3) == 0 {
				i := r.IntN(len(all))
				all[i] = slices.Clone(all[i])
				all[i][r.IntN(len(all[i]))] ^= 1 << r.IntN(8)
			}
			if r.IntN(3) == 0 {
				i := r.IntN(len(all))
				all = slices.Delete(all, i, i+1)
			}
			// In among the others, in their order.
			at := 0
			for _, p := range all {
				at += r.IntN(len(batch) - at + 1)
				batch = slices.Insert(batch, at, p)
				at++
			}
		}
		inOrder(t, &j, batch)
		for _, g := range j.plan(len(batch), func(i int) []byte { return batch[i] }) {
			if len(g.of) == 1 {
				continue
			}
			joined++
			h, p := written(g, batch)
			for i, one := range cutAll(t, h, p) {
				got, want := unpadded(one), batch[g.of[i]]
				if g.first.packet[innerAt]>>4 == 4 && want[innerAt+ip4Fragment]&0x40 != 0 { // the ID means nothing
					copy(got[innerAt+ip4ID:], want[innerAt+ip4ID:innerAt+ip4ID+2])
					check4(got[innerAt:])
				}
				naiveCheck(got, ip6Len, 6, 17)
				if be.Uint16(want[ip6Len+udpCheck:]) == 0 {
					got[ip6Len+udpCheck], got[ip6Len+udpCheck+1] = 0, 0
				}
				if !bytes.Equal(got, want) {
					t.Fatalf("cut otherwise than it was:\n%x\nwant\n%x", got, want)
				}
			}
		}
	}
	if joined < 500 {
		t.Errorf("%d groups were joined", joined)
	}
}

// FuzzJoin: whatever comes, it is given once and in order, and the kernel is told of what is joined what can be cut again.
func FuzzJoin(f *testing.F) {
	r := rand.New(rand.NewPCG(13, 14))
	for range 10 {
		s := joinable(r)
		s.size = min(s.size, 100)
		s.payload = 3 * s.size
		var b []byte
		for _, p := range s.wire(s.random(r)) {
			b = append(binary.BigEndian.AppendUint16(b, uint16(len(p))), p...)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var batch [][]byte
		for len(b) > 2 && len(batch) < 128 {
			n := min(int(binary.BigEndian.Uint16(b)), len(b)-2)
			batch, b = append(batch, b[2:2+n]), b[2+n:]
		}
		var j join
		inOrder(t, &j, batch)
		for _, g := range j.plan(len(batch), func(i int) []byte { return batch[i] }) {
			if len(g.of) > 1 {
				h, p := written(g, batch)
				if n := len(cutAll(t, h, p)); n != len(g.of) {
					t.Errorf("%d packets are cut to %d", len(g.of), n)
				}
			}
		}
	})
}

// TestEnds: a group ends where cutting could not have made the next packet, and nothing of a connection overtakes.
func TestEnds(t *testing.T) {
	type packet struct {
		size  int
		flags byte
	}
	full, pushed := packet{1000, ack}, packet{1000, ack | psh}
	for name, tt := range map[string]struct {
		packets []packet
		want    [][]int
	}{
		"all alike":        {[]packet{full, full, full}, [][]int{{0, 1, 2}}},
		"a push":           {[]packet{full, pushed, full, full}, [][]int{{0, 1}, {2, 3}}},
		"first a push":     {[]packet{pushed, full, full}, [][]int{{0}, {1, 2}}},
		"a shorter one":    {[]packet{full, {999, ack}, full, full}, [][]int{{0, 1}, {2, 3}}},
		"a longer one":     {[]packet{{999, ack}, full, full}, [][]int{{0}, {1, 2}}},
		"the end":          {[]packet{full, {10, ack | psh | fin}}, [][]int{{0, 1}}},
		"without data":     {[]packet{full, {0, ack}, full, full}, [][]int{{0}, {1}, {2, 3}}},
		"window reduced":   {[]packet{full, {1000, ack | cwr}, full, full}, [][]int{{0}, {1}, {2, 3}}},
		"congestion heard": {[]packet{{1000, ack | ece}, {1000, ack | ece}, full}, [][]int{{0, 1}, {2}}},
		"more than 64 kB":  {slices.Repeat([]packet{full}, 70), [][]int{span(0, 65), span(65, 70)}},
	} {
		for _, inner := range []int{4, 6} {
			s := shape{outer: 6, checked: true, inner: inner, seq: 1 << 31, id: 5, port: 4000, vni: 77}
			var batch [][]byte
			at := 0
			for i, p := range tt.packets {
				b, _, _, _ := s.build(make([]byte, p.size), i, at, p.flags)
				batch, at = append(batch, b), at+p.size
			}
			var j join
			inOrder(t, &j, batch)
			var got [][]int
			for _, g := range j.plan(len(batch), func(i int) []byte { return batch[i] }) {
				got = append(got, g.of)
				if h, p := written(g, batch); len(g.of) > 1 && (int(be.Uint16(p[ip6Payload:])) != len(p)-ip6Len || len(cutAll(t, h, p)) != len(g.of)) {
					t.Errorf("%s: %d bytes are written, and said to be %d", name, len(p), be.Uint16(p[ip6Payload:]))
				}
			}
			if !slices.EqualFunc(got, tt.want, slices.Equal) {
				t.Errorf("%s, IPv%d: %v, want %v", name, inner, got, tt.want)
			}
		}
	}
}

func span(from, to int) (all []int) {
	for i := from; i < to; i++ {
		all = append(all, i)
	}
	return all
}

// TestNoChecksum: a packet whose UDP has no checksum is not joined to one that has.
func TestNoChecksum(t *testing.T) {
	s := shape{outer: 6, checked: true, inner: 4, flags: ack, size: 500, payload: 1000, vni: 77}
	batch := s.wire(make([]byte, s.payload))
	copy(batch[1][ip6Len+udpCheck:], []byte{0, 0})
	var j join
	if groups := j.plan(2, func(i int) []byte { return batch[i] }); len(groups) != 2 {
		t.Error("joined")
	}
}
