package packets

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/netns"
)

// vnetHeader is struct virtio_net_hdr, bytes: what a packet comes with that the kernel has yet to segment, or to sum up.
const vnetHeader = 10

// noAddresses is IN6_ADDR_GEN_MODE_NONE (linux/if_link.h).
const noAddresses = 1

// maxMTU is a TUN device's (linux/if_tun.c).
const maxMTU = 65521

// Copy gives a sandbox copies of the packets of interfaces in other ones, on a device of its own there. The device is
// the process's: it is gone when that ends, however it ends. Nothing reads what the sandbox sends to it, and the
// sandbox's own stack is given nothing of it: only who reads it with a packet socket sees the copies.
type Copy struct {
	name   string
	device *os.File
	raw    interface {
		Write(func(fd uintptr) bool) error
	}

	written, refused atomic.Uint64
	ended            chan error

	mu   sync.Mutex
	taps []*Tap
	done sync.WaitGroup
}

// NewCopy makes the device in the namespace of file sandbox, with the first name of mirror0, mirror1, ... that is free.
func NewCopy(sandbox string, mtu int) (*Copy, error) {
	ns, err := os.Open(sandbox)
	if err != nil {
		return nil, fmt.Errorf("open the sandbox: %w", err)
	}
	defer ns.Close()
	c := &Copy{ended: make(chan error, 1)}
	if err := netns.Do(ns, func() error { return c.create(mtu) }); err != nil {
		return nil, fmt.Errorf("make a device for copies in %s: %w", sandbox, err)
	}
	if c.raw, err = c.device.SyscallConn(); err != nil {
		_ = c.device.Close()
		return nil, err
	}
	return c, nil
}

func (c *Copy) create(mtu int) (err error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open /dev/net/tun: %w", err)
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	ifr, err := unix.NewIfreq("mirror%d")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
		return fmt.Errorf("TUNSETIFF: %w", err)
	}
	c.name = ifr.Name()
	l, err := netlink.LinkByName(c.name)
	if err != nil {
		return err
	}
	if err := link.Deafen(c.name); err != nil {
		return fmt.Errorf("keep the sandbox's own stack from the copies: %w", err)
	}
	_ = netlink.LinkSetIP6AddrGenMode(l, noAddresses) // a kernel without IPv6 makes none
	for _, err := range []error{netlink.LinkSetARPOff(l), netlink.LinkSetMTU(l, min(mtu, maxMTU)), netlink.LinkSetUp(l)} {
		if err != nil {
			return fmt.Errorf("set up %s: %w", c.name, err)
		}
	}
	c.device = os.NewFile(uintptr(fd), "/dev/net/tun")
	return nil
}

// Name is the device's.
func (c *Copy) Name() string { return c.name }

// Add copies what the interface of an index in another sandbox sends and gets from now on.
func (c *Copy) Add(sandbox string, index int) error {
	tap, err := open(sandbox, index, nil, true)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.taps = append(c.taps, tap)
	c.mu.Unlock()
	c.done.Go(func() { c.end(c.copy(tap)) })
	return nil
}

// copy copies until the interface is gone, or the device, or the tap is closed.
func (c *Copy) copy(tap *Tap) error {
	for {
		p, err := tap.Read()
		switch {
		case errors.Is(err, unix.EINVAL): // of a kind of segments that no header says
			c.refused.Add(1)
			continue
		case err != nil:
			return err
		}
		if err := c.write(p.Data); err != nil {
			return err
		}
	}
}

// ErrNoDevice says that the sandbox has no such device any more, or has set it down.
var ErrNoDevice = errors.New("the device for the copies is gone, or down")

func (c *Copy) write(b []byte) (err error) {
	waited := c.raw.Write(func(fd uintptr) bool {
		_, err = unix.Write(int(fd), b)
		return true
	})
	switch {
	case waited != nil:
		return waited
	case err == nil:
		c.written.Add(1)
	case errors.Is(err, unix.EIO), errors.Is(err, unix.EBADFD), errors.Is(err, unix.ENODEV):
		return ErrNoDevice
	default:
		c.refused.Add(1)
	}
	return nil
}

func (c *Copy) end(err error) {
	select {
	case c.ended <- err:
	default:
	}
}

// Ended gets why copying has ended by itself.
func (c *Copy) Ended() <-chan error { return c.ended }

// Counts are how many packets were copied, and how many were not, as they came too fast or could not be written.
func (c *Copy) Counts() (copied, lost uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	lost = c.refused.Load()
	for _, t := range c.taps {
		_, n := t.Counts()
		lost += n
	}
	return c.written.Load(), lost
}

// Close ends it, and takes the device away.
func (c *Copy) Close() error {
	c.mu.Lock()
	taps := c.taps
	c.mu.Unlock()
	for _, t := range taps {
		_ = t.Close()
	}
	c.done.Wait()
	return c.device.Close()
}
