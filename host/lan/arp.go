package lan

import (
	"bytes"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// ARP's operations (RFC 826).
const (
	request = 1
	reply   = 2
)

var everybody = []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// arp is an ARP frame to everybody.
func arp(mac net.HardwareAddr, op byte, from, about netip.Addr) []byte {
	target := make([]byte, 6)
	if op == reply {
		target = mac
	}
	return bytes.Join([][]byte{
		everybody, mac, {unix.ETH_P_ARP >> 8, unix.ETH_P_ARP & 0xff},
		{0, 1, 8, 0, 6, 4, 0, op}, mac, from.AsSlice(), target, about.AsSlice(),
	}, nil)
}

// holder is the MAC of who says in an ARP frame that it has the address; nil: nobody does.
func holder(frame []byte, a netip.Addr) net.HardwareAddr {
	const header = 14
	if len(frame) < header+28 || !bytes.Equal(frame[12:14], []byte{unix.ETH_P_ARP >> 8, unix.ETH_P_ARP & 0xff}) ||
		!bytes.Equal(frame[header:header+6], []byte{0, 1, 8, 0, 6, 4}) || !bytes.Equal(frame[header+14:header+18], a.AsSlice()) {
		return nil
	}
	return bytes.Clone(frame[header+8 : header+14])
}
