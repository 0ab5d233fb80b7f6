package reject

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

const (
	snap  = ethernet + 40 + 8 + 2*quoted // bytes of a rejected packet that are read
	lanes = 16                           // senders share one by their address, with a queue and a rate of its own
	room  = 32 << 10                     // bytes of those that wait in a lane: what is later would come too late
	pause = time.Second                  // after a failure
	// patience is how long it may fail before it is a problem: Open vSwitch makes the gateway anew when it starts again.
	patience = 10 * time.Second
)

// Desk answers what comes to the gateway to be rejected, while there are rules that reject.
type Desk struct {
	device string
	log    *slog.Logger

	mu      sync.Mutex
	on      bool
	changed chan struct{} // closed and replaced when on changes
	failed  error
	since   time.Time // of failed
}

// New makes a Desk for the gateway's device. It does nothing before Set(true).
func New(device string, log *slog.Logger) *Desk {
	return &Desk{device: device, log: log, changed: make(chan struct{})}
}

// Set says whether any rule rejects.
func (d *Desk) Set(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.on != on {
		d.on = on
		close(d.changed)
		d.changed = make(chan struct{})
	}
}

func (d *Desk) state() (on bool, changed <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.on, d.changed
}

// Problem says why nobody is told; nil: somebody is, or there is nothing to tell.
func (d *Desk) Problem() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.on || d.failed == nil || time.Since(d.since) < patience {
		return nil
	}
	return d.failed
}

// note says what became of the last try.
func (d *Desk) note(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil && d.failed == nil {
		d.since = time.Now()
		d.log.Debug("senders of rejected packets are not told", "error", err)
	}
	d.failed = err
}

// Run answers until ctx ends.
func (d *Desk) Run(ctx context.Context) error {
	for {
		on, changed := d.state()
		var again <-chan time.Time
		if on {
			d.note(d.serve(ctx, changed))
			again = time.After(pause)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-again:
		}
	}
}

// serve answers until nothing is to be answered any more.
func (d *Desk) serve(ctx context.Context, changed <-chan struct{}) error {
	socks, err := open(d.device)
	if err != nil {
		return fmt.Errorf("read what policies reject on %s: %w", d.device, err)
	}
	// A socket that fails as soon as it is open has answered nobody.
	healthy := time.AfterFunc(pause, func() { d.note(nil) })
	defer healthy.Stop()
	var once sync.Once
	shut := func() {
		once.Do(func() {
			for _, s := range socks {
				_ = s.Close()
			}
		})
	}
	defer shut()
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-ctx.Done():
		case <-changed:
		case <-over:
		}
		shut()
	}()
	b, failed := newBudget(), make(chan error, lanes)
	for _, s := range socks {
		go func() { failed <- lane(s, b) }()
	}
	for range socks {
		if e := <-failed; e != nil && err == nil {
			err = fmt.Errorf("read what policies reject on %s: %w", d.device, e)
		}
		shut()
	}
	return err
}

// lane answers what comes to one socket, until it is closed.
func lane(s *os.File, b *budget) error {
	frame, mine := make([]byte, snap), bucket{}
	for {
		n, err := s.Read(frame)
		switch now := time.Now(); {
		case errors.Is(err, os.ErrClosed):
			return nil
		case err != nil:
			return err
		case !mine.take(reads, now):
			time.Sleep(10 * time.Millisecond) // meanwhile the kernel drops
			continue
		default:
			answer, to := Answer(frame[:n])
			if answer != nil && b.answers(to, now) {
				_, _ = s.Write(answer) // as if lost
			}
		}
	}
}

// open reads what the switch sends to the device to be rejected, and nothing else.
func open(device string) (socks []*os.File, err error) {
	dev, err := link.Get(device)
	if err != nil {
		return nil, err
	}
	if !dev.Up {
		return nil, errors.New("it is down")
	}
	group := 0
	for range lanes {
		fd, err := openLane(dev.Index, &group)
		if err != nil {
			for _, s := range socks {
				_ = s.Close()
			}
			return nil, fmt.Errorf("set up a packet socket: %w", err)
		}
		socks = append(socks, os.NewFile(uintptr(fd), device))
	}
	return socks, nil
}

// openLane opens one of the sockets among which the kernel shares packets out. The first one makes the group.
func openLane(device int, group *int) (fd int, err error) {
	code, err := filter()
	if err != nil {
		return 0, err
	}
	which, err := laneOf()
	if err != nil {
		return 0, err
	}
	// Without a protocol it reads nothing until it is bound: no packet passes before the filter.
	if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return 0, err
	}
	all := binary.NativeEndian.Uint16([]byte{unix.ETH_P_ALL >> 8, unix.ETH_P_ALL}) // in network order
	fanout := *group | unix.PACKET_FANOUT_CBPF<<16
	if *group == 0 {
		fanout |= unix.PACKET_FANOUT_FLAG_UNIQUEID << 16
	}
	err = errors.Join(
		unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, room),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: device}),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_FANOUT, fanout),
	)
	if err == nil && *group == 0 {
		if fanout, err = unix.GetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_FANOUT); err == nil {
			*group = fanout & 0xffff
			err = unix.SetsockoptSockFprog(fd, unix.SOL_PACKET, unix.PACKET_FANOUT_DATA, &unix.SockFprog{Len: uint16(len(which)), Filter: &which[0]})
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return 0, err
	}
	return fd, nil
}

// laneOf says which lane a packet is for: by its sender's address, in which the last bits of those of one host differ.
func laneOf() ([]unix.SockFilter, error) {
	const network = 0xfff00000 // SKF_NET_OFF: from the IP header on
	return assemble([]bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtProto},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_IPV6, SkipTrue: 2},
		bpf.LoadAbsolute{Off: network + 12, Size: 4},
		bpf.Jump{Skip: 1},
		bpf.LoadAbsolute{Off: network + 20, Size: 4},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: lanes - 1},
		bpf.RetA{},
	})
}

// filter passes what is for pipeline.RejectMAC, as far as it is read.
func filter() (code []unix.SockFilter, err error) {
	mac := pipeline.RejectMAC
	return assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: 0, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(mac[0])<<24 | uint32(mac[1])<<16 | uint32(mac[2])<<8 | uint32(mac[3]), SkipTrue: 3},
		bpf.LoadAbsolute{Off: 4, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(mac[4])<<8 | uint32(mac[5]), SkipTrue: 1},
		bpf.RetConstant{Val: snap},
		bpf.RetConstant{Val: 0},
	})
}

func assemble(list []bpf.Instruction) (code []unix.SockFilter, err error) {
	program, err := bpf.Assemble(list)
	if err != nil {
		return nil, fmt.Errorf("make a filter: %w", err)
	}
	for _, i := range program {
		code = append(code, unix.SockFilter{Code: i.Op, Jt: i.Jt, Jf: i.Jf, K: i.K})
	}
	return code, nil
}
