package plane

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/overlay/guard"
	"github.com/grapevine-net/grapevine/overlay/secure"
	"github.com/grapevine-net/grapevine/overlay/tunnel"
)

// CanWrap is why this host, at an address of the underlay, cannot send to others as its settings say; nil: it can. Of VXLAN
// it is told when the device is made.
func CanWrap(cfg config.Config, at netip.Addr) error {
	if k := cfg.Encapsulation(); k.Mark() != "" {
		return tunnel.CanWrap(k, at.Unmap().Is6())
	}
	return nil
}

// CannotEncrypt is why a host with such settings and such an underlay encrypts nothing; nil: it can. One that is to encrypt all
// says what it lacks when it does.
func CannotEncrypt(cfg config.Config, underlay link.Underlay) error {
	if cfg.Encrypts() {
		return nil
	}
	if cfg.Encryption == "off" {
		return errors.New("GRAPEVINE_ENCRYPTION is off on this host; leave it out, or set it to networks or all")
	}
	if k := cfg.Encapsulation(); !k.Secured() {
		return fmt.Errorf("what goes by %s (GRAPEVINE_ENCAP) is not encrypted; set GRAPEVINE_ENCAP=vxlan on every host, and where something on the way eats VXLAN GRAPEVINE_ENCRYPTION=all as well: all of it is inside WireGuard then", k.Title)
	}
	if cfg.WireGuardPort == cfg.Port || cfg.WireGuardPort == cfg.VXLANPort {
		return fmt.Errorf("WireGuard wants UDP port %d, which gossip or VXLAN has; set GRAPEVINE_WIREGUARD_PORT to another one", cfg.WireGuardPort)
	}
	if err := secure.Fits(underlay); err != nil {
		return err
	}
	if _, err := os.Stat("/proc/sys/net/ipv6"); err != nil {
		return errors.New("its kernel has no IPv6, in which hosts speak inside WireGuard; boot it without ipv6.disable=1")
	}
	return guard.CanBeStrict()
}
