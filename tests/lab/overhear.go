package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/observe/frames"
)

const overhearing = "overhear"

// Overheard is what somebody on the wire has read.
type Overheard struct {
	Frames, Marked int      // all, and those with the marker
	Lost           int      // that passed unread
	Seen           []string // the first of those with the marker: when, where, what they are, and how they begin
}

// seen is how many frames with the marker are told of, and shown how many bytes of each.
const seen, shown = 30, 128

// tell says of a frame with the marker by which way it went: where it was read, what it is, and what is in it.
func tell(at time.Time, where string, outgoing bool, frame []byte) string {
	way := "in"
	if outgoing {
		way = "out"
	}
	nobody := func(netip.Addr) string { return "" }
	what := frames.Read(frame).Describe(nobody)
	if inner := frames.Inner(frame); inner != nil {
		what += " with " + frames.Read(inner).Describe(nobody)
	}
	if len(frame) >= 12 {
		what += fmt.Sprintf(", MAC %v to %v", net.HardwareAddr(frame[6:12]), net.HardwareAddr(frame[:6]))
	}
	return fmt.Sprintf("%s%s %s %s, %d bytes: %s; %x", marked, at.UTC().Format("15:04:05.000"), where, way, len(frame), what, frame[:min(len(frame), shown)])
}

// marked begins a line about a frame with the marker.
const marked = "marked "

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
	return heard(h.Name, h.Log(overhearing, seen+1))
}

// heard is what who listened said at its end.
func heard(where, text string) (o Overheard, err error) {
	line := ""
	for line = range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if told, is := strings.CutPrefix(line, marked); is {
			o.Seen = append(o.Seen, told)
		}
	}
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
	return heard("the wire", tail(w.heardLog(), seen+1))
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
		n, from, err := unix.Recvfrom(fd, frame, 0)
		switch {
		case err == nil:
			o.Frames++
			if bytes.Contains(frame[:n], marker) {
				o.Marked++
				if o.Marked <= seen {
					where, outgoing := "?", false
					if at, is := from.(*unix.SockaddrLinklayer); is {
						outgoing = at.Pkttype == unix.PACKET_OUTGOING
						where = fmt.Sprint("interface ", at.Ifindex)
						if dev, err := net.InterfaceByIndex(at.Ifindex); err == nil {
							where = dev.Name
						}
					}
					fmt.Println(tell(time.Now(), where, outgoing, frame[:n]))
				}
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
