package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"golang.org/x/sys/unix"
)

// Ruleset is what the kernel has of some families, to be judged: what other programs have put there as well.
type Ruleset struct {
	Generation uint32
	Tables     []Content
}

// Content is what a table of any program has.
type Content struct {
	Family byte
	Name   string
	Chains []InPlace
	Sets   map[string]*Values
	// Offloads are the devices of its flowtables.
	Offloads []string
}

// InPlace is a chain. A base chain has a hook, and a policy for what its rules say nothing of.
type InPlace struct {
	Name string
	Base bool
	Hook uint32
	// Priority orders base chains at a hook: the smaller comes first.
	Priority int32
	Devices  []string // of a base chain at interfaces
	Unnamed  bool     // that of a base chain says more of these than this package knows
	Drops    bool     // the policy
	Rules    []Line
}

// Line is a rule: its expressions in order.
type Line struct {
	Handle  uint64
	Comment string
	Exprs   []Step
}

// Step is an expression: its name, and its attributes as the kernel has them (Attribute).
type Step struct {
	Name  string
	Attrs []byte
}

// Values is a set or a map.
type Values struct {
	Flags    uint32 // unix.NFT_SET_...
	Length   int    // of a key
	Noted    bool   // rules add to it, or take from it, as packets come, which the kernel tells nobody
	Elements []Element
}

// Element is one of a set.
type Element struct {
	Key   []byte
	Flags uint32 // unix.NFT_SET_ELEM_...
	Data  []byte // the attributes of what a map leads to
	Odd   bool   // it has more than this, such as an end of its own, a limit or a time
}

// Attribute is the value of an attribute of an expression; nil: it has none of that kind.
func Attribute(attrs []byte, kind int) []byte { return attribute(attrs, kind) }

// Ruleset reads what the kernel has of the families. It fails with ErrChanging if somebody changes that meanwhile.
func (c *Conn) Ruleset(families ...byte) (*Ruleset, error) {
	before, err := c.Generation()
	if err != nil {
		return nil, err
	}
	r := &Ruleset{Generation: before}
	for _, f := range families {
		if err := c.family(f, r); err != nil {
			return nil, err
		}
	}
	after, err := c.Generation()
	if err == nil && after != before {
		err = ErrChanging
	}
	return r, err
}

// ErrChanging says that rules changed while they were read.
var ErrChanging = errChanged

// Numbers of attributes that package unix does not have (linux/netfilter/nf_tables.h).
const (
	hookDevices        = 4  // NFTA_HOOK_DEVS
	flowtableTable     = 1  // NFTA_FLOWTABLE_TABLE
	flowtableHook      = 3  // NFTA_FLOWTABLE_HOOK
	flowtableHookDevs  = 3  // NFTA_FLOWTABLE_HOOK_DEVS
	elementExpressions = 11 // NFTA_SET_ELEM_EXPRESSIONS
	elementKeyEnd      = 10 // NFTA_SET_ELEM_KEY_END
	deviceName         = 1  // NFTA_DEVICE_NAME
)

func (c *Conn) family(family byte, r *Ruleset) error {
	tables := map[string]*Content{}
	var order []string
	in := func(name string) *Content {
		t := tables[name]
		if t == nil {
			t = &Content{Family: family, Name: name, Sets: map[string]*Values{}}
			tables[name], order = t, append(order, name)
		}
		return t
	}
	chains, err := c.all(family, unix.NFT_MSG_GETCHAIN)
	if err != nil {
		return fmt.Errorf("read the chains of nftables: %w", err)
	}
	for _, attrs := range chains {
		t := in(name(attrs, unix.NFTA_CHAIN_TABLE))
		t.Chains = append(t.Chains, chainOf(attrs))
	}
	rules, err := c.all(family, unix.NFT_MSG_GETRULE)
	if err != nil {
		return fmt.Errorf("read the rules of nftables: %w", err)
	}
	at := map[[2]string]*InPlace{}
	for _, t := range tables {
		for i := range t.Chains {
			at[[2]string{t.Name, t.Chains[i].Name}] = &t.Chains[i]
		}
	}
	noted := map[[2]string]bool{}
	for _, attrs := range rules {
		chain := at[[2]string{name(attrs, unix.NFTA_RULE_TABLE), name(attrs, unix.NFTA_RULE_CHAIN)}]
		if chain == nil {
			return errChanged
		}
		line := lineOf(attrs)
		chain.Rules = append(chain.Rules, line)
		for _, set := range line.notes() {
			noted[[2]string{name(attrs, unix.NFTA_RULE_TABLE), set}] = true
		}
	}
	sets, err := c.all(family, unix.NFT_MSG_GETSET)
	if err != nil {
		return fmt.Errorf("read the sets of nftables: %w", err)
	}
	for _, attrs := range sets {
		t := in(name(attrs, unix.NFTA_SET_TABLE))
		v := &Values{Flags: number(attribute(attrs, unix.NFTA_SET_FLAGS)), Length: int(number(attribute(attrs, unix.NFTA_SET_KEY_LEN)))}
		set := name(attrs, unix.NFTA_SET_NAME)
		v.Noted = noted[[2]string{t.Name, set}]
		if v.Elements, err = c.elements(family, t.Name, set); err != nil {
			return fmt.Errorf("read the set %s of nftables' table %s: %w", set, t.Name, err)
		}
		t.Sets[set] = v
	}
	flowtables, err := c.all(family, unix.NFT_MSG_GETFLOWTABLE)
	if err != nil {
		return fmt.Errorf("read the flowtables of nftables: %w", err)
	}
	for _, attrs := range flowtables {
		t := in(name(attrs, flowtableTable))
		devices, _ := devicesOf(attribute(attribute(attrs, flowtableHook), flowtableHookDevs))
		t.Offloads = append(t.Offloads, devices...)
	}
	for _, name := range order {
		r.Tables = append(r.Tables, *tables[name])
	}
	return nil
}

// all is what there is of a kind in a family. A kernel without it has none.
func (c *Conn) all(family byte, get uint16) ([][]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list, err := c.dump(message(unix.NFNL_SUBSYS_NFTABLES<<8|get, unix.NLM_F_DUMP, []byte{family, unix.NFNETLINK_V0, 0, 0}))
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	return list, err
}

func (c *Conn) elements(family byte, table, set string) (list []Element, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body := []byte{family, unix.NFNETLINK_V0, 0, 0}
	body = append(body, text(unix.NFTA_SET_ELEM_LIST_TABLE, table).Serialize()...)
	body = append(body, text(unix.NFTA_SET_ELEM_LIST_SET, set).Serialize()...)
	replies, err := c.dump(message(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, body))
	if err != nil {
		return nil, err
	}
	for _, attrs := range replies {
		for e := range attributes(attribute(attrs, unix.NFTA_SET_ELEM_LIST_ELEMENTS)) {
			list = append(list, Element{
				Key:   attribute(attribute(e, unix.NFTA_SET_ELEM_KEY), unix.NFTA_DATA_VALUE),
				Flags: number(attribute(e, unix.NFTA_SET_ELEM_FLAGS)),
				Data:  attribute(e, unix.NFTA_SET_ELEM_DATA),
				Odd: attribute(e, elementKeyEnd) != nil || attribute(e, elementExpressions) != nil || attribute(e, unix.NFTA_SET_ELEM_EXPR) != nil ||
					attribute(e, unix.NFTA_SET_ELEM_TIMEOUT) != nil || attribute(e, unix.NFTA_SET_ELEM_OBJREF) != nil,
			})
		}
	}
	return list, nil
}

func chainOf(attrs []byte) InPlace {
	h := InPlace{Name: name(attrs, unix.NFTA_CHAIN_NAME)}
	hook := attribute(attrs, unix.NFTA_CHAIN_HOOK)
	if hook == nil {
		return h
	}
	h.Base, h.Hook, h.Priority = true, number(attribute(hook, unix.NFTA_HOOK_HOOKNUM)), int32(number(attribute(hook, unix.NFTA_HOOK_PRIORITY)))
	h.Drops = len(attribute(attrs, unix.NFTA_CHAIN_POLICY)) == 4 && number(attribute(attrs, unix.NFTA_CHAIN_POLICY)) != 1 // NF_ACCEPT
	if dev := name(hook, unix.NFTA_HOOK_DEV); dev != "" {
		h.Devices = append(h.Devices, dev)
	}
	more, unnamed := devicesOf(attribute(hook, hookDevices))
	h.Devices, h.Unnamed = append(h.Devices, more...), unnamed
	return h
}

// devicesOf are the names in a list of devices; unnamed: it has others things, such as beginnings of names.
func devicesOf(list []byte) (names []string, unnamed bool) {
	for kind, value := range typed(list) {
		if kind != deviceName {
			unnamed = true
			continue
		}
		names = append(names, string(trimmed(value)))
	}
	return names, unnamed
}

func lineOf(attrs []byte) Line {
	l := Line{Comment: commentOf(attribute(attrs, unix.NFTA_RULE_USERDATA))}
	if h := attribute(attrs, unix.NFTA_RULE_HANDLE); len(h) == 8 {
		l.Handle = binary.BigEndian.Uint64(h)
	}
	for e := range attributes(attribute(attrs, unix.NFTA_RULE_EXPRESSIONS)) {
		l.Exprs = append(l.Exprs, Step{Name: name(e, unix.NFTA_EXPR_NAME), Attrs: attribute(e, unix.NFTA_EXPR_DATA)})
	}
	return l
}

// notes are the sets that the rule changes as packets come.
func (l Line) notes() (sets []string) {
	for _, e := range l.Exprs {
		if e.Name == "dynset" {
			sets = append(sets, name(e.Attrs, unix.NFTA_DYNSET_SET_NAME))
		}
	}
	return sets
}

func name(attrs []byte, kind int) string { return string(trimmed(attribute(attrs, kind))) }

func number(b []byte) uint32 {
	if len(b) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

// typed are the kinds and values of a list of attributes.
func typed(list []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		for len(list) >= 4 {
			length := int(binary.NativeEndian.Uint16(list))
			kind := int(binary.NativeEndian.Uint16(list[2:])) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
			if length < 4 || length > len(list) || !yield(kind, list[4:length]) {
				return
			}
			list = list[min((length+3)&^3, len(list)):]
		}
	}
}
