package bypass

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/grapevine-net/grapevine/host/nft"
)

// A drawn rule asks something, and does something if that is so. Of what it asks, some is known of each packet, some
// is not: that is one of ways, each time it is asked.
type (
	drawn struct {
		ask   int // one of asks
		which int // of what is not known
		does  deed
		map1  deed // of a verdict map, by what is not known
		map2  deed
	}
	deed struct {
		what int
		to   int // the chain
	}
	// base is a chain at the hook.
	base struct {
		drops bool
		first int
	}
	// ruling are the rules of all chains. Each leads to later ones only.
	ruling struct {
		chains [][]drawn
		bases  []base
	}
)

const (
	always = iota
	never
	ofFirst    // from the first peer
	notOfFirst // from another one
	unclear
	byMap // a verdict map of what is not known
	asks
)

const (
	accept = iota
	back
	drop
	jump
	goTo
	count
	logs
)

const (
	unclears = 3
	ways     = 3
)

func (d deed) code() (int32, string) {
	switch d.what {
	case accept:
		return 1, ""
	case back:
		return unix.NFT_RETURN, ""
	case drop:
		return 0, ""
	case jump:
		return unix.NFT_JUMP, chainName(d.to)
	case goTo:
		return unix.NFT_GOTO, chainName(d.to)
	}
	return unix.NFT_CONTINUE, ""
}

func chainName(i int) string { return fmt.Sprint("c", i) }

func drawDeed(t *rapid.T, chain, chains int, label string) deed {
	d := deed{what: rapid.SampledFrom([]int{accept, accept, back, back, drop, jump, jump, goTo, goTo, count, logs}).Draw(t, label)}
	if d.what == jump || d.what == goTo {
		if chain+1 >= chains {
			d.what = back
		} else {
			d.to = rapid.IntRange(chain+1, chains-1).Draw(t, label+" to")
		}
	}
	return d
}

func draw(t *rapid.T) ruling {
	var r ruling
	chains := rapid.IntRange(1, 5).Draw(t, "chains")
	for c := range chains {
		var rules []drawn
		for range rapid.IntRange(0, 3).Draw(t, "rules") {
			d := drawn{ask: rapid.IntRange(0, asks-1).Draw(t, "ask"), which: rapid.IntRange(0, unclears-1).Draw(t, "which"), does: drawDeed(t, c, chains, "does")}
			if d.ask == byMap {
				d.map1, d.map2 = drawDeed(t, c, chains, "map 1"), drawDeed(t, c, chains, "map 2")
			}
			rules = append(rules, d)
		}
		r.chains = append(r.chains, rules)
	}
	r.bases = []base{{rapid.Bool().Draw(t, "policy"), 0}}
	if chains > 1 && rapid.Bool().Draw(t, "two base chains") {
		r.bases = append(r.bases, base{rapid.Bool().Draw(t, "policy"), 1})
		for i, d := range r.chains[0] { // nothing leads to a base chain
			r.chains[0][i].does, r.chains[0][i].map1, r.chains[0][i].map2 = off(d.does), off(d.map1), off(d.map2)
		}
	}
	return r
}

func off(d deed) deed {
	if (d.what == jump || d.what == goTo) && d.to == 1 {
		return deed{what: back}
	}
	return d
}

// certain reports whether nothing is asked that is not known.
func (r ruling) certain() bool {
	for _, c := range r.chains {
		for _, d := range c {
			if d.ask == unclear || d.ask == byMap {
				return false
			}
		}
	}
	return true
}

// passes goes the way of one packet, of which everything is known, as the kernel does (nft_do_chain).
func (r ruling) passes(first bool, known [unclears]int) bool {
	for _, b := range r.bases {
		if result := r.run(b.first, first, known); result == drop || result == back && b.drops {
			return false
		}
	}
	return true
}

// run returns accept, drop (or another effect), or back.
func (r ruling) run(chain int, first bool, known [unclears]int) int {
	for _, d := range r.chains[chain] {
		done := d.does
		switch d.ask {
		case never:
			continue
		case ofFirst:
			if !first {
				continue
			}
		case notOfFirst:
			if first {
				continue
			}
		case unclear:
			if known[d.which] == 0 {
				continue
			}
		case byMap:
			if known[d.which] == 0 {
				continue
			}
			in := d.map1
			if known[d.which] == 2 {
				in = d.map2
			}
			if in.what != count && in.what != logs { // those are NFT_CONTINUE in a map
				done = in
			}
		}
		switch done.what {
		case accept, back:
			return done.what
		case drop, logs:
			return drop
		case jump:
			if result := r.run(done.to, first, known); result != back {
				return result
			}
		case goTo:
			return r.run(done.to, first, known)
		}
	}
	return back
}

// table is the ruling as the kernel has it.
func (r ruling) table(first netip.Addr) *nft.Ruleset {
	table := nft.Content{Family: unix.NFPROTO_IPV4, Name: "f", Sets: map[string]*nft.Values{}}
	for i, rules := range r.chains {
		c := nft.InPlace{Name: chainName(i)}
		for _, b := range r.bases {
			if b.first == i {
				c.Base, c.Hook, c.Drops = true, unix.NF_INET_LOCAL_IN, b.drops
			}
		}
		for _, d := range rules {
			c.Rules = append(c.Rules, nft.Line{Exprs: append(d.condition(&table, first), d.does.steps()...)})
		}
		table.Chains = append(table.Chains, c)
	}
	return &nft.Ruleset{Tables: []nft.Content{table}}
}

func (d drawn) condition(table *nft.Content, first netip.Addr) []nft.Step {
	switch d.ask {
	case never:
		return []nft.Step{{Name: "match", Attrs: attr(unix.NFTA_MATCH_NAME, []byte("tcp\x00"))}}
	case ofFirst:
		return []nft.Step{loads(12, 4), compares(unix.NFT_CMP_EQ, first.AsSlice())}
	case notOfFirst:
		return []nft.Step{loads(12, 4), compares(unix.NFT_CMP_NEQ, first.AsSlice())}
	case unclear:
		return []nft.Step{{Name: "match", Attrs: attr(unix.NFTA_MATCH_NAME, []byte("length\x00"))}}
	case byMap:
		name := fmt.Sprint("m", len(table.Sets))
		table.Sets[name] = &nft.Values{Flags: unix.NFT_SET_MAP, Length: 2, Elements: []nft.Element{{Key: []byte{0, 1}, Data: d.map1.attrs()}, {Key: []byte{0, 2}, Data: d.map2.attrs()}}}
		return []nft.Step{loads(4, 2), {Name: "lookup", Attrs: join(attr(unix.NFTA_LOOKUP_SET, []byte(name+"\x00")), attr(unix.NFTA_LOOKUP_SREG, word(1)), attr(unix.NFTA_LOOKUP_DREG, word(unix.NFT_REG_VERDICT)))}}
	}
	return nil
}

func (d deed) steps() []nft.Step {
	switch d.what {
	case count:
		return []nft.Step{{Name: "counter"}}
	case logs:
		return []nft.Step{{Name: "log"}}
	}
	return []nft.Step{{Name: "immediate", Attrs: join(attr(unix.NFTA_IMMEDIATE_DREG, word(unix.NFT_REG_VERDICT)), attr(unix.NFTA_IMMEDIATE_DATA, d.attrs()))}}
}

// attrs are NFTA_DATA_VERDICT.
func (d deed) attrs() []byte {
	code, chain := d.code()
	v := attr(unix.NFTA_VERDICT_CODE, word(uint32(code)))
	if chain != "" {
		v = join(v, attr(unix.NFTA_VERDICT_CHAIN, []byte(chain+"\x00")))
	}
	return attr(unix.NFTA_DATA_VERDICT, v)
}

// loads is a piece of IP's header into register 1.
func loads(offset, length uint32) nft.Step {
	return nft.Step{Name: "payload", Attrs: join(attr(unix.NFTA_PAYLOAD_DREG, word(1)), attr(unix.NFTA_PAYLOAD_BASE, word(unix.NFT_PAYLOAD_NETWORK_HEADER)),
		attr(unix.NFTA_PAYLOAD_OFFSET, word(offset)), attr(unix.NFTA_PAYLOAD_LEN, word(length)))}
}

func compares(op uint32, value []byte) nft.Step {
	return nft.Step{Name: "cmp", Attrs: join(attr(unix.NFTA_CMP_SREG, word(1)), attr(unix.NFTA_CMP_OP, word(op)), attr(unix.NFTA_CMP_DATA, attr(unix.NFTA_DATA_VALUE, value)))}
}

func attr(kind int, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, uint16(kind)), value...)
	return append(b, make([]byte, -len(b)&3)...)
}

func word(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }

func join(parts ...[]byte) (all []byte) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// What is not known of a packet may be one way or another, each time: nothing is passed by only if it is accepted, and nothing
// else happens, whichever it is. Where all is known, the judgement is exact.
func TestJudgeForms(t *testing.T) {
	peers := []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")}
	traffic := Traffic{Device: "eth0", Index: 2, Tunnel: "gvvxlan", TunnelIndex: 9, Own: netip.MustParseAddr("10.0.0.1"), Port: 4789, Peers: peers, LeastPort: 32768, EndPort: 60999}
	good, bad := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		for range 10 { // most are easy
			r := draw(t)
			traffic.Peers = peers[rapid.IntRange(0, 1).Draw(t, "without the first peer"):]
			passes := true
			for _, p := range traffic.Peers {
				for n := range ways * ways * ways {
					passes = passes && r.passes(p == peers[0], [unclears]int{n % ways, n / ways % ways, n / ways / ways})
				}
			}
			err := Judge(r.table(peers[0]), traffic)
			switch {
			case err == nil && !passes:
				t.Fatal("nothing is said against it, but some packets would not be let pass as they are")
			case err != nil && passes && r.certain():
				t.Fatalf("all packets are let pass as they are, but: %v", err)
			case err == nil:
				good++
			default:
				bad++
			}
		}
	})
	if good == 0 || bad == 0 {
		t.Errorf("of the rulings %d pass and %d do not: both are needed", good, bad)
	}
}
