package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const overhearing = "overhear"

// Overheard is what somebody on the wire has read.
type Overheard struct {
	Frames, Marked int // all, and those with the marker
	Lost           int // that passed unread
}

// Overhear reads all frames that the host sends and receives on the wire, until HeardBy, and looks
// for the marker in them.
func Overhear(ctx context.Context, h *Host, marker string) error {
	if err := h.Start(ctx, overhearing, []string{roleVar + "=" + roleOverhear}, labhost, "eth0", marker); err != nil {
		return err
	}
	if _, err := h.Exec(ctx, "sh", "-c", "for n in $(seq 100); do tail -n 1 "+filepath.Join(shareMount, "log", h.Name, overhearing+".log")+" | grep -q listens && exit; sleep 0.1; done; exit 1"); err != nil {
		return fmt.Errorf("%s: nobody listens on the wire: %w\n%s", h.Name, err, h.Log(overhearing, 5))
	}
	return nil
}

// HeardBy ends Overhear, and says what the host has heard.
func HeardBy(ctx context.Context, h *Host) (o Overheard, err error) {
	if err := h.Stop(ctx, overhearing, syscall.SIGTERM, 10*time.Second); err != nil {
		return o, err
	}
	return heard(h.Name, h.Log(overhearing, 1))
}

// heard is what who listened said at its end.
func heard(where, line string) (o Overheard, err error) {
	line = strings.TrimSpace(line)
	if _, err := fmt.Sscanf(line, "%d frames, %d with the marker, %d lost", &o.Frames, &o.Marked, &o.Lost); err != nil {
		return o, fmt.Errorf("%s: who listens on the wire ended with: %s", where, line)
	}
	return o, nil
}

// Overhear is that of a host for all that passes at any of the wire's ports, whichever hosts are on.
func (w *Wire) Overhear(ctx context.Context, marker string) error {
	own, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.Remove(w.heardLog()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listen := request{Op: opStart, Name: overhearing, Argv: []string{own, everywhere, marker}, Env: []string{roleVar + "=" + roleOverhear}, Log: w.heardLog()}
	if _, _, _, err := w.box.do(ctx, listen); err != nil {
		return err
	}
	return Eventually(ctx, 10*time.Second, func() error {
		if said := tail(w.heardLog(), 5); !strings.Contains(said, "listens") {
			return fmt.Errorf("nobody listens on the wire: %s", said)
		}
		return nil
	})
}

// HeardBy ends Overhear of the wire. A frame that passes counts at each port.
func (w *Wire) HeardBy(ctx context.Context) (o Overheard, err error) {
	last, _, _, err := w.box.do(ctx, request{Op: opSignal, Name: overhearing, Sig: syscall.SIGTERM, Wait: time.Minute})
	if err == nil && last.Running {
		err = errors.New("the wire: who listens does not end")
	}
	if err != nil {
		return o, err
	}
	return heard("the wire", tail(w.heardLog(), 1))
}

func (w *Wire) heardLog() string { return filepath.Join(w.box.dir, overhearing+".log") }

// everywhere stands for all interfaces there are and will be.
const everywhere = "all"

func overhearMain(args []string) error {
	if len(args) != 2 || args[1] == "" {
		return errors.New("usage: INTERFACE|all MARKER")
	}
	index := 0
	if args[0] != everywhere {
		dev, err := net.InterfaceByName(args[0])
		if err != nil {
			return err
		}
		index = dev.Index
	}
	all := uint16(unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8) // in the network's order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000})
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index}); err != nil {
		return err
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	fmt.Println("listens")
	var o Overheard
	frame, marker := make([]byte, 1<<17), []byte(args[1])
	for ended := false; ; {
		n, _, err := unix.Recvfrom(fd, frame, 0)
		switch {
		case err == nil:
			o.Frames++
			if bytes.Contains(frame[:n], marker) {
				o.Marked++
			}
		case err == unix.EAGAIN && ended: // what came before the end has been read
			stats, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
			if err != nil {
				return err
			}
			fmt.Printf("%d frames, %d with the marker, %d lost\n", o.Frames, o.Marked, stats.Drops)
			return nil
		case err != unix.EAGAIN && err != unix.EINTR:
			return err
		}
		select {
		case <-term:
			// Nothing new is taken, or a busy wire would have no end.
			ended = true
			_ = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &unix.SockFilter{Code: unix.BPF_RET}})
		default:
		}
	}
}
