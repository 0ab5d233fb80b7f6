package lab

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// NameLoad is what became of questions that were asked at a steady rate.
type NameLoad struct {
	Asked, Answered int           // answered: with an address
	Took            time.Duration // from the first question to the last
	// From a question to its answer; one that has none took until the end, a second after
	// the last question.
	Median, P99, Max time.Duration
}

// AskAtRate asks the container's resolver for the addresses of a name, over UDP, so many
// times a second whether answers come or not.
func (c Container) AskAtRate(ctx context.Context, name string, rate int, during time.Duration) (NameLoad, error) {
	var l NameLoad
	return l, c.load(ctx, &l, "-rate", strconv.Itoa(rate), "-for", during.String(), name)
}

// AwaitName asks the container's resolver for a name every 2 ms until it has an address,
// and returns when that was.
func (c Container) AwaitName(ctx context.Context, name string) (known time.Time, err error) {
	return known, c.load(ctx, &known, name)
}

func (c Container) load(ctx context.Context, result any, args ...string) error {
	out, err := c.exec(ctx, []string{roleVar + "=" + roleLoad}, append([]string{labhost}, args...))
	if err != nil {
		return fmt.Errorf("in %s on %s: %w", c.Name, c.Host.Name, err)
	}
	return json.Unmarshal([]byte(out), result)
}

// loadMain is AskAtRate, or without a rate AwaitName, in the container's network namespace.
func loadMain(args []string) error {
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	rate := flags.Int("rate", 0, "questions a second")
	during := flags.Duration("for", time.Second, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	q, err := new(dns.Msg).SetQuestion(dns.Fqdn(flags.Arg(0)), dns.TypeA).Pack()
	if err != nil {
		return err
	}
	var result any
	if *rate > 0 {
		result, err = askAtRate(q, *rate, *during)
	} else {
		result, err = awaitName(q)
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

func awaitName(q []byte) (time.Time, error) {
	conn, err := net.Dial("udp", dockersResolver)
	if err != nil {
		return time.Time{}, err
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	go func() { // until the socket is closed
		// Whether or not the last one was answered: one that is lost on its way to
		// another server says nothing about when this name is known.
		for err := error(nil); err == nil; time.Sleep(2 * time.Millisecond) {
			_, err = conn.Write(q)
		}
	}()
	buf := make([]byte, 1500)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return time.Time{}, fmt.Errorf("wait for the name to be known: %w", err)
		}
		if hasAddress(buf[:n]) {
			return time.Now(), nil
		}
	}
}

// hasAddress reads the header of an answer (RFC 1035 section 4.1.1).
func hasAddress(wire []byte) bool {
	return len(wire) > 12 && wire[3]&0x0f == dns.RcodeSuccess && binary.BigEndian.Uint16(wire[6:]) > 0
}

// asker is one socket of those that ask, with questions under way by their ID.
type asker struct {
	conn net.Conn
	mu   sync.Mutex
	sent map[uint16]time.Time
	took []time.Duration
}

const askers = 8

func askAtRate(q []byte, rate int, during time.Duration) (NameLoad, error) {
	var all [askers]*asker
	var reading sync.WaitGroup
	for i := range all {
		conn, err := net.Dial("udp", dockersResolver)
		if err != nil {
			return NameLoad{}, err
		}
		all[i] = &asker{conn: conn, sent: map[uint16]time.Time{}}
		reading.Go(all[i].receive)
	}
	l, begin := NameLoad{Asked: rate * int(during.Milliseconds()) / 1000}, time.Now()
	for i := range l.Asked {
		time.Sleep(time.Until(begin.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		all[i%askers].send(q, uint16(i/askers))
	}
	l.Took = time.Since(begin)
	time.Sleep(time.Second) // the last answers
	end := time.Now()
	var took []time.Duration
	for _, a := range all {
		_ = a.conn.Close()
	}
	reading.Wait()
	for _, a := range all {
		l.Answered += len(a.took)
		took = append(took, a.took...)
		for _, asked := range a.sent {
			took = append(took, end.Sub(asked))
		}
	}
	if l.Answered == 0 {
		return l, errors.New("no question was answered with an address")
	}
	slices.Sort(took)
	l.Median, l.P99, l.Max = took[len(took)/2], took[len(took)*99/100], took[len(took)-1]
	return l, nil
}

func (a *asker) send(q []byte, id uint16) {
	wire := slices.Clone(q)
	binary.BigEndian.PutUint16(wire, id)
	a.mu.Lock()
	a.sent[id] = time.Now()
	a.mu.Unlock()
	_, _ = a.conn.Write(wire) // what cannot be sent is not answered
}

// receive ends when the socket is closed.
func (a *asker) receive() {
	buf := make([]byte, 4096)
	for {
		n, err := a.conn.Read(buf)
		now := time.Now()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || !hasAddress(buf[:n]) {
			continue
		}
		id := binary.BigEndian.Uint16(buf)
		a.mu.Lock()
		if at, asked := a.sent[id]; asked {
			delete(a.sent, id)
			a.took = append(a.took, now.Sub(at))
		}
		a.mu.Unlock()
	}
}
