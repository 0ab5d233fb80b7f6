package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
)

// Forwarding is the one setting of the whole host, as Docker itself sets it.
var (
	forwarding4 = sysctl{"ipv4/ip_forward", "1"}
	forwarding6 = sysctl{"ipv6/conf/all/forwarding", "1"}
)

// forward turns forwarding on where it is off, IPv4's and, if so wanted, IPv6's.
func (g *Gateway) forward(v6 bool) error {
	err := g.forwardFamily(forwarding4, false)
	if v6 {
		err = errors.Join(err, g.forwardFamily(forwarding6, true))
	}
	return err
}

func (g *Gateway) forwardFamily(s sysctl, v6 bool) error {
	have, err := os.ReadFile("/proc/sys/net/" + s.path)
	if err != nil {
		return fmt.Errorf("read sysctl: %w", err)
	}
	if string(bytes.TrimSpace(have)) == s.value {
		return nil
	}
	var names []string
	if v6 {
		if names, err = learning(); err != nil {
			return err
		}
	}
	if g.BeforeForwarding != nil {
		if err := g.BeforeForwarding(v6, names); err != nil {
			return fmt.Errorf("forwarding stays off, since this host would forward whatever anybody sends to it: %w", err)
		}
	}
	for _, name := range names {
		if err := acceptRA(name, "2").set(); err != nil {
			return err
		}
	}
	return s.set()
}

// StopForwarding turns a family's forwarding off again.
func StopForwarding(v6 bool) error {
	s := forwarding4
	if v6 {
		s = forwarding6
	}
	s.value = "0"
	return s.set()
}

// Shut sets gv0 down: nothing enters or leaves the overlay by this host any more, until
// Ensure. No gv0 is no error.
func (g *Gateway) Shut() error {
	l, err := netlink.LinkByName(Port)
	if _, notFound := errors.AsType[netlink.LinkNotFoundError](err); notFound {
		return nil
	}
	if err == nil {
		err = netlink.LinkSetDown(l)
	}
	if err != nil {
		return fmt.Errorf("gateway %s: set down: %w", Port, err)
	}
	return nil
}
