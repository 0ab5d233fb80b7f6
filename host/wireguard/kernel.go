package wireguard

import (
	"net"
	"net/netip"

	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

func kernelStateOf(name string) (s State, err error) {
	c, err := wgctrl.New()
	if err != nil {
		return s, err
	}
	defer c.Close()
	d, err := c.Device(name)
	if err != nil {
		return s, err
	}
	s.Private, s.Port = Key(d.PrivateKey), uint16(d.ListenPort)
	for _, p := range d.Peers {
		one := Peer{Key: Key(p.PublicKey), Handshake: p.LastHandshakeTime, Keepalive: p.PersistentKeepaliveInterval}
		if p.Endpoint != nil {
			at := p.Endpoint.AddrPort()
			one.Endpoint = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
		}
		for _, allowed := range p.AllowedIPs {
			inside, _ := netip.AddrFromSlice(allowed.IP)
			bits, _ := allowed.Mask.Size()
			one.allow(netip.PrefixFrom(inside, bits))
		}
		s.Peers = append(s.Peers, one)
	}
	return s, nil
}

func setKernelOf(name string, change Change) error {
	c, err := wgctrl.New()
	if err != nil {
		return err
	}
	defer c.Close()
	return c.ConfigureDevice(name, kernelConfig(change))
}

func kernelConfig(c Change) (cfg wgtypes.Config) {
	if c.Private != nil {
		key := wgtypes.Key(*c.Private)
		cfg.PrivateKey = &key
	}
	if c.Port != nil {
		port := int(*c.Port)
		cfg.ListenPort = &port
	}
	for _, k := range c.Remove {
		cfg.Peers = append(cfg.Peers, wgtypes.PeerConfig{PublicKey: wgtypes.Key(k), Remove: true})
	}
	for _, p := range c.Keep {
		cfg.Peers = append(cfg.Peers, wgtypes.PeerConfig{PublicKey: wgtypes.Key(p.Key), UpdateOnly: true, PersistentKeepaliveInterval: &p.Keepalive})
	}
	for _, p := range c.Set {
		one := wgtypes.PeerConfig{PublicKey: wgtypes.Key(p.Key), ReplaceAllowedIPs: true, PersistentKeepaliveInterval: &p.Keepalive}
		for _, inside := range p.allowed() {
			one.AllowedIPs = append(one.AllowedIPs, *ipNet(inside))
		}
		if p.Endpoint.IsValid() {
			one.Endpoint = net.UDPAddrFromAddrPort(p.Endpoint)
		}
		cfg.Peers = append(cfg.Peers, one)
	}
	if p := c.passing(); len(p.Ranges) > 0 {
		cfg.Peers = append(cfg.Peers, kernelRanges(p, false), wgtypes.PeerConfig{PublicKey: wgtypes.Key(nobody), Remove: true})
	}
	for _, p := range c.More {
		cfg.Peers = append(cfg.Peers, kernelRanges(p, true))
	}
	return cfg
}

// kernelRanges gives a peer ranges besides what it has.
func kernelRanges(p Peer, there bool) wgtypes.PeerConfig {
	one := wgtypes.PeerConfig{PublicKey: wgtypes.Key(p.Key), UpdateOnly: there}
	for _, r := range p.Ranges {
		one.AllowedIPs = append(one.AllowedIPs, *ipNet(r))
	}
	return one
}
