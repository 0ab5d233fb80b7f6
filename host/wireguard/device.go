// Package wireguard is the agent's hand on WireGuard: this host's key, and one device, gvwg, whose only peers are
// the other hosts, and a second one, gvwg2, while keys change. The device is the kernel's where it has WireGuard, and else a process of its own that outlives
// the agent, as Open vSwitch's daemons do. It has one address, and a route to those of all hosts; behind that stands
// a route that leads nowhere, so that with the device gone nothing takes another way.
package wireguard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link"
)

// The kinds of devices.
const (
	Kernel    = "kernel"
	Userspace = "userspace"
)

// Verb is the one of this program by which a device's process begins (Serve): not for people.
const Verb = "wireguard-device"

// MinMTU is the least MTU of the device: it carries IPv6 (RFC 8200, 5).
const MinMTU = 1280

// Device is how gvwg or gvwg2 is to be. Its methods work in the network namespace of the calling thread.
type Device struct {
	Name  string       // link.WireGuard or link.WireGuard2
	Run   string       // the directory of the process's socket and log
	MTU   int          // bytes, of IP packets inside
	Addr  netip.Addr   // this host's, inside
	Range netip.Prefix // all hosts'
	// Metric is that of its route to Range: of two devices the lesser is taken.
	Metric int
}

func (d Device) socket() string { return filepath.Join(d.Run, d.file()+".sock") }
func (d Device) log() string    { return filepath.Join(d.Run, d.file()+".log") }

func (d Device) file() string {
	if d.Name == link.WireGuard2 {
		return "wireguard-second"
	}
	return "wireguard"
}

// Ensure makes the device, with its address and routes, where anything of that is missing, and returns its kind. The
// route that leads nowhere comes first.
func (d Device) Ensure(ctx context.Context) (kind string, err error) {
	if err := d.nowhere(); err != nil {
		return "", err
	}
	if err := d.first(); err != nil {
		return "", err
	}
	kind, err = d.there()
	if err == nil && kind == "" {
		kind, err = d.create(ctx)
	}
	if err != nil {
		return "", err
	}
	return kind, d.dress()
}

// there is the kind of the device, "" if there is none that can be used.
func (d Device) there() (kind string, err error) {
	l, err := link.Get(d.Name)
	switch {
	case errors.Is(err, link.ErrNotFound):
		return "", nil
	case err != nil:
		return "", err
	case l.Kind == "wireguard":
		return Kernel, nil
	case l.Kind != "tuntap" && l.Kind != "tun":
		return "", &link.StrangerError{Name: l.Name, Kind: l.Kind}
	}
	if _, err := ask(d.socket(), "get=1\n"); err == nil {
		return Userspace, nil
	}
	return "", errors.Join(finish(d.socket()), link.Delete(d.Name)) // a process that does not hang ends with it
}

func (d Device) create(ctx context.Context) (kind string, err error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = d.Name
	err = netlink.LinkAdd(&netlink.Wireguard{LinkAttrs: attrs})
	switch {
	case err == nil:
		return Kernel, nil
	case !errors.Is(err, unix.EOPNOTSUPP):
		return "", fmt.Errorf("make %s: %w", d.Name, err)
	}
	// The process of a device that is gone answers there for a moment yet, and has the port.
	if err := finish(d.socket()); err != nil {
		return "", err
	}
	if err := os.Remove(d.socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("make room for the socket of %s: %w", d.Name, err)
	}
	if err := d.start(); err != nil {
		return "", fmt.Errorf("begin WireGuard in a process, as this kernel has none: %w", err)
	}
	for end := time.Now().Add(patience); ; {
		if _, err := ask(d.socket(), "get=1\n"); err == nil {
			return Userspace, nil
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return "", fmt.Errorf("the process of WireGuard, which this kernel does not have, makes no device: %s says why: `modprobe tun` if /dev/net/tun is missing", d.log())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// start runs the process in a session of its own, so that no signal to the agent's group reaches it.
func (d Device) start() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(d.log(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(program, Verb, d.socket(), fmt.Sprint(d.MTU), d.Name)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // at the agent's end init does
	return nil
}

// dress gives the device what it needs and has not.
func (d Device) dress() error {
	l, err := netlink.LinkByName(d.Name)
	if err != nil {
		return fmt.Errorf("look at %s: %w", d.Name, err)
	}
	if l.Attrs().MTU != d.MTU {
		if err := netlink.LinkSetMTU(l, d.MTU); err != nil {
			return fmt.Errorf("set the MTU of %s to %d: %w", d.Name, d.MTU, err)
		}
	}
	if err := allowIPv6(d.Name); err != nil {
		return err
	}
	if l.Attrs().Flags&net.FlagUp == 0 {
		if err := link.NoIPv6Address(d.Name); err != nil {
			return err
		}
		if err := netlink.LinkSetUp(l); err != nil {
			return fmt.Errorf("set up %s: %w", link.WireGuard, err)
		}
	}
	return d.lead(l)
}

// lead gives the device its address and the route to all hosts', if it has them not.
func (d Device) lead(l netlink.Link) error {
	addrs, err := link.Dump(func() ([]netlink.Addr, error) { return netlink.AddrList(l, netlink.FAMILY_V6) })
	if err != nil {
		return fmt.Errorf("list the addresses of %s: %w", d.Name, err)
	}
	whole := netip.PrefixFrom(d.Addr, d.Addr.BitLen())
	if !slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return a.IPNet.String() == whole.String() }) {
		if err := netlink.AddrReplace(l, &netlink.Addr{IPNet: ipNet(whole), Flags: unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_NODAD}); err != nil {
			return fmt.Errorf("give %s its address %v: %w", d.Name, d.Addr, err)
		}
	}
	// A host that was forgotten had another one, in whose name it would go on sending.
	for _, a := range addrs {
		if had, _ := netip.AddrFromSlice(a.IP); had != d.Addr && d.Range.Contains(had) {
			if err := netlink.AddrDel(l, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
				return fmt.Errorf("take the former address %v from %s: %w", had, d.Name, err)
			}
		}
	}
	want := netlink.Route{LinkIndex: l.Attrs().Index, Dst: ipNet(d.Range), Type: unix.RTN_UNICAST, Priority: d.Metric}
	if err := d.route(&want); err != nil {
		return fmt.Errorf("lead %v to %s: %w", d.Range, d.Name, err)
	}
	if err := d.unlead(want); err != nil {
		return fmt.Errorf("end the former route of %v to %s: %w", d.Range, d.Name, err)
	}
	return nil
}

// unlead removes the device's routes with other metrics than the one that is wanted, which is there.
func (d Device) unlead(want netlink.Route) error {
	have, err := link.Dump(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_V6, &want, netlink.RT_FILTER_DST|netlink.RT_FILTER_OIF)
	})
	if err != nil {
		return err
	}
	for _, r := range have {
		if r.Type != want.Type || r.Priority == want.Priority {
			continue
		}
		if err := netlink.RouteDel(&r); err != nil && !noRoute(err) {
			return err
		}
	}
	return nil
}

// route makes a route, if it is not there.
func (d Device) route(want *netlink.Route) error {
	have, err := link.Dump(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_V6, want, netlink.RT_FILTER_DST)
	})
	if err != nil {
		return err
	}
	if slices.ContainsFunc(have, func(r netlink.Route) bool {
		return r.Type == want.Type && r.Priority == want.Priority && (want.LinkIndex == 0 || r.LinkIndex == want.LinkIndex)
	}) {
		return nil
	}
	return netlink.RouteReplace(want)
}

// Metrics of the routes to all hosts: of gvwg always; of gvwg2 while hosts are still sent to by gvwg, and when they are
// not. To change the metric of one changes the way of all packets at once, and there is a way at any moment.
const (
	First  = 64
	Behind = 65
	Before = 63
	last   = 1<<31 - 1 // the one that leads nowhere
)

// nowhere makes the route that all take when the device is gone.
func (d Device) nowhere() error {
	if _, err := os.Stat("/proc/sys/net/ipv6"); err != nil {
		return errors.New("this host has no IPv6 (ipv6.disable=1), which hosts that encrypt have inside WireGuard: boot it without that")
	}
	route := nowhere(d.Range)
	if err := d.route(&route); err != nil {
		return fmt.Errorf("let %v lead nowhere without %s: %w", d.Range, d.Name, err)
	}
	return nil
}

func nowhere(to netip.Prefix) netlink.Route {
	return netlink.Route{Dst: ipNet(to), Type: unix.RTN_UNREACHABLE, Priority: last}
}

// noRoute reports whether a route could not be removed since there is none; of a host without IPv6 (ipv6.disable=1) the
// kernel says that it knows nothing of removing routes.
func noRoute(err error) bool {
	return slices.ContainsFunc([]unix.Errno{unix.ESRCH, unix.ENODEV, unix.EAFNOSUPPORT, unix.EOPNOTSUPP}, func(e unix.Errno) bool { return errors.Is(err, e) })
}

// allowIPv6 turns on IPv6 on the device, where it is off by default.
func allowIPv6(name string) error {
	file := "/proc/sys/net/ipv6/conf/" + name + "/disable_ipv6"
	if text, err := os.ReadFile(file); err == nil && len(text) > 0 && text[0] == '0' {
		return nil
	}
	if err := os.WriteFile(file, []byte("0"), 0); err != nil {
		return fmt.Errorf("turn on IPv6 on %s: %w", name, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// State is what a device of that kind has.
func (d Device) State(kind string) (s State, err error) {
	if kind == Kernel {
		s, err = kernelStateOf(d.Name)
	} else {
		s, err = userspaceState(d.socket())
	}
	if err != nil {
		return s, fmt.Errorf("look at the peers of %s: %w", d.Name, err)
	}
	return s, nil
}

// wholeFeature is what the kernel calls it that a device takes packets in UDP tunnels whole.
const wholeFeature = "tx-udp_tnl-segmentation"

// Whole says that the process of the device takes TCP in VXLAN whole (package offload). The kernel's own device has no process.
func (d Device) Whole(kind string) bool {
	if kind != Userspace {
		return false
	}
	on, err := link.Features(d.Name)
	return err == nil && on[wholeFeature]
}

// Set changes what a device of that kind has.
func (d Device) Set(kind string, c Change) error {
	if c.Empty() {
		return nil
	}
	set := func(c Change) error { return setKernelOf(d.Name, c) }
	if kind != Kernel {
		set = func(c Change) error { return setUserspace(d.socket(), c) }
	}
	if err := set(c); err != nil {
		return fmt.Errorf("set the key, the port or the peers of %s: %w", d.Name, err)
	}
	return nil
}

// Remove removes the device, its process, its routes and the rule, and returns what there was.
func (d Device) Remove() (gone []string, err error) {
	gone, err = d.Drop()
	errs := []error{err}
	route := nowhere(d.Range)
	switch err := netlink.RouteDel(&route); {
	case err == nil:
		gone = append(gone, fmt.Sprintf("unreachable route to %v", d.Range))
	case !noRoute(err):
		errs = append(errs, fmt.Errorf("remove the unreachable route to %v: %w", d.Range, err))
	}
	was, err := d.unfirst()
	if was {
		gone = append(gone, fmt.Sprintf("routing rule of %v", d.Range))
	}
	errs = append(errs, err)
	return gone, errors.Join(errs...)
}

// Drop removes the device and its process, but for the route that leads nowhere, and returns what there was.
func (d Device) Drop() (gone []string, err error) {
	var errs []error
	l, err := link.Get(d.Name)
	switch {
	case errors.Is(err, link.ErrNotFound):
	case err != nil:
		errs = append(errs, err)
	case l.Kind == "wireguard" || l.Kind == "tuntap" || l.Kind == "tun":
		if err := link.Delete(d.Name); err != nil {
			errs = append(errs, err)
		} else {
			gone = append(gone, "interface "+d.Name)
		}
	}
	for _, file := range []string{d.socket(), d.log()} {
		if err := os.Remove(file); err == nil {
			gone = append(gone, file)
		}
	}
	return gone, errors.Join(errs...)
}
