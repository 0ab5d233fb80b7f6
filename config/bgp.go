package config

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Router is one that this host tells by BGP which addresses are here.
type Router struct {
	// Addr is where it listens; AS is its number, and LocalAS the one by which it knows this host.
	Addr        netip.AddrPort
	AS, LocalAS uint32
	// PasswordFile has the password of the session (TCP MD5, RFC 2385); "": it has none.
	PasswordFile string
	// Hold is how long neither hears the other before the session is over; Restart how long the router keeps the routes
	// when the agent is gone.
	Hold, Restart time.Duration
	// Near says that no packet of the router may have passed another one (RFC 5082).
	Near bool
}

// String is what people call it.
func (r Router) String() string {
	if r.Addr.Port() == bgpPort {
		return r.Addr.Addr().String()
	}
	return r.Addr.String()
}

const (
	bgpPort      = 179
	bgpHold      = 9 * time.Second
	bgpRestart   = time.Minute
	leastHold    = 3 * time.Second // RFC 4271, 4.2
	mostHold     = 65535 * time.Second
	mostRestart  = 4095 * time.Second // RFC 4724, 3: twelve bits
	mostRouters  = 8
	bgpExample   = "192.0.2.254,as=64512,local-as=64513"
	anotherASN   = "a number from 1 to 4294967295"
	bgpSeparator = ";"
)

// setBGP reads ADDRESS[:PORT],as=N,local-as=N[,...]; of several routers, with semicolons between them.
func setBGP(c *Config, v string) error {
	c.BGP = nil
	for one := range strings.SplitSeq(v, bgpSeparator) {
		if one = strings.TrimSpace(one); one == "" {
			continue
		}
		r, err := parseRouter(one)
		if err != nil {
			return fmt.Errorf("router %q: %w, as in %s", one, err, bgpExample)
		}
		if slices.ContainsFunc(c.BGP, func(o Router) bool { return o.Addr == r.Addr }) {
			return fmt.Errorf("router %v is there twice: name it once", r)
		}
		c.BGP = append(c.BGP, r)
	}
	if len(c.BGP) > mostRouters {
		return fmt.Errorf("%d routers: name %d at most", len(c.BGP), mostRouters)
	}
	return nil
}

func parseRouter(text string) (Router, error) {
	r := Router{Hold: bgpHold, Restart: bgpRestart}
	parts := strings.Split(text, ",")
	at, err := netip.ParseAddrPort(parts[0])
	if addr, plain := netip.ParseAddr(parts[0]); plain == nil {
		at, err = netip.AddrPortFrom(addr, bgpPort), nil
	}
	if err != nil || !unicast(at.Addr()) || at.Addr().Zone() != "" || at.Port() == 0 {
		return r, errors.New("begin with its address, or [ADDRESS]:PORT of IPv6")
	}
	r.Addr = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	for _, p := range parts[1:] {
		key, value, _ := strings.Cut(strings.TrimSpace(p), "=")
		if err := r.set(key, value); err != nil {
			return r, err
		}
	}
	if r.AS == 0 || r.LocalAS == 0 {
		return r, errors.New("say its AS number (as=) and the one by which it knows this host (local-as=)")
	}
	return r, nil
}

func (r *Router) set(key, value string) (err error) {
	switch key {
	case "as":
		r.AS, err = asn(key, value)
	case "local-as":
		r.LocalAS, err = asn(key, value)
	case "password-file":
		err = path(func(*Config) *string { return &r.PasswordFile })(nil, value)
	case "hold":
		r.Hold, err = seconds(key, value, leastHold, mostHold)
	case "restart":
		r.Restart, err = seconds(key, value, 0, mostRestart)
	case "ttl-security":
		if r.Near = value == ""; !r.Near {
			err = errors.New("ttl-security has no value")
		}
	default:
		err = fmt.Errorf("%q is unknown: use as, local-as, password-file, hold, restart or ttl-security", key)
	}
	return err
}

func asn(key, value string) (uint32, error) {
	n, err := strconv.ParseUint(value, 10, 32)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%s=%s is not %s", key, value, anotherASN)
	}
	return uint32(n), nil
}

func seconds(key, value string, least, most time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err != nil || d < least || d > most || d%time.Second != 0 {
		return 0, fmt.Errorf("%s=%s is not a time in whole seconds from %v to %v", key, value, least, most)
	}
	return d, nil
}

// setBGPNetworks reads names of networks.
func setBGPNetworks(c *Config, v string) error {
	c.BGPNetworks = nil
	for name := range strings.SplitSeq(v, ",") {
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(c.BGPNetworks, name) {
			c.BGPNetworks = append(c.BGPNetworks, name)
		}
	}
	return nil
}

// setBGPAddresses reads addresses that this host has, or has not.
func setBGPAddresses(c *Config, v string) error {
	c.BGPAddresses = nil
	for text := range strings.SplitSeq(v, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		a, err := netip.ParseAddr(text)
		if err != nil || !a.IsGlobalUnicast() || a.Zone() != "" || a.Is4In6() {
			return fmt.Errorf("%q is not an address that a router can have a route to: use one as 203.0.113.80 or 2001:db8::80", text)
		}
		if !slices.Contains(c.BGPAddresses, a) {
			c.BGPAddresses = append(c.BGPAddresses, a)
		}
	}
	return nil
}

// checkBGP says what of the settings is of no use.
func (c Config) checkBGP() error {
	switch {
	case len(c.BGP) > 0 && c.Edge():
		return errors.New("GRAPEVINE_BGP: a host without Docker (GRAPEVINE_DOCKER=none) is the way to no container: announce from hosts that have them")
	case len(c.BGP) == 0 && len(c.BGPNetworks) > 0:
		return errors.New("GRAPEVINE_BGP_NETWORKS needs a router to tell: set GRAPEVINE_BGP=" + bgpExample)
	case len(c.BGP) == 0 && len(c.BGPAddresses) > 0:
		return errors.New("GRAPEVINE_BGP_ADDRESSES needs a router to tell: set GRAPEVINE_BGP=" + bgpExample)
	}
	return nil
}
