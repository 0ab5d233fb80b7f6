package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// raceMain asks for names that say their address (spelled), eight at a time, and connects to what it is told as soon as it
// is: raceMain FIRST COUNT. Each connection must be there by its first packet: one that was not let through at once is
// there by its second, a second later, and then it is a failure.
func raceMain(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: FIRST COUNT")
	}
	addr, err := netip.ParseAddr(args[0])
	if err != nil {
		return err
	}
	count, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	next := make(chan netip.Addr)
	var mu sync.Mutex
	var errs []error
	var runners sync.WaitGroup
	for range 8 {
		runners.Go(func() {
			for a := range next {
				if err := raceTo(a); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	for range count {
		next <- addr
		addr = addr.Next()
	}
	close(next)
	runners.Wait()
	fmt.Printf("connected to %d of %d by the first packet\n", count-len(errs), count)
	return errors.Join(errs...)
}

func raceTo(want netip.Addr) error {
	var q dns.Msg
	q.SetQuestion("race."+strings.ReplaceAll(want.String(), ".", "-")+".addr.example.", dns.TypeA)
	r, _, err := (&dns.Client{Timeout: 5 * time.Second}).Exchange(&q, dockersResolver)
	// A host that is too busy to open an address in time says so: it is asked again, as resolvers do.
	for range 5 {
		if err != nil || r.Rcode != dns.RcodeServerFailure {
			break
		}
		time.Sleep(500 * time.Millisecond)
		r, _, err = (&dns.Client{Timeout: 5 * time.Second}).Exchange(&q, dockersResolver)
	}
	if err != nil {
		return err
	}
	if len(r.Answer) != 1 {
		return fmt.Errorf("the answer for %s is %s", want, r)
	}
	at, _ := netip.AddrFromSlice(r.Answer[0].(*dns.A).A.To4())
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(at.String(), "80"))
	if err != nil {
		return err
	}
	defer conn.Close()
	return firstPacket(conn.(*net.TCPConn), want)
}

// firstPacket says that a connection that has just come about took more than one packet for it.
func firstPacket(conn *net.TCPConn, to netip.Addr) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var info *unix.TCPInfo
	if e := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), syscall.IPPROTO_TCP, unix.TCP_INFO) }); e != nil {
		return e
	}
	if err == nil && info.Total_retrans > 0 {
		err = fmt.Errorf("%s: its first packet was lost", to)
	}
	return err
}

// Race has a program in the container connect to COUNT addresses from FIRST on, by names that say them, as soon as each
// is told.
func (c Container) Race(ctx context.Context, first, count string) (string, error) {
	out, err := c.exec(ctx, []string{roleVar + "=" + roleRace}, []string{labhost, first, count})
	if err != nil {
		return "", fmt.Errorf("in %s on %s: %w", c.Name, c.Host.Name, err)
	}
	return out, nil
}
