package lab

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Deluge is what somebody sends who has no key, as fast as one program can, and returns how many datagrams or connections
// that were. how is datagrams (random ones, each from one of many ports), silent (connections that say nothing),
// talking (connections that say something and leave it at that), or frames (of Ethernet: to is an interface, a MAC and a protocol,
// eth0/02:00:00:00:00:01/88b5). run is that of a container, a host or the outside.
func Deluge(ctx context.Context, run func(context.Context, ...string) (string, error), how, to string, during time.Duration) (n int, err error) {
	text, err := run(ctx, "env", roleVar+"="+roleDeluge, labhost, how, to, during.String())
	if err != nil {
		return 0, err
	}
	_, err = fmt.Sscan(strings.TrimSpace(text), &n)
	return n, err
}

func delugeMain(args []string) error {
	if len(args) != 3 {
		return errors.New("give datagrams, silent, talking or frames, an address and for how long")
	}
	how, to := args[0], args[1]
	during, err := time.ParseDuration(args[2])
	if err != nil {
		return err
	}
	say := make([]byte, 1<<16)
	_, _ = rand.Read(say)
	end, n := time.Now().Add(during), 0
	switch how {
	case "datagrams":
		n, err = delugeOfDatagrams(to, say, end)
	case "frames":
		n, err = delugeOfFrames(to, say, end)
	case "silent":
		n = delugeOfConnections(to, nil, end)
	case "talking":
		n = delugeOfConnections(to, say, end)
	default:
		err = fmt.Errorf("no deluge is called %q", how)
	}
	fmt.Println(n)
	return err
}

// manyPorts is from how many ports datagrams come.
const manyPorts = 200

func delugeOfDatagrams(to string, say []byte, end time.Time) (n int, err error) {
	var from []net.Conn
	for range manyPorts {
		c, err := net.Dial("udp", to)
		if err != nil {
			return 0, err
		}
		defer c.Close()
		from = append(from, c)
	}
	for ; n%64 != 0 || time.Now().Before(end); n++ {
		size := 1 + (n*7)%1200
		// A port that nobody listens at says so with the next one: it counts as sent.
		_, _ = from[n%len(from)].Write(say[n%1024:][:size])
	}
	return n, nil
}

func delugeOfFrames(to string, say []byte, end time.Time) (n int, err error) {
	part := strings.Split(to, "/")
	if len(part) != 3 {
		return 0, fmt.Errorf("%q is not an interface, a MAC and a protocol", to)
	}
	dev, err := net.InterfaceByName(part[0])
	if err != nil {
		return 0, err
	}
	mac, err := net.ParseMAC(part[1])
	if err != nil {
		return 0, err
	}
	protocol, err := hex.DecodeString(part[2])
	if err != nil {
		return 0, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: dev.Index}); err != nil {
		return 0, err
	}
	head := slices.Concat(mac, dev.HardwareAddr, protocol)
	for ; n%64 != 0 || time.Now().Before(end); n++ {
		size := 46 + (n*7)%1000
		// One for which there is no room counts as sent.
		_, _ = unix.Write(fd, slices.Concat(head, say[n%1024:][:size]))
	}
	return n, nil
}

// manyOpen is how many connections are left open, so that the oldest end by themselves.
const manyOpen = 6000

func delugeOfConnections(to string, say []byte, end time.Time) (n int) {
	network := "tcp"
	if strings.HasPrefix(to, "/") {
		network = "unix"
	}
	var open []net.Conn
	for time.Now().Before(end) {
		c, err := net.DialTimeout(network, to, time.Second)
		if err != nil {
			continue
		}
		n++
		if say != nil {
			_ = c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
			_, _ = c.Write(say)
		}
		if open = append(open, c); len(open) > manyOpen {
			_ = open[0].Close()
			open = slices.Delete(open, 0, 1)
		}
	}
	return n // which closes the rest
}
