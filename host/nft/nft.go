// Package nft speaks the wire form of nftables (linux/netfilter/nf_tables.h): tables,
// chains, sets and rules as netlink messages, a batch of which is done whole or not at
// all. It runs no program, so that a table may belong to this process (Table.Owned), and
// hosts need no nft(8).
package nft

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Inet is the family of tables for IPv4 and IPv6 (NFPROTO_INET).
const Inet = 1

// Table is a table with all that is in it.
type Table struct {
	Name   string
	Family byte // unix.AF_INET, unix.AF_INET6 or Inet
	// Owned tables go with the socket that made them, whatever ends the process, and no
	// other program changes or flushes them (Linux 5.12).
	Owned  bool
	Sets   []Set
	Chains []Chain
}

// Chain is a base chain, or one that others go to.
type Chain struct {
	Name, Type string // Type: "filter" or "nat"; "": others go to it
	Hook       uint32 // unix.NF_INET_...
	Priority   int32
	Rules      []Rule
}

// Rule is a list of expressions. Comment is for people (`nft list ruleset`).
type Rule struct {
	Comment string
	Exprs   []Expr
}

// Set is a set of values for In. Type is nft(8)'s number for how it prints them.
type Set struct {
	Name   string
	Type   uint32
	Length uint32 // of a value, in bytes
	// Interval sets have values in pairs: the first one of a range, and the first one after
	// it (nil: there is none).
	Interval bool
	Values   [][]byte
	// Data, of a map (Map), has what each of the Values leads to; DataType and DataLength are as Type and Length. With TypeVerdict
	// it is the name of a chain, and there is no length.
	Data                 [][]byte
	DataType, DataLength uint32
}

// Concat is the type of values that are joined, each padded to four bytes.
func Concat(types ...uint32) (joined uint32) {
	const bits = 6 // of a type
	for _, t := range types {
		joined = joined<<bits | t
	}
	return joined
}

// Types of sets: how nft(8) prints their values (its include/datatype.h).
const (
	TypeIPv4  = 7
	TypeIPv6  = 8
	TypeProto = 12
	TypePort  = 13
	TypeMark  = 19
	TypeName  = 41
	// TypeVerdict is the kernel's NFT_DATA_VERDICT.
	TypeVerdict = 0xffffff00
)

// ownerFlag is NFT_TABLE_F_OWNER.
const ownerFlag = 0x2

// Make are the messages that make the table and all in it.
func (t Table) Make() [][]byte {
	flags := uint32(0)
	if t.Owned {
		flags = ownerFlag
	}
	batch := [][]byte{t.message(unix.NFT_MSG_NEWTABLE, text(unix.NFTA_TABLE_NAME, t.Name), nl.NewRtAttr(unix.NFTA_TABLE_FLAGS, be32(flags)))}
	for i, s := range t.Sets {
		batch = append(batch, t.set(s, uint32(i+1))...)
	}
	return append(batch, t.Join(t.Chains...)...)
}

// Join are the messages that add chains to what the table has.
func (t Table) Join(chains ...Chain) (batch [][]byte) {
	for _, c := range chains {
		attrs := []*nl.RtAttr{text(unix.NFTA_CHAIN_TABLE, t.Name), text(unix.NFTA_CHAIN_NAME, c.Name)}
		if c.Type == "" {
			batch = append(batch, t.message(unix.NFT_MSG_NEWCHAIN, attrs...))
			continue
		}
		hook := nl.NewRtAttr(unix.NFTA_CHAIN_HOOK|unix.NLA_F_NESTED, nil)
		hook.AddRtAttr(unix.NFTA_HOOK_HOOKNUM, be32(c.Hook))
		hook.AddRtAttr(unix.NFTA_HOOK_PRIORITY, be32(uint32(c.Priority)))
		batch = append(batch, t.message(unix.NFT_MSG_NEWCHAIN, append(attrs, hook, text(unix.NFTA_CHAIN_TYPE, c.Type))...))
	}
	for _, c := range chains {
		for _, r := range c.Rules {
			batch = append(batch, t.message(unix.NFT_MSG_NEWRULE, t.rule(c.Name, r)...))
		}
	}
	return batch
}

// Anew are the messages that make the table in place of one that may be there.
func (t Table) Anew() [][]byte {
	empty := Table{Name: t.Name, Family: t.Family, Owned: t.Owned}
	return append(append(empty.Make(), t.Remove()...), t.Make()...)
}

// Remove is the message that removes the table.
func (t Table) Remove() [][]byte {
	return [][]byte{t.message(unix.NFT_MSG_DELTABLE, text(unix.NFTA_TABLE_NAME, t.Name))}
}

func (t Table) rule(chain string, r Rule) []*nl.RtAttr {
	list := nl.NewRtAttr(unix.NFTA_RULE_EXPRESSIONS|unix.NLA_F_NESTED, nil)
	for _, e := range r.Exprs {
		list.AddChild(e)
	}
	attrs := []*nl.RtAttr{text(unix.NFTA_RULE_TABLE, t.Name), text(unix.NFTA_RULE_CHAIN, chain), list}
	if r.Comment != "" { // as libnftnl's udata has it: type 0, a length, text
		attrs = append(attrs, nl.NewRtAttr(unix.NFTA_RULE_USERDATA, append([]byte{0, byte(len(r.Comment) + 1)}, r.Comment+"\x00"...)))
	}
	return attrs
}

// maps reports whether it is a map.
func (s Set) maps() bool { return s.DataLength > 0 || s.DataType == TypeVerdict }

// perMessage is how many values go into one message, whose attributes have 16 bits for
// their length.
const perMessage = 500

func (t Table) set(s Set, id uint32) [][]byte {
	flags := uint32(0)
	if s.Interval {
		flags = unix.NFT_SET_INTERVAL
	}
	if s.maps() {
		flags |= unix.NFT_SET_MAP
	}
	attrs := []*nl.RtAttr{
		text(unix.NFTA_SET_TABLE, t.Name), text(unix.NFTA_SET_NAME, s.Name), nl.NewRtAttr(unix.NFTA_SET_ID, be32(id)),
		nl.NewRtAttr(unix.NFTA_SET_FLAGS, be32(flags)), nl.NewRtAttr(unix.NFTA_SET_KEY_TYPE, be32(s.Type)), nl.NewRtAttr(unix.NFTA_SET_KEY_LEN, be32(s.Length)),
	}
	if s.maps() {
		attrs = append(attrs, nl.NewRtAttr(unix.NFTA_SET_DATA_TYPE, be32(s.DataType)), nl.NewRtAttr(unix.NFTA_SET_DATA_LEN, be32(s.DataLength)))
	}
	if s.Type == TypeName { // nft(8) prints names of this byte order only: NFTNL_UDATA_SET_KEYBYTEORDER, the host's
		attrs = append(attrs, nl.NewRtAttr(unix.NFTA_SET_USERDATA, binary.NativeEndian.AppendUint32([]byte{0, 4}, 1)))
	}
	return append([][]byte{t.message(unix.NFT_MSG_NEWSET, attrs...)}, t.elements(unix.NFT_MSG_NEWSETELEM, s, nl.NewRtAttr(unix.NFTA_SET_ELEM_LIST_SET_ID, be32(id)))...)
}

// Add are the messages that add the values of a set to what the table has of it.
func (t Table) Add(s Set) [][]byte { return t.elements(unix.NFT_MSG_NEWSETELEM, s) }

// Take are the messages that take them out.
func (t Table) Take(s Set) [][]byte { return t.elements(unix.NFT_MSG_DELSETELEM, s) }

// Change are the messages that make t, as it is there, into another table of its name by values of sets alone; false: more
// than these differs, or intervals do of which one lies in another one (see disjoint).
func (t Table) Change(to Table) ([][]byte, bool) {
	if t.Name != to.Name || t.Family != to.Family || t.Owned != to.Owned || len(t.Sets) != len(to.Sets) || !sameChains(t.Chains, to.Chains) {
		return nil, false
	}
	var batch [][]byte
	for i, is := range t.Sets {
		be := to.Sets[i]
		values, wanted := is.Values, be.Values
		is.Values, be.Values = nil, nil
		same := slices.EqualFunc(values, wanted, bytes.Equal)
		if !reflect.DeepEqual(is, be) || !same && is.maps() {
			return nil, false
		}
		switch {
		case same:
			continue
		case !is.Interval:
			is.Values, be.Values = lacking(values, wanted), lacking(wanted, values)
		default:
			from, into := ranges(values), ranges(wanted)
			if !disjoint(from, into) {
				return nil, false
			}
			is.Values, be.Values = bounds(from, into), bounds(into, from)
		}
		batch = append(append(batch, t.Take(is)...), t.Add(be)...)
	}
	return batch, true
}

// sameChains reports whether the kernel would be told the same of both. reflect.DeepEqual takes seven times as long for the
// trees of expressions, and this comes with each container that comes or goes.
func sameChains(a, b []Chain) bool {
	return slices.EqualFunc(a, b, func(c, d Chain) bool {
		return c.Name == d.Name && c.Type == d.Type && c.Hook == d.Hook && c.Priority == d.Priority && slices.EqualFunc(c.Rules, d.Rules, sameRule)
	})
}

func sameRule(a, b Rule) bool {
	return a.Comment == b.Comment && slices.EqualFunc(a.Exprs, b.Exprs, func(x, y Expr) bool { return bytes.Equal(x.Serialize(), y.Serialize()) })
}

// lacking are the values of all that others do not have.
func lacking(all, others [][]byte) (out [][]byte) {
	have := make(map[string]bool, len(others))
	for _, v := range others {
		have[string(v)] = true
	}
	for _, v := range all {
		if !have[string(v)] {
			out = append(out, v)
		}
	}
	return out
}

func (t Table) elements(kind uint16, s Set, more ...*nl.RtAttr) (batch [][]byte) {
	for from := 0; from < len(s.Values); from += perMessage {
		const heads = 28 // of a list's element, its key and its data, each with a value, and of flags; names are somewhat longer
		list := make([]byte, 0, min(perMessage, len(s.Values)-from)*int(heads+s.Length+s.DataLength+3+3))
		for i := from; i < min(from+perMessage, len(s.Values)); i++ {
			if s.Values[i] != nil {
				list = s.element(list, i)
			}
		}
		attrs := append([]*nl.RtAttr{text(unix.NFTA_SET_ELEM_LIST_TABLE, t.Name), text(unix.NFTA_SET_ELEM_LIST_SET, s.Name)}, more...)
		batch = append(batch, t.message(kind, append(attrs, nl.NewRtAttr(unix.NFTA_SET_ELEM_LIST_ELEMENTS|unix.NLA_F_NESTED, list))...))
	}
	return batch
}

// element adds an element to a list. There can be a hundred thousand of them, which nl.RtAttr makes too slowly.
func (s Set) element(list []byte, i int) []byte {
	return nest(list, unix.NFTA_LIST_ELEM, func(e []byte) []byte {
		e = nest(e, unix.NFTA_SET_ELEM_KEY, func(k []byte) []byte { return attr(k, unix.NFTA_DATA_VALUE, s.Values[i]) })
		switch {
		case s.DataType == TypeVerdict:
			e = nest(e, unix.NFTA_SET_ELEM_DATA, func(d []byte) []byte {
				return nest(d, unix.NFTA_DATA_VERDICT, func(v []byte) []byte {
					goTo := int32(unix.NFT_GOTO)
					return attr(attr(v, unix.NFTA_VERDICT_CODE, be32(uint32(goTo))), unix.NFTA_VERDICT_CHAIN, slices.Concat(s.Data[i], []byte{0}))
				})
			})
		case s.maps():
			e = nest(e, unix.NFTA_SET_ELEM_DATA, func(d []byte) []byte { return attr(d, unix.NFTA_DATA_VALUE, s.Data[i]) })
		}
		if s.Interval && i%2 == 1 {
			e = attr(e, unix.NFTA_SET_ELEM_FLAGS, be32(unix.NFT_SET_ELEM_INTERVAL_END))
		}
		return e
	})
}

// attr adds an attribute to others.
func attr(to []byte, kind uint16, value []byte) []byte {
	to = binary.NativeEndian.AppendUint16(to, uint16(unix.SizeofRtAttr+len(value)))
	to = binary.NativeEndian.AppendUint16(to, kind)
	to = append(to, value...)
	return append(to, make([]byte, (4-len(value)%4)%4)...)
}

// nest adds one that has the attributes in it which fill adds.
func nest(to []byte, kind uint16, fill func([]byte) []byte) []byte {
	at := len(to)
	to = fill(attr(to, kind|unix.NLA_F_NESTED, nil))
	binary.NativeEndian.PutUint16(to[at:], uint16(len(to)-at))
	return to
}

// message is a request about something in the table, with its netlink header.
func (t Table) message(kind uint16, attrs ...*nl.RtAttr) []byte {
	body := []byte{t.Family, unix.NFNETLINK_V0, 0, 0}
	for _, a := range attrs {
		body = append(body, a.Serialize()...)
	}
	return message(unix.NFNL_SUBSYS_NFTABLES<<8|kind, unix.NLM_F_CREATE|unix.NLM_F_ACK|unix.NLM_F_APPEND, body)
}

// mark begins or ends a batch.
func mark(kind uint16) []byte {
	return message(kind, 0, []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES})
}

func message(kind, flags uint16, body []byte) []byte {
	m := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(body)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = binary.NativeEndian.AppendUint16(m, flags|unix.NLM_F_REQUEST)
	m = append(m, make([]byte, 8)...) // sequence and port: the kernel fills in ours
	return append(m, body...)
}
