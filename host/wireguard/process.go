package wireguard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/grapevine-net/grapevine/host/wireguard/offload"
)

// comm is how ps(1) and pkill(1) call the process.
const comm = "grapevine-wg"

// Serve is the process of a device: it makes that and answers on a socket who tells it its key and its peers, until
// the device is deleted or ctx ends.
func Serve(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("usage: %s SOCKET MTU NAME: the agent starts it, nobody else", Verb)
	}
	name := args[2]
	mtu, err := strconv.Atoi(args[1])
	if err != nil || mtu < MinMTU {
		return fmt.Errorf("%q is no MTU of %s: it is at least %d", args[1], name, MinMTU)
	}
	_ = os.WriteFile("/proc/self/comm", []byte(comm), 0) // for people: it is no agent
	refused := new(refusals)
	log := logger(name, refused)
	t, err := create(name, mtu, log.Errorf)
	if err != nil {
		return fmt.Errorf("make %s: %w", name, err)
	}
	d := device.NewDevice(counted{t, refused}, counting{conn.NewDefaultBind(), refused}, log)
	defer d.Close()
	if err := awake(d); err != nil {
		return err
	}
	// Of another process, which has no device any more: this one has its name.
	if err := os.Remove(args[0]); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("make the socket of %s: %w", name, err)
	}
	syscall.Umask(0o077) // the private key can be read there
	l, err := net.Listen("unix", args[0])
	if err != nil {
		return fmt.Errorf("make the socket of %s: %w", name, err)
	}
	defer l.Close()
	l.(*net.UnixListener).SetUnlinkOnClose(false) // when this process ends the name may be that of the next one
	go answer(l, d, refused)
	select {
	case <-ctx.Done():
	case <-d.Wait():
	}
	return nil
}

// awake has the device up before it is told anything: until then it takes a port that somebody else has, and says nothing.
func awake(d *device.Device) error {
	if err := d.Up(); err != nil {
		return fmt.Errorf("begin WireGuard: %w", err)
	}
	return nil
}

// create makes the TUN device, one that takes tunnels whole where the kernel has such.
func create(name string, mtu int, say func(string, ...any)) (tun.Device, error) {
	t, err := offload.Create(name, mtu, say)
	if errors.Is(err, offload.ErrNot) {
		return tun.CreateTUN(name, mtu)
	}
	return t, err
}

func answer(l net.Listener, d *device.Device, refused *refusals) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		if d == nil { // the kernel's device answers by itself
			c.Close()
			continue
		}
		go converse(c, d, refused)
	}
}
