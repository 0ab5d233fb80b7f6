package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/netns"
)

// ownTTL is the time to live, or hop limit, of what the resolver asks in a container's stead, by
// which the rules know that it has been here. No system begins with it. A container that does gets
// to the server that it asks, as everybody does without the resolver.
const ownTTL = 119

// errNotHere is why a server is not asked: the asker is in no sandbox of this host's.
var errNotHere = errors.New("there is no container of this host with that address")

// toServer is the route to a server that a container named: from its own namespace, with its own
// address. So all that keeps the container from a server keeps the resolver from it, and whatever counts
// or leads its packets does so: rules of every table for what comes in at the gateway.
func (s *Server) toServer(asker netip.Addr, server netip.AddrPort) route {
	endpoint, _ := s.index.At(asker)
	key, here := s.sandboxOf(endpoint)
	if !here {
		return route{denied: errNotHere}
	}
	return route{servers: []netip.AddrPort{server}, dial: dialAs(key, asker), budget: budget, resend: resendAfter, from: key}
}

// sandboxOf returns the key of an endpoint's sandbox.
func (s *Server) sandboxOf(endpoint string) (key string, here bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, a := range s.sandboxes {
		for _, e := range a.endpoints {
			if e == endpoint {
				return key, true
			}
		}
	}
	return "", false
}

// dialAs dials from a container's namespace and address.
func dialAs(key string, asker netip.Addr) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
		server, err := netip.ParseAddrPort(addr)
		if err != nil {
			return nil, err
		}
		ns, err := os.Open(key)
		if err != nil {
			return nil, fmt.Errorf("ask in the container's stead: %w", err)
		}
		defer ns.Close()
		var forget func()
		d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
			if e := c.Control(func(fd uintptr) { forget, err = ownSocket(int(fd), network, asker, server) }); e != nil {
				return e
			}
			return err
		}}
		if err := netns.Do(ns, func() error { conn, err = d.DialContext(ctx, network, addr); return err }); err != nil {
			return nil, err
		}
		if network == "udp" {
			conn = forgotten{conn, forget}
		}
		return conn, nil
	}
}

// ownSocket gives a socket the container's address, a port of chance, and the time to live that leads
// past the rules. Where the kernel has led a packet, it leads the next one of the same addresses and ports
// for half a minute and longer. So ownSocket has it forget, in the host's namespace, what came from this
// port before. When the socket is done the caller calls forget, or the container's next question from
// that port would not get here.
func ownSocket(fd int, network string, asker netip.Addr, server netip.AddrPort) (forget func(), err error) {
	level, option, proto := unix.IPPROTO_IP, unix.IP_TTL, uint8(unix.IPPROTO_UDP)
	var local unix.Sockaddr
	if asker.Is6() {
		level, option, local = unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, &unix.SockaddrInet6{Addr: asker.As16()}
	} else {
		local = &unix.SockaddrInet4{Addr: asker.As4()}
	}
	if network == "tcp" {
		proto = unix.IPPROTO_TCP
	}
	if err := unix.SetsockoptInt(fd, level, option, ownTTL); err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, local); err != nil {
		return nil, fmt.Errorf("ask with the address of the container, %s: %w", asker, err)
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		return nil, err
	}
	var port int
	switch b := bound.(type) {
	case *unix.SockaddrInet4:
		port = b.Port
	case *unix.SockaddrInet6:
		port = b.Port
	}
	forget = func() { forgetConnection(proto, netip.AddrPortFrom(asker, uint16(port)), server) }
	atHome := make(chan struct{}) // this thread is in the container's namespace
	go func() { forget(); close(atHome) }()
	<-atHome
	return forget, nil
}

// forgotten is a connection that the kernel shall not remember.
type forgotten struct {
	net.Conn
	forget func()
}

func (c forgotten) Close() error {
	err := c.Conn.Close()
	c.forget()
	return err
}

// forgetConnection takes a connection out of the kernel's table. Most often there is none.
func forgetConnection(proto uint8, client, server netip.AddrPort) {
	family := uint8(unix.AF_INET)
	if client.Addr().Is6() {
		family = unix.AF_INET6
	}
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|ctMsgDelete, unix.NLM_F_ACK)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	req.AddData(tuple(ctTupleOrig, proto, client, server))
	_, _ = req.Execute(unix.NETLINK_NETFILTER, 0)
}
