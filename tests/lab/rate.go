package lab

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"strings"
	"time"
)

// ServeRates answers what Rate asks, at the address, for as long as the host lives. Both
// keep to the first processor: whether the machine's scheduler puts them on one or on two
// makes a factor of four, and is now this way, now that. run is Exec of a host or a container.
func ServeRates(ctx context.Context, h *Host, run func(context.Context, ...string) (string, error), addr string) error {
	script := "GVLAB_ROLE=" + roleRate + " setsid taskset 1 " + labhost + " -serve " + addr + " >/dev/null 2>&1 </dev/null &"
	_, err := run(ctx, "sh", "-c", script)
	if err != nil {
		return fmt.Errorf("serve rates on %s: %w", h.Name, err)
	}
	return nil
}

// Rate is how often a second one byte goes to the server at addr and back, on one TCP
// connection, or with connect on a new one each time.
func Rate(ctx context.Context, run func(context.Context, ...string) (string, error), addr string, connect bool, during time.Duration) (rate float64, err error) {
	argv := []string{"env", "GVLAB_ROLE=" + roleRate, "taskset", "1", labhost, "-during", during.String(), fmt.Sprintf("-connect=%v", connect), addr}
	text, err := run(ctx, argv...)
	if err != nil {
		return 0, err
	}
	_, err = fmt.Sscan(strings.TrimSpace(text), &rate)
	return rate, err
}

func rateMain(args []string) error {
	flags := flag.NewFlagSet("rate", flag.ContinueOnError)
	serve := flags.String("serve", "", "answer at this address")
	connect := flags.Bool("connect", false, "a new connection each time")
	during := flags.Duration("during", time.Second, "how long")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *serve != "" {
		return serveRates(*serve)
	}
	n, begin := 0, time.Now()
	var conn net.Conn
	defer func() {
		if conn != nil {
			conn.Close()
		}
	}()
	one := make([]byte, 1)
	for time.Since(begin) < *during {
		var err error
		if conn == nil {
			if conn, err = net.DialTimeout("tcp", flags.Arg(0), 3*time.Second); err != nil {
				return err
			}
		}
		if _, err = conn.Write(one); err == nil {
			_, err = conn.Read(one)
		}
		if err != nil {
			return err
		}
		n++
		if *connect { // by a reset: no port is kept waiting
			err = errors.Join(conn.(*net.TCPConn).SetLinger(0), conn.Close())
			conn = nil
			if err != nil {
				return err
			}
		}
	}
	fmt.Println(float64(n) / time.Since(begin).Seconds())
	return nil
}

func serveRates(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		go func() {
			defer conn.Close()
			one := make([]byte, 1)
			for {
				if _, err := conn.Read(one); err != nil {
					return
				}
				if _, err := conn.Write(one); err != nil {
					return
				}
			}
		}()
	}
}
