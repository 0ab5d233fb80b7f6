package wireguard

import (
	"net"
	"net/netip"

	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/grapevine-net/grapevine/host/link"
)

func kernelState() (s State, err error) {
	c, err := wgctrl.New()
	if err != nil {
		return s, err
	}
	defer c.Close()
	d, err := c.Device(link.WireGuard)
	if err != nil {
		return s, err
	}
	s.Private, s.Port = Key(d.PrivateKey), uint16(d.ListenPort)
	for _, p := range d.Peers {
		one := Peer{Key: Key(p.PublicKey), Handshake: p.LastHandshakeTime}
		if p.Endpoint != nil {
			at := p.Endpoint.AddrPort()
			one.Endpoint = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
		}
		if len(p.AllowedIPs) == 1 { // of others none are ours
			inside, _ := netip.AddrFromSlice(p.AllowedIPs[0].IP)
			bits, _ := p.AllowedIPs[0].Mask.Size()
			one.Inside = netip.PrefixFrom(inside, bits)
		}
		s.Peers = append(s.Peers, one)
	}
	return s, nil
}

func setKernel(change Change) error {
	c, err := wgctrl.New()
	if err != nil {
		return err
	}
	defer c.Close()
	return c.ConfigureDevice(link.WireGuard, kernelConfig(change))
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
	for _, p := range c.Set {
		one := wgtypes.PeerConfig{PublicKey: wgtypes.Key(p.Key), ReplaceAllowedIPs: true, AllowedIPs: []net.IPNet{{
			IP: p.Inside.Addr().AsSlice(), Mask: net.CIDRMask(p.Inside.Bits(), p.Inside.Addr().BitLen()),
		}}}
		if p.Endpoint.IsValid() {
			one.Endpoint = net.UDPAddrFromAddrPort(p.Endpoint)
		}
		cfg.Peers = append(cfg.Peers, one)
	}
	return cfg
}
