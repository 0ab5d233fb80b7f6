package ovstest

import (
	"io"
	"net"
)

// Echo answers what connects, and each datagram, with what it is sent, until both are closed.
func Echo(tcp net.Listener, udp net.PacketConn) {
	go func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c) }()
		}
	}()
	go func() {
		b := make([]byte, 2048)
		for {
			n, from, err := udp.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = udp.WriteTo(b[:n], from)
		}
	}()
}
