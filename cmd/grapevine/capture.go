package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/observe/frames"
	"github.com/grapevine-net/grapevine/observe/pcapng"
)

func newCapture() *cobra.Command {
	var r api.CaptureRequest
	var file string
	var limit time.Duration
	var megabytes uint64
	c := &cobra.Command{
		Use:   "capture CONTAINER",
		Short: "Capture a container's packets, on whichever host it is, for Wireshark, tcpdump or the screen",
		Long: `Capture the packets of a container, on whichever host of the cluster it is: a line each, or, with --write, a
file in the form pcapng, with the names of containers in it. They are taken inside the container's sandbox,
where all of them pass. (A packet socket at the host's end of its veth sees only part of them, with the fast path.)

CONTAINER and --peer are a container's name, NETWORK/NAME, an ID, the beginning of one, or an address. A capture
ends by itself, as --for, --count and --megabytes say, and when the command ends. Nothing stays in the container.

Of a container on another host come the headers alone, without what containers say to each other, unless that host
has GRAPEVINE_CAPTURE=full; with off, nothing does. On its own host, or with -H, root gets all. The log of the
container's host says who asked.`,
		Example: `  grapevine capture db --for 2s
  grapevine capture db --for 2s --write - | tcpdump -nr -      # or: | wireshark -k -i -
  grapevine capture web --peer db --proto tcp --port 80 --count 1000 --for 2s --write /root/web.pcapng`,
		Args:              named("a container", 1, 1),
		ValidArgsFunction: complete(containerNames),
		RunE: func(c *cobra.Command, args []string) error {
			format, client, err := asking(c)
			if err != nil {
				return err
			}
			r.Container, r.Seconds, r.Bytes = args[0], limit.Seconds(), megabytes*1000*1000
			if format == "json" && (file == "" || file == "-") {
				return errors.New("`-o json` says how a capture ended: it wants --write FILE")
			}
			end, err := captureTo(c, client, r, file)
			switch {
			case err != nil && c.Context().Err() == nil:
				return err
			case format == "json":
				err = printJSON(c.OutOrStdout(), end)
			default:
				_, err = fmt.Fprintln(c.ErrOrStderr(), "grapevine: "+captured(end))
			}
			if end.Error != "" {
				return errors.New(words.Printable(end.Error))
			}
			return err
		},
	}
	c.Flags().StringVarP(&file, "write", "w", "", "write pcapng to a file; -: to the standard output")
	c.Flags().StringVar(&r.Peer, "peer", "", "packets to and from this container or address alone")
	c.Flags().StringVar(&r.Proto, "proto", "", "of this protocol alone: tcp, udp, sctp, icmp, arp or a number")
	c.Flags().Uint16Var(&r.Port, "port", 0, "of this port of tcp, udp or sctp alone, at either end")
	c.Flags().Uint64VarP(&r.Packets, "count", "c", 0, "end after so many packets; 0: however many")
	c.Flags().DurationVar(&limit, "for", time.Minute, "end after that time; 0: when the command ends")
	c.Flags().Uint64Var(&megabytes, "megabytes", 100, "end after so many megabytes of packets; 0: however many")
	return c
}

// captured says how a capture ended.
func captured(end api.CaptureEnd) string {
	text := words.Plural(int(end.Packets), "packet") + " captured"
	if end.Lost > 0 {
		text += fmt.Sprintf(", %d lost: they came faster than they were read", end.Lost)
	}
	if end.Why != "" {
		text += "; it ended because " + end.Why
	}
	if end.Cut != "" {
		text += "; " + end.Cut
	}
	return words.Printable(text)
}

// captureTo writes the packets to a file, to the standard output (-) or, line by line, to people.
func captureTo(c *cobra.Command, client *api.Client, r api.CaptureRequest, file string) (end api.CaptureEnd, err error) {
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	var out io.Writer
	switch file {
	case "":
		return captureLines(ctx, client, r, c.OutOrStdout())
	case "-":
		out = c.OutOrStdout()
		if f, ok := out.(*os.File); ok {
			if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err == nil {
				return end, errors.New("a capture is not for a terminal: leave out --write, or lead it to a program: | tcpdump -nr -")
			}
			go endWithReader(ctx, f, cancel)
		}
	default:
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, os.ErrExist) {
			return end, fmt.Errorf("%s is there already: name another file", file)
		}
		if err != nil {
			return end, fmt.Errorf("write the capture: %w", err)
		}
		defer func() {
			if closing := f.Close(); err == nil && closing != nil {
				err = fmt.Errorf("write the capture: %w", closing)
			}
			if st, none := os.Stat(file); none == nil && st.Size() == 0 {
				_ = os.Remove(file)
			}
		}()
		out = f
	}
	whole := &pcapng.Whole{To: out}
	if end, err = client.Capture(ctx, r, whole); ctx.Err() != nil {
		return api.CaptureEnd{Packets: whole.Packets}, ctx.Err()
	}
	return end, err
}

// endWithReader ends the capture when nobody reads a pipe any more, be there packets or not.
func endWithReader(ctx context.Context, f *os.File, end func()) {
	const look = 200 // milliseconds
	for ctx.Err() == nil {
		list := []unix.PollFd{{Fd: int32(f.Fd())}}
		if n, err := unix.Poll(list, look); err == nil && n > 0 && list[0].Revents&unix.POLLERR != 0 {
			end()
			return
		}
	}
}

// captureLines prints a line for each packet.
func captureLines(ctx context.Context, client *api.Client, r api.CaptureRequest, w io.Writer) (end api.CaptureEnd, err error) {
	from, to := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		var err error
		end, err = client.Capture(ctx, r, to)
		to.CloseWithError(err)
		ended <- err
	}()
	reader := pcapng.NewReader(from)
	lines := uint64(0)
	for {
		p, err := reader.Next()
		if err == nil {
			lines++
			_, err = fmt.Fprintln(w, packetLine(reader, p))
		}
		if err != nil {
			from.CloseWithError(err)
			break
		}
	}
	if err = <-ended; ctx.Err() != nil {
		return api.CaptureEnd{Packets: lines}, ctx.Err()
	}
	return end, err
}

// packetLine is a packet for people.
func packetLine(r *pcapng.Reader, p pcapng.Packet) string {
	way := "in "
	if p.Out {
		way = "out"
	}
	where := ""
	if len(r.Interfaces) > 1 && int(p.Interface) < len(r.Interfaces) {
		_, network, _ := strings.Cut(r.Interfaces[p.Interface].Name, "/")
		where = words.Printable(network) + "  "
	}
	what := frames.Read(p.Data).Describe(func(a netip.Addr) string { return words.Printable(r.Names[a]) })
	return fmt.Sprintf("%s  %s  %s%s  %d bytes", p.At.Format("15:04:05.000000"), way, where, what, p.Length)
}
