package ovs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Flows are text everywhere but here: this file and flowmod.go make OpenFlow 1.4
// messages of the texts that a container's start and end, or a change of the hosts,
// need. Whatever else a flow says is left to ovs-ofctl (errNotNative).

var errNotNative = errors.New("not encoded here")

// oxm is a field of a match or of set_field: its OXM header without length (OpenFlow
// 1.4, 7.2.2.2), and how its value is read.
type oxm struct {
	class uint16
	field uint8
	bytes func(string) ([]byte, error)
	addr  bool // an IP address, whose mask may be a prefix length
}

// Classes of fields: OpenFlow's own, and Nicira's for registers and tunnels
// (ovs-fields(7)).
const (
	classBasic  = 0x8000
	classNicira = 0x0001
)

// fields are by their names in a match or in set_field, which differ.
var fields = map[string]oxm{
	"in_port":  {classBasic, 0, number(32), false},
	"dl_dst":   {classBasic, 3, ethernet, false},
	"dl_src":   {classBasic, 4, ethernet, false},
	"dl_type":  {classBasic, 5, number(16), false},
	"eth_dst":  {classBasic, 3, ethernet, false},
	"eth_src":  {classBasic, 4, ethernet, false},
	"nw_src":   {classBasic, 11, ipv4, true},
	"nw_dst":   {classBasic, 12, ipv4, true},
	"arp_op":   {classBasic, 21, number(16), false},
	"arp_spa":  {classBasic, 22, ipv4, true},
	"arp_tpa":  {classBasic, 23, ipv4, true},
	"arp_sha":  {classBasic, 24, ethernet, false},
	"ipv6_src": {classBasic, 26, ipv6, true},
	"ipv6_dst": {classBasic, 27, ipv6, true},
	// ICMPv6's: a match with ICMPv4's begins with "icmp", which is not native.
	"icmp_type":    {classBasic, 29, number(8), false},
	"icmp_code":    {classBasic, 30, number(8), false},
	"nd_target":    {classBasic, 31, ipv6, true},
	"tun_src":      {classNicira, 31, ipv4, true},
	"tun_dst":      {classNicira, 32, ipv4, true},
	"tun_ipv6_src": {classNicira, 109, ipv6, true},
	"tun_ipv6_dst": {classNicira, 110, ipv6, true},
}

func init() {
	for n := range uint8(16) {
		fields[fmt.Sprintf("reg%d", n)] = oxm{classNicira, n, number(32), false}
	}
}

// protocols are the matches that have a name only: fields that others require.
var protocols = map[string][]byte{
	"ip":   {0x80, 0x00, 5 << 1, 2, 0x08, 0x00}, // eth_type
	"arp":  {0x80, 0x00, 5 << 1, 2, 0x08, 0x06},
	"ipv6": {0x80, 0x00, 5 << 1, 2, 0x86, 0xdd},
	// ... and the IP protocol
	"icmp6": {0x80, 0x00, 5 << 1, 2, 0x86, 0xdd, 0x80, 0x00, 10 << 1, 1, 58},
}

// appendMatch adds one condition, such as "ip", "reg0=0x5" or "nw_src=10.0.0.0/8".
func appendMatch(b []byte, text string) ([]byte, error) {
	if proto, ok := protocols[text]; ok {
		return append(b, proto...), nil
	}
	name, value, ok := strings.Cut(text, "=")
	if !ok {
		return nil, errNotNative
	}
	return appendField(b, name, value)
}

// appendField adds a field with a value, which may have a mask: a prefix length of an
// address, or bits of a number.
func appendField(b []byte, name, value string) ([]byte, error) {
	f, ok := fields[name]
	if !ok {
		return nil, errNotNative
	}
	text, maskText, masked := strings.Cut(value, "/")
	v, err := f.bytes(text)
	if err != nil {
		return nil, err
	}
	if !masked {
		b = f.header(b, len(v), 0)
		return append(b, v...), nil
	}
	mask, err := f.mask(maskText, len(v))
	if err != nil {
		return nil, err
	}
	b = f.header(b, 2*len(v), 1)
	return append(append(b, v...), mask...), nil
}

func (f oxm) header(b []byte, length int, masked uint8) []byte {
	b = binary.BigEndian.AppendUint16(b, f.class)
	return append(b, f.field<<1|masked, byte(length))
}

// mask takes the prefix length of an address, or what is written like a value.
func (f oxm) mask(text string, length int) ([]byte, error) {
	bits, err := strconv.Atoi(text)
	if err != nil || !f.addr {
		return f.bytes(text)
	}
	if bits < 0 || bits > 8*length {
		return nil, errNotNative
	}
	return net.CIDRMask(bits, 8*length), nil
}

func number(bits int) func(string) ([]byte, error) {
	return func(text string) ([]byte, error) {
		n, err := strconv.ParseUint(text, 0, bits)
		if err != nil {
			return nil, errNotNative // such as in_port=LOCAL
		}
		return binary.BigEndian.AppendUint64(nil, n)[8-bits/8:], nil
	}
}

func ethernet(text string) ([]byte, error) {
	mac, err := net.ParseMAC(text)
	if err != nil || len(mac) != 6 {
		return nil, errNotNative
	}
	return mac, nil
}

func ipv4(text string) ([]byte, error) { return address(text, true) }
func ipv6(text string) ([]byte, error) { return address(text, false) }

func address(text string, four bool) ([]byte, error) {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Is4() != four {
		return nil, errNotNative
	}
	return a.AsSlice(), nil
}
