package ipfix

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/grapevine-net/grapevine/observe/traffic"
	"github.com/grapevine-net/grapevine/overlay/counter"
)

// Config of an Exporter.
type Config struct {
	Collector string // HOST:PORT, by UDP, or tcp://HOST:PORT; empty: nobody is told anything
	Domain    uint32 // of this host
	// VNID is that of a network.
	VNID func(network string) uint32
	Log  *slog.Logger
}

const (
	// active is how often is told of what goes on, and idle after how long a silence of what is not known to have ended.
	active = time.Minute
	idle   = 15 * time.Second
	// most is how many flows wait to be sent: more than can be counted at once.
	most = 2 * counter.Room
	// pace is how long is waited after each burst of so many messages: a collector's buffer is small.
	burst = 16
	pace  = 10 * time.Millisecond
	// anew is after how long the collector's name is looked up again when nothing can be sent.
	anew = 10 * time.Second
)

// told is what a collector knows of a flow.
type told struct {
	packets, bytes uint64
	at, last       time.Time // when it was told, and of which last packet
}

// Exporter tells a collector.
type Exporter struct {
	cfg  Config
	wake chan struct{}
	anew time.Duration

	mu      sync.Mutex
	begun   bool
	told    map[counter.Half]told
	waiting []Flow
	lost    int // that there was no room for
}

// New makes an Exporter.
func New(cfg Config) *Exporter {
	return &Exporter{cfg: cfg, wake: make(chan struct{}, 1), anew: anew, told: map[counter.Half]told{}}
}

// Look hears what is counted, and what has ended since the last time. It does not block.
func (e *Exporter) Look(live map[counter.Half]*traffic.Record, ended []*traffic.Record, now time.Time) {
	if e.cfg.Collector == "" {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.begun { // what the kernel counted for a former agent, that one has told
		e.begun = true
		for h, r := range live {
			e.told[h] = told{r.Count.Packets, r.Count.Bytes, now, r.Count.Last}
		}
		return
	}
	for _, r := range ended {
		e.tell(r, Ended, now)
		delete(e.told, r.Half)
	}
	for h, r := range live {
		was, known := e.told[h]
		if !known || was.packets > r.Count.Packets { // its port was used again
			was = told{at: r.Count.First}
			e.told[h] = was
		}
		switch {
		case r.Count.Packets == was.packets:
		case now.Sub(was.at) >= active:
			e.tell(r, Active, now)
		case now.Sub(r.Count.Last) >= idle:
			e.tell(r, Idle, now)
		}
	}
	for h := range e.told {
		if _, there := live[h]; !there {
			delete(e.told, h)
		}
	}
	if len(e.waiting) > 0 {
		select {
		case e.wake <- struct{}{}:
		default:
		}
	}
}

// tell has what is new of a flow wait to be sent. The caller has e.mu.
func (e *Exporter) tell(r *traffic.Record, reason uint8, now time.Time) {
	was := e.told[r.Half]
	if was.packets > r.Count.Packets {
		was = told{}
	}
	c := r.Count
	if c.Packets == was.packets {
		return
	}
	f := Flow{
		Src: r.Half.Src, Dst: r.Half.Dst, SrcPort: r.Half.SrcPort, DstPort: r.Half.DstPort, Proto: r.Half.Proto,
		Packets: c.Packets - was.packets, Bytes: c.Bytes - was.bytes,
		Start: c.First, End: c.Last, Reason: reason, From: placeOf(r.Src), To: placeOf(r.Dst),
	}
	if f.Proto == tcp {
		f.Flags = c.Flags
	}
	if was.packets > 0 {
		f.Start = was.last
	}
	network := f.From.Network
	if network == "" {
		network = f.To.Network
	}
	f.VNID = e.cfg.VNID(network)
	e.told[r.Half] = told{c.Packets, c.Bytes, now, c.Last}
	if len(e.waiting) >= most {
		e.lost++
		return
	}
	e.waiting = append(e.waiting, f)
}

const tcp = 6

// placeOf is a container; what is none is nothing.
func placeOf(w traffic.Who) Place {
	if w.Host == "" {
		return Place{}
	}
	return Place{Network: w.Network, Container: w.Name, Host: w.Host}
}

// Run sends what waits, until ctx ends. What cannot be sent by UDP is gone.
func (e *Exporter) Run(ctx context.Context) error {
	if e.cfg.Collector == "" {
		return nil
	}
	if collector, is := strings.CutPrefix(e.cfg.Collector, "tcp://"); is {
		return e.stream(ctx, collector)
	}
	encoder := Encoder{Domain: e.cfg.Domain}
	var conn net.Conn
	var tried time.Time
	defer func() {
		if conn != nil {
			_ = conn.Close()
		}
	}()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.wake:
		}
		flows, lost := e.take()
		if lost > 0 {
			e.cfg.Log.Warn("flows were not told to the collector: there were too many at once", "flows", lost)
		}
		var err error
		if conn == nil && time.Since(tried) >= e.anew {
			tried = time.Now()
			var d net.Dialer
			conn, err = d.DialContext(ctx, "udp", e.cfg.Collector)
			encoder.templated = time.Time{} // those of another port's session are not this one's (RFC 7011, 8.4)
		}
		for i, message := range encoder.Messages(flows, time.Now()) {
			if conn == nil {
				break
			}
			// That a collector is away is not this host's trouble. What the kernel says here is of the message
			// before, and then it has not sent this one.
			if _, err := conn.Write(message); err != nil {
				_, _ = conn.Write(message)
			}
			if i%burst == burst-1 {
				time.Sleep(pace)
			}
		}
		if err != nil && err.Error() != said {
			said = err.Error()
			e.cfg.Log.Warn("the collector of IPFIX is not known", "collector", e.cfg.Collector, "err", err)
		}
		if time.Since(tried) > active && conn != nil { // its name may lead elsewhere by now
			_ = conn.Close()
			conn = nil
		}
	}
}

func (e *Exporter) take() (flows []Flow, lost int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	flows, lost = e.waiting, e.lost
	e.waiting, e.lost = nil, 0
	return flows, lost
}
