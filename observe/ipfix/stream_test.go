package ipfix

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/observe/traffic"
	"github.com/grapevine-net/grapevine/overlay/counter"
)

// next reads a message of a stream.
func (c *collector) next(conn net.Conn) {
	c.t.Helper()
	b := make([]byte, header)
	if _, err := io.ReadFull(conn, b); err != nil {
		c.t.Fatal(err)
	}
	b = append(b, make([]byte, int(binary.BigEndian.Uint16(b[2:]))-header)...)
	if _, err := io.ReadFull(conn, b[header:]); err != nil {
		c.t.Fatal(err)
	}
	c.read(b)
}

// TestStream: by TCP each connection begins with the templates and with sequence number 0; what there is to tell waits
// for a collector that is away, and comes once.
func TestStream(t *testing.T) {
	listen := func(at string) net.Listener {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := listen("127.0.0.1:0")
	at := l.Addr().String()
	_ = l.Close() // it is away

	e := New(Config{Collector: "tcp://" + at, Domain: 9, VNID: func(string) uint32 { return 7 }, Log: slog.New(slog.DiscardHandler)})
	e.anew = time.Millisecond
	port := uint16(0)
	look := func(flows int) {
		var ended []*traffic.Record
		for range flows {
			port++
			ended = append(ended, &traffic.Record{
				Half:  counter.Half{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), SrcPort: port, DstPort: 80, Proto: 6},
				Count: counter.Count{Packets: 1, Bytes: 100, First: began, Last: began},
			})
		}
		e.Look(nil, ended, began)
	}
	look(0)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	for range 5 {
		look(100)
		time.Sleep(2 * time.Millisecond) // it tries in vain meanwhile, or does not: both must do
	}
	e.mu.Lock()
	if len(e.waiting) != 500 || e.lost != 0 {
		t.Errorf("%d wait for a collector that is away, %d are lost", len(e.waiting), e.lost)
	}
	e.mu.Unlock()

	l = listen(at)
	defer l.Close()
	accepted := make(chan net.Conn)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- conn
		}
	}()
	// accept has more to tell until there is a connection: what is told wakes the exporter.
	accept := func() net.Conn {
		for {
			select {
			case conn := <-accepted:
				return conn
			case <-time.After(5 * time.Millisecond):
				look(1)
			}
		}
	}
	conn := accept()
	c := &collector{t: t, templates: map[uint16][][3]uint32{}}
	for len(c.records) < 500 {
		c.next(conn)
	}
	for i, r := range c.records[:500] {
		if got := binary.BigEndian.Uint16(r[7]); got != uint16(i+1) {
			t.Fatalf("record %d is of port %d: they come once, in their order", i, got)
		}
	}
	_ = conn.Close()
	conn = accept()
	c = &collector{t: t, templates: map[uint16][][3]uint32{}} // it knows nothing any more
	look(20)
	for len(c.records) < 20 {
		c.next(conn)
	}
	_ = conn.Close()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	e.putBack(make([]Flow, most+5))
	if flows, lost := e.take(); len(flows) != most || lost < 5 {
		t.Errorf("%d wait, %d are lost", len(flows), lost)
	}
}
