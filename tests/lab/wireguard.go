package lab

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

const (
	wireguardDevice = "wg0"
	wireguardPort   = 51820
	wireguardMTU    = 1420
)

// WireGuardAddr is the host's address inside WireGuard.
func (h *Host) WireGuardAddr() netip.Addr { return netip.AddrFrom4([4]byte{10, 99, 0, byte(h.n)}) }

// StartWireGuard gives the host wg0, as somebody who knows nothing of grapevine would: the kernel's WireGuard, or where it has none one in
// a process of its own, with the other hosts as peers.
func (h *Host) StartWireGuard(ctx context.Context, all ...*Host) error {
	argv := []string{labhost, end(h.Addr(), h.WireGuardAddr())}
	for _, o := range all {
		if o != h {
			argv = append(argv, end(o.Addr(), o.WireGuardAddr()))
		}
	}
	if err := h.Start(ctx, "wireguard", []string{roleVar + "=" + roleWireGuard}, argv...); err != nil {
		return err
	}
	until := fmt.Sprintf("for n in $(seq 100); do ip -4 addr show up dev %s 2>/dev/null | grep -q inet && exit; sleep 0.1; done; exit 1", wireguardDevice)
	if _, err := h.Exec(ctx, "sh", "-c", until); err != nil {
		return fmt.Errorf("%s has no WireGuard device: %w\n%s", h.Name, err, h.Log("wireguard", 10))
	}
	return nil
}

// end is WIRE=INSIDE, the host's addresses.
func end(wire, inside netip.Addr) string { return wire.String() + "=" + inside.String() }

// wireguardMain is WireGuard of the host whose end is the first, until the device goes.
func wireguardMain(args []string) error {
	if len(args) == 0 {
		return errors.New("usage: WIRE=INSIDE of this host, and of each peer")
	}
	wire, inside, _ := strings.Cut(args[0], "=")
	key, err := wireguardKey(wire)
	if err != nil {
		return err
	}
	config := fmt.Sprintf("private_key=%x\nlisten_port=%d\n", key.Bytes(), wireguardPort)
	port, private := wireguardPort, wgtypes.Key(key.Bytes())
	kernel := wgtypes.Config{PrivateKey: &private, ListenPort: &port}
	for _, end := range args[1:] {
		wire, inside, _ := strings.Cut(end, "=")
		peer, err := wireguardKey(wire)
		if err != nil {
			return err
		}
		config += fmt.Sprintf("public_key=%x\nendpoint=%s:%d\nallowed_ip=%s/32\n", peer.PublicKey().Bytes(), wire, wireguardPort, inside)
		kernel.Peers = append(kernel.Peers, wgtypes.PeerConfig{
			PublicKey: wgtypes.Key(peer.PublicKey().Bytes()), Endpoint: &net.UDPAddr{IP: net.ParseIP(wire), Port: wireguardPort},
			AllowedIPs: []net.IPNet{{IP: net.ParseIP(inside).To4(), Mask: net.CIDRMask(32, 32)}},
		})
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	up := func() error {
		ip := exec.Command("ip", "-batch", "-")
		ip.Stdin = strings.NewReader(fmt.Sprintf("addr add %s/24 dev %[2]s\nlink set %[2]s mtu %[3]d up\n", inside, wireguardDevice, wireguardMTU))
		if out, err := ip.CombinedOutput(); err != nil {
			return fmt.Errorf("ip: %w: %s", err, bytes.TrimSpace(out))
		}
		return nil
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = wireguardDevice
	if err := netlink.LinkAdd(&netlink.Wireguard{LinkAttrs: attrs}); err == nil {
		c, err := wgctrl.New()
		if err != nil {
			return err
		}
		defer c.Close()
		if err := errors.Join(c.ConfigureDevice(wireguardDevice, kernel), up()); err != nil {
			return err
		}
		<-term
		return netlink.LinkDel(&netlink.Wireguard{LinkAttrs: attrs})
	} else if !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("make %s: %w", wireguardDevice, err)
	}
	t, err := tun.CreateTUN(wireguardDevice, wireguardMTU)
	if err != nil {
		return fmt.Errorf("make %s: %w", wireguardDevice, err)
	}
	d := device.NewDevice(t, conn.NewDefaultBind(), device.NewLogger(device.LogLevelError, ""))
	defer d.Close()
	if err := d.IpcSet(config); err != nil {
		return err
	}
	if err := up(); err != nil {
		return err
	}
	select {
	case <-term:
	case <-d.Wait():
	}
	return nil
}

// wireguardKey is the private key of a host of a lab: no secret, so that all know each other's.
func wireguardKey(wire string) (*ecdh.PrivateKey, error) {
	seed := sha256.Sum256([]byte("grapevine's lab, WireGuard of " + wire))
	return ecdh.X25519().NewPrivateKey(seed[:])
}
