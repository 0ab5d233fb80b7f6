package offload

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/tun"
)

// What a process tells the kernel that it does itself (linux/if_tun.h).
const (
	offloadTunnel         = 0x80
	offloadTunnelChecksum = 0x100
	offloads              = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN | offloadTunnel | offloadTunnelChecksum
)

// What one Read returns at most: in all, which fills two of UDP's packets that the kernel cuts; and of packets that came alone.
// wireguard-go keeps a thousand such batches of what it cannot send as fast, each packet in 4 kB or more: of UDP these
// are 64 MB.
const most, mostAlone = 88, 16

// ErrNot is why a kernel has no such devices: it is older than Linux 6.17.
var ErrNot = errors.New("this kernel gives no tunnel whole to a TUN device, as Linux 6.17 and later do")

// device is wireguard-go's own, but for how packets come and go.
type device struct {
	tun.Device
	raw syscall.RawConn
	say func(string, ...any)

	reading sync.Mutex
	buf     []byte
	cut     cut // of what is in buf, if something is left of it
	odd     uint64

	writing sync.Mutex
	join    join
	plain   bool // nothing is joined: the kernel refused
	block   []byte
	iov     []unix.Iovec
}

// Create makes a TUN device with that name and MTU. say is told what is odd.
func Create(name string, mtu int, say func(string, ...any)) (tun.Device, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	if err := prepare(fd, name, offloads); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "/dev/net/tun")
	inner, err := tun.CreateTUNFromFile(file, mtu)
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	d, err := wrap(inner, say)
	if err != nil {
		_ = inner.Close()
		return nil, err
	}
	return d, nil
}

// prepare makes the device if the kernel is new enough. A device that is not kept goes with fd.
func prepare(fd int, name string, offloads int) error {
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
		return fmt.Errorf("TUNSETIFF: %w", err)
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, offloads); err != nil {
		return fmt.Errorf("%w: TUNSETOFFLOAD: %w", ErrNot, err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, headerLen); err != nil {
		return fmt.Errorf("%w: TUNSETVNETHDRSZ: %w", ErrNot, err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETVNETLE, 1); err != nil {
		return fmt.Errorf("%w: TUNSETVNETLE: %w", ErrNot, err)
	}
	return nil
}

func wrap(inner tun.Device, say func(string, ...any)) (*device, error) {
	raw, err := inner.File().SyscallConn()
	if err != nil {
		return nil, err
	}
	var set error
	err = raw.Control(func(fd uintptr) { // wireguard-go has set its own
		set = unix.IoctlSetInt(int(fd), unix.TUNSETOFFLOAD, offloads)
	})
	if err = errors.Join(err, set); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNot, err)
	}
	return &device{Device: inner, raw: raw, say: say, buf: make([]byte, headerLen+0xffff+ip6Len)}, nil
}

// BatchSize is how many packets are read or written at once.
func (d *device) BatchSize() int { return conn.IdealBatchSize }

// Read waits for a packet, and returns what has come by then, up to most; those of one that the kernel gave whole may take
// several calls. wireguard-go wakes three others for what one call brings, so it is to bring much.
func (d *device) Read(bufs [][]byte, sizes []int, offset int) (n int, err error) {
	d.reading.Lock()
	defer d.reading.Unlock()
	for alone := 0; n < min(len(bufs), most) && alone < mostAlone; {
		if d.cut.left() {
			if sizes[n], err = d.cut.next(bufs[n][offset:]); err != nil {
				d.cut = cut{}
				d.strange(err)
				continue
			}
			n++
			continue
		}
		got, err := d.next(n == 0)
		if got == 0 && n > 0 { // an error will come again
			break
		}
		if err != nil {
			return 0, err
		}
		switch size, err := d.arrived(d.buf[:got], bufs[n][offset:]); {
		case err != nil:
			d.strange(err)
		case size > 0:
			sizes[n] = size
			n++
			alone++
		}
	}
	return n, nil
}

// next reads into d.buf what the kernel has next, and returns its length. If there is nothing it waits, or returns 0.
func (d *device) next(wait bool) (got int, err error) {
	var errno unix.Errno
	err = d.raw.Read(func(fd uintptr) bool {
		got, errno = call(unix.SYS_READ, fd, unsafe.Pointer(unsafe.SliceData(d.buf)), len(d.buf))
		return errno != unix.EAGAIN || !wait
	})
	switch {
	case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
		return 0, fmt.Errorf("%w: %w", os.ErrClosed, err)
	case err != nil:
		return 0, err
	case errno == unix.EBADFD:
		return 0, os.ErrClosed
	case errno != 0 && errno != unix.EAGAIN:
		return 0, os.NewSyscallError("read", errno)
	}
	return got, nil
}

// call reads or writes without a word to Go's scheduler. The device never waits, but the kernel carries what is written as far as a
// container's socket before it returns, some hundred microseconds: Go takes such a call for one that waits, and wakes
// another thread to go on, for which there is no processor.
func call(trap, fd uintptr, p unsafe.Pointer, n int) (int, unix.Errno) {
	for {
		done, _, errno := unix.RawSyscall(trap, fd, uintptr(p), uintptr(n))
		switch errno {
		case 0:
			return int(done), 0
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

// arrived writes a packet that is not to be cut, and returns its length; one that is to be becomes d.cut.
func (d *device) arrived(read, to []byte) (n int, err error) {
	var h header
	if err := h.decode(read); err != nil {
		return 0, err
	}
	packet := read[headerLen:]
	if h.gso != noGSO {
		d.cut, err = begin(h, packet)
		return 0, err
	}
	if len(packet) > len(to) {
		return 0, fmt.Errorf("it has %d bytes", len(packet))
	}
	if err := fill(h, packet); err != nil {
		return 0, err
	}
	return copy(to, packet), nil
}

// strange counts what the kernel gave and is not sent, and says so the first time, the second, the fourth and so on.
func (d *device) strange(err error) {
	if d.odd++; d.odd&(d.odd-1) == 0 {
		d.say("drop a packet that this host has sent (%d so far): %v", d.odd, err)
	}
}

// Write gives the kernel what has come from another host, joined where it can be.
func (d *device) Write(bufs [][]byte, offset int) (total int, err error) {
	d.writing.Lock()
	defer d.writing.Unlock()
	packet := func(i int) []byte { return bufs[i][offset:] }
	groups := d.join.plan(len(bufs), packet)
	var errs []error
	for i := range groups {
		n, err := d.writeGroup(&groups[i], packet)
		if errors.Is(err, unix.EBADFD) {
			return total, os.ErrClosed
		}
		if total += n; err != nil {
			errs = append(errs, err)
		}
	}
	return total, errors.Join(errs...)
}

func (d *device) writeGroup(g *group, packet func(int) []byte) (n int, err error) {
	if len(g.of) > 1 && !d.plain {
		d.begin(g.headersLen())
		g.super(d.block, packet(g.of[len(g.of)-1])[g.first.tcp+tcpFlags])
		for _, i := range g.of {
			d.add(packet(i)[g.first.data:])
		}
		if err := d.flush(); !errors.Is(err, unix.EINVAL) {
			return len(g.of), err
		}
		d.plain = true
		d.say("the kernel takes no packet that is joined of several: each goes alone from now on")
	}
	var errs []error
	for _, i := range g.of {
		d.begin(headerLen)
		clear(d.block)
		d.add(packet(i))
		if err := d.flush(); err != nil {
			errs = append(errs, err)
			continue
		}
		n++
	}
	return n, errors.Join(errs...)
}

// begin has the next write begin with d.block, of n bytes.
func (d *device) begin(n int) {
	if cap(d.block) < n {
		d.block = make([]byte, n, max(n, 256))
	}
	d.block = d.block[:n]
	d.iov = d.iov[:0]
	d.add(d.block)
}

func (d *device) add(b []byte) {
	v := unix.Iovec{Base: unsafe.SliceData(b)}
	v.SetLen(len(b))
	d.iov = append(d.iov, v)
}

func (d *device) flush() error {
	var errno unix.Errno
	err := d.raw.Write(func(fd uintptr) bool {
		_, errno = call(unix.SYS_WRITEV, fd, unsafe.Pointer(unsafe.SliceData(d.iov)), len(d.iov))
		return errno != unix.EAGAIN
	})
	if err == nil && errno != 0 {
		err = errno
	}
	return err
}
