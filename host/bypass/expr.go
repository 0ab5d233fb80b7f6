package bypass

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/nft"
)

// registers are the 16 of 32 bits that expressions hand values on by.
type registers struct{ v, u [64]byte }

// forget makes nothing known.
func (r *registers) forget() { *r = registers{u: unknownRegisters} }

var unknownRegisters = func() (u [64]byte) {
	for i := range u {
		u[i] = 0xff
	}
	return u
}()

// lose makes nothing known of a value that is loaded, of that length at most, into the register that an attribute says.
func (r *registers) lose(attrs []byte, dreg, length int) {
	from := at(be(nft.Attribute(attrs, dreg)))
	if from < 0 {
		r.forget()
		return
	}
	to := min(from+length, len(r.v))
	copy(r.v[from:to], make([]byte, to-from))
	copy(r.u[from:to], unknownRegisters[from:to])
}

// at is where a register begins (nft_parse_register); -1: it is none of data.
func at(register uint32) int {
	switch {
	case register >= unix.NFT_REG_1 && register <= unix.NFT_REG_4:
		return int(register-unix.NFT_REG_1) * 16
	case register >= unix.NFT_REG32_00 && register <= unix.NFT_REG32_15:
		return int(register-unix.NFT_REG32_00) * 4
	}
	return -1
}

func (r *registers) get(register uint32, length int) bits {
	from := at(register)
	if from < 0 || from+length > len(r.v) {
		return unknown(length)
	}
	return bits{r.v[from : from+length], r.u[from : from+length]}
}

// set stores a value; a word that it does not fill ends in zeros.
func (r *registers) set(register uint32, b bits) {
	from := at(register)
	if from < 0 || from+len(b.v) > len(r.v) {
		r.forget()
		return
	}
	copy(r.v[from:], b.v)
	copy(r.u[from:], b.u)
	for i := from + len(b.v); i%4 != 0; i++ {
		r.v[i], r.u[i] = 0, 0
	}
}

// rule goes through the expressions of a rule. An error is what the rule does, or may do, to the packet, for a text:
// "rule 3 ... drops ...".
func (w *way) rule(r nft.Line) (next, error) {
	w.reg.forget()
	var may next
	surely := true // it is passed as far as here
	for _, e := range r.Exprs {
		result, err := w.expression(e, surely)
		if err != nil {
			return 0, err
		}
		may |= result &^ stays
		if result&stays == 0 {
			return may, nil
		}
		surely = surely && result == stays
	}
	return may | goesOn, nil
}

func (w *way) expression(e nft.Step, surely bool) (next, error) {
	switch e.Name {
	case "immediate":
		register, data := be(nft.Attribute(e.Attrs, unix.NFTA_IMMEDIATE_DREG)), nft.Attribute(e.Attrs, unix.NFTA_IMMEDIATE_DATA)
		if register == unix.NFT_REG_VERDICT {
			return w.verdict(nft.Attribute(data, unix.NFTA_DATA_VERDICT), surely)
		}
		w.reg.set(register, point(nft.Attribute(data, unix.NFTA_DATA_VALUE)))
		return stays, nil
	case "lookup":
		if register := nft.Attribute(e.Attrs, unix.NFTA_LOOKUP_DREG); register != nil && be(register) == unix.NFT_REG_VERDICT {
			return w.verdictMap(e, surely)
		}
	}
	a, err := w.step(e)
	switch {
	case err != nil:
		return 0, hedged(err, surely)
	case a == yes:
		return stays, nil
	case a == no:
		return goesOn, nil
	}
	return stays | goesOn, nil
}

func hedged(err error, surely bool) error {
	if surely {
		return err
	}
	return fmt.Errorf("%w what may be", err)
}

// Verdicts (linux/netfilter.h, linux/netfilter/nf_tables.h).
const (
	verdictDrop   = 0
	verdictAccept = 1
)

func (w *way) verdict(v []byte, surely bool) (next, error) {
	code := int32(be(nft.Attribute(v, unix.NFTA_VERDICT_CODE)))
	chain := text(nft.Attribute(v, unix.NFTA_VERDICT_CHAIN))
	switch code {
	case unix.NFT_CONTINUE:
		return stays, nil
	case unix.NFT_BREAK:
		return goesOn, nil
	case unix.NFT_JUMP:
		return w.follow(chain, false)
	case unix.NFT_GOTO:
		return w.follow(chain, true)
	case verdictAccept:
		return ends, nil
	case unix.NFT_RETURN:
		return leaves, nil
	case verdictDrop:
		return 0, hedged(errors.New("drops"), surely)
	}
	return 0, hedged(fmt.Errorf("does something unknown (verdict %d) to", code), surely)
}

// step is an expression that loads a value, tests one, or does something. An error says what it does to a packet.
func (w *way) step(e nft.Step) (answer, error) {
	switch e.Name {
	case "counter", "last":
		return yes, nil
	case "cmp":
		return w.compare(e.Attrs), nil
	case "range":
		return w.between(e.Attrs), nil
	case "bitwise":
		w.bitwise(e.Attrs)
		return yes, nil
	case "lookup":
		return w.lookup(e)
	case "match":
		return w.match(e.Attrs)
	case "target":
		return maybe, fmt.Errorf("does %s to", text(nft.Attribute(e.Attrs, unix.NFTA_TARGET_NAME)))
	case "meta":
		if nft.Attribute(e.Attrs, unix.NFTA_META_SREG) != nil {
			return maybe, errors.New("marks or labels")
		}
		return w.load(e.Attrs, unix.NFTA_META_DREG, w.meta(be(nft.Attribute(e.Attrs, unix.NFTA_META_KEY))))
	case "payload":
		if nft.Attribute(e.Attrs, payloadSource) != nil {
			return maybe, errors.New("changes")
		}
		return w.load(e.Attrs, unix.NFTA_PAYLOAD_DREG, w.payload(e.Attrs))
	case "ct":
		if nft.Attribute(e.Attrs, unix.NFTA_CT_SREG) != nil {
			return maybe, errors.New("marks the connection of")
		}
		if key := be(nft.Attribute(e.Attrs, unix.NFTA_CT_KEY)); key == unix.NFT_CT_SRC_IP6 || key == unix.NFT_CT_DST_IP6 {
			return no, nil // its connection is of IPv4, which ends the rule
		}
		return w.load(e.Attrs, unix.NFTA_CT_DREG, w.tracked(e.Attrs))
	case "rt", "fib", "socket", "hash", "osf", "exthdr", "xfrm", "tunnel", "byteorder", "numgen":
		// They load something, of which nothing is known. An end of theirs is one that a maybe covers.
		if nft.Attribute(e.Attrs, exthdrSource) != nil && e.Name == "exthdr" {
			return maybe, errors.New("changes")
		}
		to := loaders[e.Name]
		w.reg.lose(e.Attrs, to.register, to.length)
		return maybe, nil
	case "objref":
		if be(nft.Attribute(e.Attrs, unix.NFTA_OBJREF_IMM_TYPE)) == objectCounter {
			return yes, nil
		}
		return maybe, errors.New("uses an object that the agent does not understand for")
	}
	if does, known := actions[e.Name]; known {
		return maybe, errors.New(does)
	}
	return maybe, fmt.Errorf("does something that the agent does not understand (%s) to", e.Name)
}

// actions are what expressions do to packets that reach them.
var actions = map[string]string{
	"log": "logs", "limit": "limits", "quota": "limits", "connlimit": "limits", "queue": "gives to a program", "reject": "refuses",
	"nat": "translates", "masq": "translates", "redir": "redirects", "tproxy": "redirects", "synproxy": "answers", "dynset": "notes in a set",
	"notrack": "hides from conntrack", "dup": "copies", "fwd": "forwards", "flow_offload": "offloads",
}

// loaders say into which register, by the number of the attribute, expressions load something, and how long that is at most
// (linux/netfilter/nf_tables.h, the *_DREG of each; nft_parse_register_store of net/netfilter/nft_*.c).
var loaders = map[string]struct{ register, length int }{
	"numgen": {1, ofNumber}, "hash": {2, ofNumber}, "tunnel": {2, ofNumber},
	"rt": {1, ofName}, "fib": {1, ofName}, "socket": {2, ofName}, "osf": {1, ofName}, "xfrm": {1, ofName},
	"exthdr": {1, ofAll}, "byteorder": {2, ofAll},
}

// Lengths of what is loaded: a number, an address or a name, or what may be all that there is room for.
const (
	ofNumber = 4
	ofName   = 16
	ofAll    = len(registers{}.v)
)

// Numbers that package unix does not have (linux/netfilter/nf_tables.h).
const (
	payloadSource = 5 // NFTA_PAYLOAD_SREG
	exthdrSource  = 7 // NFTA_EXTHDR_SREG
	objectCounter = 1 // NFT_OBJECT_COUNTER
)

// load stores a value.
func (w *way) load(attrs []byte, dreg int, b bits) (answer, error) {
	if b.v == nil {
		w.reg.lose(attrs, dreg, ofAll)
		return maybe, nil // it may not be there, which ends the rule
	}
	w.reg.set(be(nft.Attribute(attrs, dreg)), b)
	return yes, nil
}

// meta is a property of the packet; without a value: it is not known.
func (w *way) meta(key uint32) bits {
	p := w.packet
	switch key {
	case unix.NFT_META_PROTOCOL:
		return point([]byte{8, 0})
	case unix.NFT_META_MARK: // fresh from the NIC, or from a container: a veth takes marks away
		if p.marked {
			return unknown(4)
		}
		return point(make([]byte, 4))
	case unix.NFT_META_IIF:
		return point(native(p.inIndex))
	case unix.NFT_META_OIF:
		return point(native(p.outIndex))
	case unix.NFT_META_IIFNAME:
		return point(nft.Name(p.in))
	case unix.NFT_META_OIFNAME:
		return point(nft.Name(p.out))
	case unix.NFT_META_NFPROTO:
		return point([]byte{unix.NFPROTO_IPV4})
	case unix.NFT_META_L4PROTO:
		return point([]byte{unix.IPPROTO_UDP})
	case metaSecpath: // there is no policy of IPsec for it, or nothing is direct
		return point([]byte{0})
	}
	return bits{}
}

const metaSecpath = 25 // NFT_META_SECPATH

// payload is a piece of a header.
func (w *way) payload(attrs []byte) bits {
	offset, length := int(be(nft.Attribute(attrs, unix.NFTA_PAYLOAD_OFFSET))), int(be(nft.Attribute(attrs, unix.NFTA_PAYLOAD_LEN)))
	if length <= 0 || length > 64 {
		return bits{}
	}
	switch be(nft.Attribute(attrs, unix.NFTA_PAYLOAD_BASE)) {
	case unix.NFT_PAYLOAD_NETWORK_HEADER:
		return w.packet.ip.part(offset, length)
	case unix.NFT_PAYLOAD_TRANSPORT_HEADER:
		return w.packet.udp.part(offset, length)
	}
	return bits{}
}

// tracked is what conntrack knows of the packet's connection. Rules that translate are reasons by themselves, so it is not
// translated.
func (w *way) tracked(attrs []byte) bits {
	switch be(nft.Attribute(attrs, unix.NFTA_CT_KEY)) {
	case unix.NFT_CT_STATE:
		return point(native(w.packet.state))
	case unix.NFT_CT_STATUS:
		const translated = 1<<4 | 1<<5 // IPS_SRC_NAT, IPS_DST_NAT
		return bits{make([]byte, 4), native(^uint32(translated))}
	case unix.NFT_CT_SRC_IP, unix.NFT_CT_DST_IP:
		return w.packet.party()
	}
	return bits{}
}

func (w *way) compare(attrs []byte) answer {
	value := nft.Attribute(nft.Attribute(attrs, unix.NFTA_CMP_DATA), unix.NFTA_DATA_VALUE)
	have := w.reg.get(be(nft.Attribute(attrs, unix.NFTA_CMP_SREG)), len(value))
	if len(value) == 0 {
		return maybe
	}
	switch be(nft.Attribute(attrs, unix.NFTA_CMP_OP)) {
	case unix.NFT_CMP_EQ:
		return have.is(value)
	case unix.NFT_CMP_NEQ:
		return have.is(value).not()
	case unix.NFT_CMP_LT:
		return have.below(value)
	case unix.NFT_CMP_LTE:
		return have.above(value).not()
	case unix.NFT_CMP_GT:
		return have.above(value)
	case unix.NFT_CMP_GTE:
		return have.below(value).not()
	}
	return maybe
}

func (w *way) between(attrs []byte) answer {
	from := nft.Attribute(nft.Attribute(attrs, unix.NFTA_RANGE_FROM_DATA), unix.NFTA_DATA_VALUE)
	to := nft.Attribute(nft.Attribute(attrs, unix.NFTA_RANGE_TO_DATA), unix.NFTA_DATA_VALUE)
	if len(from) == 0 || len(from) != len(to) {
		return maybe
	}
	in := w.reg.get(be(nft.Attribute(attrs, unix.NFTA_RANGE_SREG)), len(from)).within(from, to)
	switch be(nft.Attribute(attrs, unix.NFTA_RANGE_OP)) {
	case unix.NFT_RANGE_EQ:
		return in
	case unix.NFT_RANGE_NEQ:
		return in.not()
	}
	return maybe
}

func (w *way) bitwise(attrs []byte) {
	const operation, second = 6, 8 // NFTA_BITWISE_OP, NFTA_BITWISE_SREG2
	length := int(be(nft.Attribute(attrs, unix.NFTA_BITWISE_LEN)))
	if be(nft.Attribute(attrs, operation)) != 0 || nft.Attribute(attrs, second) != nil || length <= 0 || length > 64 {
		w.reg.forget()
		return
	}
	have := w.reg.get(be(nft.Attribute(attrs, unix.NFTA_BITWISE_SREG)), length)
	w.reg.set(be(nft.Attribute(attrs, unix.NFTA_BITWISE_DREG)), have.masked(
		nft.Attribute(nft.Attribute(attrs, unix.NFTA_BITWISE_MASK), unix.NFTA_DATA_VALUE),
		nft.Attribute(nft.Attribute(attrs, unix.NFTA_BITWISE_XOR), unix.NFTA_DATA_VALUE)))
}

// be is a number of network order; of another length it is one that means nothing.
func be(b []byte) uint32 {
	if len(b) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

func native(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

func text(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
