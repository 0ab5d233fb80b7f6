package lab

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
)

// StartLaptop gives a host, on which no agent runs, wg0 as a file for wg-quick(8) says, by a stock WireGuard in a
// process of its own that knows nothing else.
func StartLaptop(ctx context.Context, h *Host, file string) error {
	running, err := h.Running(ctx, roleLaptop)
	if err == nil && running {
		err = h.Stop(ctx, roleLaptop, syscall.SIGTERM, 10*time.Second)
	}
	if err != nil {
		return err
	}
	if err := h.Start(ctx, roleLaptop, []string{roleVar + "=" + roleLaptop}, labhost, file); err != nil {
		return err
	}
	until := fmt.Sprintf("for n in $(seq 100); do ip link show up dev %s 2>/dev/null | grep -q UP && exit; sleep 0.1; done; exit 1", wireguardDevice)
	if _, err := h.Exec(ctx, "sh", "-c", until); err != nil {
		return fmt.Errorf("%s has no WireGuard device: %w\n%s", h.Name, err, h.Log(roleLaptop, 10))
	}
	return nil
}

// laptopMain is WireGuard as the file says, until the device goes.
func laptopMain(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: the text of a file for wg-quick")
	}
	said := map[string][]string{}
	for line := range strings.Lines(args[0]) {
		line, _, _ = strings.Cut(line, "#")
		key, value, found := strings.Cut(strings.TrimSpace(line), " = ")
		for one := range strings.SplitSeq(value, ", ") {
			if found {
				said[key] = append(said[key], one)
			}
		}
	}
	var config strings.Builder
	for _, k := range []struct{ name, uapi string }{{"PrivateKey", "private_key"}, {"PublicKey", "public_key"}} {
		if len(said[k.name]) != 1 {
			return fmt.Errorf("the file has %d lines of %s", len(said[k.name]), k.name)
		}
		raw, err := base64.StdEncoding.DecodeString(said[k.name][0])
		if err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
		fmt.Fprintf(&config, "%s=%x\n", k.uapi, raw)
	}
	fmt.Fprintf(&config, "endpoint=%s\npersistent_keepalive_interval=%s\n", strings.Join(said["Endpoint"], ""), strings.Join(said["PersistentKeepalive"], ""))
	ip := fmt.Sprintf("link set %s mtu %s up\n", wireguardDevice, strings.Join(said["MTU"], ""))
	for _, a := range said["Address"] {
		ip += fmt.Sprintf("addr add %s dev %s\n", a, wireguardDevice)
	}
	for _, to := range said["AllowedIPs"] {
		fmt.Fprintf(&config, "allowed_ip=%s\n", to)
		ip += fmt.Sprintf("route add %s dev %s\n", to, wireguardDevice)
	}
	t, err := tun.CreateTUN(wireguardDevice, wireguardMTU)
	if err != nil {
		return fmt.Errorf("make %s: %w", wireguardDevice, err)
	}
	d := device.NewDevice(t, conn.NewDefaultBind(), device.NewLogger(device.LogLevelError, ""))
	defer d.Close()
	if err := d.IpcSet(config.String()); err != nil {
		return err
	}
	batch := exec.Command("ip", "-batch", "-")
	batch.Stdin = strings.NewReader(ip)
	if out, err := batch.CombinedOutput(); err != nil {
		return fmt.Errorf("ip: %w: %s", err, bytes.TrimSpace(out))
	}
	if err := os.WriteFile("/etc/resolv.conf", []byte(resolvConf(said["DNS"])), 0o644); err != nil {
		return err
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	select {
	case <-term:
	case <-d.Wait():
	}
	return nil
}

// resolvConf is what wg-quick makes of a line DNS: servers, and domains to look in.
func resolvConf(dns []string) (text string) {
	for _, one := range dns {
		if _, err := netip.ParseAddr(one); err == nil {
			text += "nameserver " + one + "\n"
		} else {
			text += "search " + one + "\n"
		}
	}
	return text
}
