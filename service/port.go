package service

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/grapevine-net/grapevine/cluster"
)

// ParsePort reads a port of a service: PORT[:TARGET][/PROTOCOL], where TARGET is the replicas' port, PORT if there is
// none, and PROTOCOL tcp or udp, tcp if there is none.
func ParsePort(text string) (p cluster.ServicePort, err error) {
	numbers, proto, named := strings.Cut(text, "/")
	if !named {
		proto = "tcp"
	}
	port, target, two := strings.Cut(numbers, ":")
	if !two {
		target = port
	}
	p.Proto = strings.ToLower(proto)
	if p.Proto != "tcp" && p.Proto != "udp" {
		return p, fmt.Errorf("port %.40q: its protocol is not tcp or udp: write PORT:TARGET, or PORT:TARGET/udp", text)
	}
	for _, n := range []struct {
		text string
		to   *uint16
	}{{port, &p.Port}, {target, &p.Target}} {
		v, err := strconv.ParseUint(n.text, 10, 16)
		if err != nil || v == 0 {
			return p, fmt.Errorf("port %.40q: %.20q is no port from 1 to 65535: write PORT:TARGET, or PORT:TARGET/udp", text, n.text)
		}
		*n.to = uint16(v)
	}
	return p, nil
}

// PortText is a port as ParsePort reads it.
func PortText(p cluster.ServicePort) string {
	return fmt.Sprintf("%d:%d/%s", p.Port, p.Target, p.Proto)
}
