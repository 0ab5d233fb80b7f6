package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"
)

// What a container sends to another one while something changes bears the time at which it was sent. So who hears it knows what was
// sent after a moment that it is told later.

// LatePort is the UDP port at which Late hears.
const LatePort = 7000

const (
	lateTick  = 500 * time.Microsecond
	lateBound = 3 * time.Minute // nobody talks or hears for longer
)

// Late has a container send datagrams to LatePort of another one on the same host, during f, which returns when it ended by that
// host's clock. It returns how many that were sent later arrived within two seconds, how late the last one was sent, and how many arrived that were sent before.
func Late(ctx context.Context, from, to Container, address netip.Addr, f func() (time.Time, error)) (late, before int, last time.Duration, err error) {
	talking, hush := context.WithCancel(ctx)
	defer hush()
	role := []string{roleVar + "=" + roleLate}
	heard := make(chan error, 1)
	var text string
	go func() {
		var err error
		text, err = to.exec(talking, role, []string{labhost, "hear"})
		heard <- err
	}()
	hushed := make(chan struct{})
	go func() {
		defer close(hushed)
		_, _ = from.exec(talking, role, []string{labhost, "talk", netip.AddrPortFrom(address, LatePort).String()})
	}()
	end, err := f()
	if err != nil {
		return 0, 0, 0, err
	}
	select {
	case <-time.After(2 * time.Second):
	case err := <-heard:
		return 0, 0, 0, fmt.Errorf("in %s on %s nobody hears any more: %w: %s", to.Name, to.Host.Name, err, text)
	}
	if _, err := to.exec(ctx, role, []string{labhost, "end", fmt.Sprint(end.UnixNano())}); err != nil {
		return 0, 0, 0, err
	}
	if err := <-heard; err != nil {
		return 0, 0, 0, err
	}
	hush()
	<-hushed
	_, err = fmt.Sscan(strings.TrimSpace(text), &late, &before, &last)
	return late, before, last, err
}

// lateMain is hear, which prints what Late returns, talk ADDRESS:PORT, or end NANOSECONDS, which has hear come to its end.
func lateMain(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "hear":
		return lateHear()
	case len(args) == 2 && args[0] == "talk":
		return lateTalk(args[1])
	case len(args) == 2 && args[0] == "end":
		c, err := net.Dial("udp4", fmt.Sprintf("127.0.0.1:%d", LatePort))
		if err != nil {
			return err
		}
		_, err = c.Write([]byte("end " + args[1]))
		return err
	}
	return errors.New("usage: hear|talk ADDRESS:PORT|end NANOSECONDS")
}

func lateTalk(to string) error {
	c, err := net.Dial("udp4", to)
	if err != nil {
		return err
	}
	for end := time.Now().Add(lateBound); time.Now().Before(end); time.Sleep(lateTick) {
		_, _ = c.Write(binary.BigEndian.AppendUint64(nil, uint64(time.Now().UnixNano()))) // nobody may hear it yet
	}
	return nil
}

func lateHear() error {
	c, err := net.ListenPacket("udp4", fmt.Sprintf(":%d", LatePort))
	if err != nil {
		return err
	}
	_ = c.SetReadDeadline(time.Now().Add(lateBound))
	var sent []int64
	b := make([]byte, 64)
	for {
		n, _, err := c.ReadFrom(b)
		if err != nil {
			return fmt.Errorf("%d datagrams were heard, and no end: %w", len(sent), err)
		}
		if n == 8 {
			sent = append(sent, int64(binary.BigEndian.Uint64(b)))
			continue
		}
		var end int64
		if _, err := fmt.Sscanf(string(b[:n]), "end %d", &end); err != nil {
			continue
		}
		late, last := 0, int64(0)
		for _, at := range sent {
			if at > end {
				late, last = late+1, max(last, at-end)
			}
		}
		fmt.Println(late, len(sent)-late, last)
		return nil
	}
}
