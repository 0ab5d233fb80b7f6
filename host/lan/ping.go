package lan

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// Loopback is the interface of addresses that are on no LAN: routers are told which host has them.
const Loopback = "lo"

// somebody has an address of which no MAC is known.
var somebody = net.HardwareAddr{}

// Ping asks by way of the routers who has an address: whichever host they send to answers with its kernel. It returns a MAC
// without bytes if somebody does; nil: nobody. That no router knows a way to it is no error.
func Ping(ctx context.Context, a netip.Addr) (net.HardwareAddr, error) {
	network, kind, answer, proto := "ip4:icmp", icmp.Type(ipv4.ICMPTypeEcho), icmp.Type(ipv4.ICMPTypeEchoReply), 1
	if a.Is6() {
		network, kind, answer, proto = "ip6:ipv6-icmp", ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply, 58
	}
	conn, err := net.DialIP(network, nil, &net.IPAddr{IP: a.AsSlice()})
	if err != nil {
		if unreachable(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("ask by the routers who has %v: %w", a, err)
	}
	defer conn.Close()
	id := rand.N(1 << 16)
	question, err := (&icmp.Message{Type: kind, Body: &icmp.Echo{ID: id, Seq: 1, Data: []byte("grapevine")}}).Marshal(nil)
	if err != nil {
		return nil, err
	}
	for range probes {
		if _, err := conn.Write(question); err != nil && !unreachable(err) {
			return nil, fmt.Errorf("ask by the routers who has %v: %w", a, err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(probePause)); err != nil {
			return nil, err
		}
		for ctx.Err() == nil {
			var buf [512]byte
			n, _, err := conn.ReadFrom(buf[:]) // without the header of IP
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil && !unreachable(err) {
				return nil, fmt.Errorf("hear whether somebody has %v: %w", a, err)
			}
			m, err := icmp.ParseMessage(proto, buf[:n])
			if err != nil || m.Type != answer {
				continue
			}
			if echo, ok := m.Body.(*icmp.Echo); ok && echo.ID == id {
				return somebody, nil
			}
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return nil, nil
}

// unreachable reports whether an error says that there is no way to an address, or none that is open (EACCES: an ICMPv6
// error of a router's, RFC 4443, 3.1, code 1, 5 or 6).
func unreachable(err error) bool {
	return errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ECONNREFUSED)
}
