package dns

import (
	"encoding/binary"

	"github.com/miekg/dns"
)

// The header of a message, RFC 1035 section 4.1.1.
const (
	headerLen  = 12
	flagQR     = 0x80 // byte 2: it is a response
	opcodeMask = 0x78
	flagRD     = 0x01
	flagTC     = 0x02
	flagRA     = 0x80 // byte 3
)

func messageID(wire []byte) uint16 { return binary.BigEndian.Uint16(wire) }

// reply returns an empty answer: of this server itself, which also forwards.
func reply(q *dns.Msg) *dns.Msg {
	r := new(dns.Msg).SetReply(q)
	r.Authoritative, r.RecursionAvailable = true, true
	return r
}

// orNothing makes of a message without an answer a negative one that nobody keeps,
// since the name or its address may come any moment: with the SOA record that
// RFC 2308 wants, of a zone that is just the name, and all times 0.
func orNothing(r *dns.Msg) *dns.Msg {
	if len(r.Answer) > 0 {
		return r
	}
	name := r.Question[0].Name
	r.Ns = []dns.RR{&dns.SOA{
		Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeSOA, Class: dns.ClassINET},
		Ns:  "grapevine.", Mbox: "hostmaster.grapevine.",
	}}
	return r
}

// pack gives a reply the form that the asker can take: EDNS if it spoke EDNS, no
// more bytes than it has room for, else the flag that sends it to TCP.
func pack(q, r *dns.Msg, udp bool) []byte {
	size := dns.MaxMsgSize
	if udp {
		size = dns.MinMsgSize
	}
	if opt := q.IsEdns0(); opt != nil {
		if udp {
			size = min(max(int(opt.UDPSize()), dns.MinMsgSize), maxUDP)
		}
		if r.IsEdns0() == nil {
			r.SetEdns0(maxUDP, opt.Do())
		}
	}
	r.Truncate(size)
	wire, err := r.Pack()
	if err != nil { // a name that the wire has no form for
		wire, _ = new(dns.Msg).SetRcode(q, dns.RcodeServerFailure).Pack()
	}
	return wire
}

// badVersion answers a version of EDNS that does not exist yet (RFC 6891 6.1.3).
func badVersion(q *dns.Msg) *dns.Msg {
	r := reply(q)
	r.SetEdns0(maxUDP, false)
	r.Rcode = dns.RcodeBadVers
	return r
}

// failure returns a reply without a question: all that a message that cannot be
// read, or is not to be read, has a right to. The message has a header.
func failure(wire []byte, rcode int) []byte {
	r := make([]byte, headerLen)
	copy(r, wire[:2])
	r[2] = flagQR | wire[2]&(opcodeMask|flagRD)
	r[3] = flagRA | byte(rcode)
	return r
}

// refuse returns a reply with the question, for a message that could be read.
func refuse(wire []byte, rcode int) []byte {
	var q dns.Msg
	if q.Unpack(wire) != nil || len(q.Question) != 1 {
		return failure(wire, rcode)
	}
	return pack(&q, new(dns.Msg).SetRcode(&q, rcode), false)
}

// sameQuestion reports whether a response answers a query: the ID and, byte for
// byte, the question. (A response may leave the question out; then only an error is
// believed, which does no harm.)
func sameQuestion(query, response []byte) bool {
	if len(response) < headerLen || response[2]&flagQR == 0 || messageID(query) != messageID(response) {
		return false
	}
	if binary.BigEndian.Uint16(response[4:]) == 0 {
		return response[3]&0x0f != 0
	}
	end := questionEnd(query)
	return end > 0 && len(response) >= end && equalFold(query[headerLen:end], response[headerLen:end])
}

// questionEnd returns where the only question of a query ends, 0 if it has not
// exactly one or that is not whole.
func questionEnd(wire []byte) int {
	if binary.BigEndian.Uint16(wire[4:]) != 1 {
		return 0
	}
	i := headerLen
	for i < len(wire) && wire[i] != 0 {
		if wire[i] > 63 {
			return 0
		}
		i += int(wire[i]) + 1
	}
	if i += 5; i > len(wire) {
		return 0
	}
	return i
}

// equalFold compares questions as RFC 4343 wants: ASCII letters of either case are
// the same. Lengths of labels are below the letters, so they need no care.
func equalFold(a, b []byte) bool {
	for i := range a {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return len(a) == len(b)
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
